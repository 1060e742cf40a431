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


@tz.kernel(aliases=[("z", "x"), ("z", "y")])
def add_custom(
    x: tz.gm[T, n],
    y: tz.gm[T, n],
    z: tz.gm[T, n],
    BLOCK: tz.const = 65536,
    TILE: tz.const = 4096,
):
    """z = x + y, double-buffered: a core's block in tiles, the next loaded while one is added."""
    for i in tz.grid(n, step=BLOCK):
        for j in tz.loop(i.start, i.stop, of=n, step=TILE, stages=2):
            z[j] = tz.load(x[j], space=tz.UB) + tz.load(y[j], space=tz.UB)


@tz.kernel
def copy(x: tz.gm[S, n], out: tz.gm[T, n], TILE: tz.const = 4096):
    """out = x, cast to out's element type: exact when it widens, else to nearest, ties to even."""
    for i in tz.grid(n, step=TILE):
        out[i] = x[i].to(T)
