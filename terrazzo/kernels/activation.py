"""Activation functions, alone and as the gate of a gated feed-forward layer."""

import terrazzo.lang as tz
from terrazzo.kernels.convert import pack

rows, dim = tz.dims("rows dim")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)
R = tz.dtypes("R", tz.f32, tz.f16, tz.bf16, tz.a8)


@tz.kernel(aliases=[("out", "gate"), ("out", "up")])
def silu_mul(
    gate: tz.gm[T, rows, dim],
    up: tz.gm[T, rows, dim],
    out: tz.gm[R, rows, dim],
    act: tz.const = tz.silu,
    ROWS: tz.const = 4,
):
    """out = act(gate) · up, in f32, with silu(x) = x / (1 + exp(-x)) unless told otherwise."""
    for r in tz.grid(rows, step=ROWS):
        g = tz.load(gate[r], space=tz.UB).to(tz.f32)
        out[r] = pack(act(g) * tz.load(up[r], space=tz.UB).to(tz.f32), R)


@tz.kernel(aliases=[("out", "x")])
def silu(x: tz.gm[T, rows, dim], out: tz.gm[R, rows, dim], ROWS: tz.const = 4):
    """out = x / (1 + exp(-x))."""
    for r in tz.grid(rows, step=ROWS):
        out[r] = pack(tz.silu(tz.load(x[r], space=tz.UB).to(tz.f32)), R)


@tz.kernel(aliases=[("out", "x")])
def gelu(x: tz.gm[T, rows, dim], out: tz.gm[R, rows, dim], ROWS: tz.const = 4):
    """out = x · Φ(x) = x/2 · (1 + erf(x / √2))."""
    for r in tz.grid(rows, step=ROWS):
        out[r] = pack(tz.gelu(tz.load(x[r], space=tz.UB).to(tz.f32)), R)


@tz.kernel(aliases=[("out", "x")])
def gelu_tanh(x: tz.gm[T, rows, dim], out: tz.gm[R, rows, dim], ROWS: tz.const = 4):
    """out = x/2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³))), after Hendrycks and Gimpel (2016)."""
    for r in tz.grid(rows, step=ROWS):
        out[r] = pack(tz.gelu_tanh(tz.load(x[r], space=tz.UB).to(tz.f32)), R)
