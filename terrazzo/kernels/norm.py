"""Normalisation of rows. The sums run over the whole row in f32, whatever the element type."""

from __future__ import annotations

from typing import Any

import terrazzo.lang as tz
from terrazzo.kernels.convert import pack

rows, dim = tz.dims("rows dim")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)
R = tz.dtypes("R", tz.f32, tz.f16, tz.bf16, tz.a8)


def normalised(t: Any, eps: Any) -> Any:
    """t / sqrt(mean(t²) + eps) along dim."""
    return t * tz.rsqrt(tz.mean(t * t, axis=dim) + eps)


@tz.kernel(aliases=[("out", "x")])
def rms_norm(
    x: tz.gm[T, rows, dim],
    weight: tz.gm[tz.f32, dim],
    out: tz.gm[R, rows, dim],
    eps: tz.f32,
    ROWS: tz.const = 8,
):
    """out = x / sqrt(mean(x²) + eps) · weight, per row; an a8 out is quantised on the way."""
    w = tz.load(weight, space=tz.UB)
    for r in tz.grid(rows, step=ROWS):
        t = tz.load(x[r], space=tz.UB).to(tz.f32)
        out[r] = pack(normalised(t, eps) * w, R)


@tz.kernel(aliases=[("total", "x"), ("total", "y")])
def add_rms_norm(
    x: tz.gm[T, rows, dim],
    y: tz.gm[T, rows, dim],
    weight: tz.gm[tz.f32, dim],
    total: tz.gm[T, rows, dim],
    out: tz.gm[R, rows, dim],
    eps: tz.f32,
    ROWS: tz.const = 8,
):
    """total = x + y, rounded to its type; out = rms_norm(total) as above."""
    w = tz.load(weight, space=tz.UB)
    for r in tz.grid(rows, step=ROWS):
        both = tz.load(x[r], space=tz.UB) + tz.load(y[r], space=tz.UB)
        total[r] = both
        out[r] = pack(normalised(both.to(tz.f32), eps) * w, R)


@tz.kernel(aliases=[("out", "x")])
def layer_norm(
    x: tz.gm[T, rows, dim],
    weight: tz.gm[tz.f32, dim],
    out: tz.gm[R, rows, dim],
    eps: tz.f32,
    bias: tz.gm[tz.f32, dim] | None = None,
    ROWS: tz.const = 8,
):
    """out = (x - mean(x)) / sqrt(var(x) + eps) · weight + bias, per row."""
    w = tz.load(weight, space=tz.UB)
    for r in tz.grid(rows, step=ROWS):
        t = tz.load(x[r], space=tz.UB).to(tz.f32)
        scaled = normalised(t - tz.mean(t, axis=dim), eps) * w
        if bias is not None:
            scaled += tz.load(bias, space=tz.UB)
        out[r] = pack(scaled, R)
