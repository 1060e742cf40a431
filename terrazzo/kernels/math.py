"""Elementwise arithmetic on flat tensors."""

import terrazzo.lang as tz

(n,) = tz.dims("n")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)
S = tz.dtypes("S", tz.f32, tz.f16, tz.bf16)


@tz.kernel(aliases=[("out", "a"), ("out", "b")])
def add(a: tz.gm[T, n], b: tz.gm[T, n], out: tz.gm[T, n], TILE: tz.const = 4096):
    """out = a + b, in the element type of the three."""
    for i in tz.grid(n, step=TILE):
        out[i] = a[i] + b[i]


@tz.kernel(aliases=[("out", "a"), ("out", "b")])
def mul(a: tz.gm[T, n], b: tz.gm[T, n], out: tz.gm[T, n], TILE: tz.const = 4096):
    """out = a · b, in the element type of the three."""
    for i in tz.grid(n, step=TILE):
        out[i] = a[i] * b[i]


@tz.kernel
def copy(x: tz.gm[S, n], out: tz.gm[T, n], TILE: tz.const = 4096):
    """out = x, cast to out's element type: exact when it widens, else to nearest, ties to even."""
    for i in tz.grid(n, step=TILE):
        out[i] = x[i].to(T)
