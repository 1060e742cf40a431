"""Kernels of the published measurements that the library has no use for."""

import terrazzo.lang as tz
from terrazzo.kernels.attention import HIDDEN

rows, cols, few, times = tz.dims("rows cols few times")
heads, s, t, d = tz.dims("heads s t d")
m, n, k = tz.dims("m n k")
T = tz.dtypes("T", tz.f32, tz.f16)
R = tz.dtypes("R", tz.f32, tz.f16)


@tz.kernel
def copy(
    x: tz.gm[T, rows, cols],
    out: tz.gm[T, rows, cols],
    ROWS: tz.const = 64,
    COLS: tz.const = 1024,
):
    """out = x by way of UB, tile by tile."""
    for i, j in tz.grid(rows, cols, step=(ROWS, COLS)):
        out[i, j] = tz.load(x[i, j], space=tz.UB)


@tz.kernel
def copy_same(
    x: tz.gm[T, rows, cols],
    out: tz.gm[T, times, rows, cols],
    ROWS: tz.const = 64,
    COLS: tz.const = 1024,
):
    """out[c] = x for every c: all cores read the same tensor from its start."""
    for c in tz.grid(times):
        for i in tz.loop(rows, step=ROWS):
            for j in tz.loop(cols, step=COLS, stages=2):
                out[c, i, j] = tz.load(x[i, j], space=tz.UB)


@tz.kernel
def copy_nz(
    x: tz.gm[T, rows, cols],
    w: tz.gm[T, cols, few],
    out: tz.gm[R, rows, few],
    ROWS: tz.const = 64,
    COLS: tz.const = 256,
):
    """out = x @ w for a narrow w: x goes through L1, tile by tile."""
    for i in tz.grid(rows, step=ROWS):
        acc = tz.zeros(i, few, space=tz.L0C)
        for p in tz.loop(cols, step=COLS, stages=2):
            acc += tz.load(x[i, p], space=tz.L1) @ tz.load(w[p], space=tz.L1)
        out[i] = acc.to(R)


@tz.kernel
def add_repeated(
    x: tz.gm[T, rows],
    y: tz.gm[T, rows],
    out: tz.gm[T, rows],
    TIMES: tz.const = 1000,
    ROWS: tz.const = 4096,
):
    """out = x + TIMES · y, one addition after the other on tiles that stay in UB."""
    for i in tz.grid(rows, step=ROWS):
        z, b = tz.load(x[i], space=tz.UB), tz.load(y[i], space=tz.UB)
        for _ in tz.loop(TIMES):
            z = z + b
        out[i] = z


@tz.kernel
def matmul_bt(
    a: tz.gm[T, m, k],
    b: tz.gm[T, n, k],
    out: tz.gm[R, m, n],
    M: tz.const = 128,
    N: tz.const = 256,
    K: tz.const = 256,
):
    """out = a @ bᵀ."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j, space=tz.L0C)
        for p in tz.loop(k, step=K, stages=2):
            acc += tz.load(a[i, p], space=tz.L1) @ tz.load(b[j, p], space=tz.L1)
        out[i, j] = acc.to(R)


@tz.kernel
def attention(
    q: tz.gm[T, heads, s, d],
    k: tz.gm[T, heads, t, d],
    v: tz.gm[T, heads, t, d],
    out: tz.gm[R, heads, s, d],
    scale: tz.f32,
    BQ: tz.const = 128,
    STEP: tz.const = 256,
):
    """out = softmax(scale · q kᵀ) v, every query over all keys; scale is above 0."""
    for h, i in tz.grid(heads, s, step=(None, BQ)):
        qt = tz.load(q[h, i], space=tz.L1)
        top, total, acc = tz.full(HIDDEN, i), tz.zeros(i), tz.zeros(i, d)
        for j in tz.loop(t, step=STEP, stages=2):
            x = qt @ tz.load(k[h, j], space=tz.L1)
            new = tz.maximum(top, tz.max(x, axis=j))
            p = tz.exp((x - new) * scale)
            old = tz.exp((top - new) * scale)
            o = p.to(T) @ tz.load(v[h, j], space=tz.L1)
            # Both sums are kept with the other sign: acc + o would be the Cube's own sum.
            top, total, acc = new, total * old - tz.sum(p, axis=j), acc * old - o
        out[h, i] = (acc / total).to(R)


@tz.kernel
def matmul_i8_gelu(
    a: tz.gm[tz.i8, m, k],
    b: tz.gm[tz.i8, k, n],
    scale: tz.gm[tz.f32, n],
    row_scale: tz.gm[tz.f32, m],
    out: tz.gm[R, m, n],
    M: tz.const = 128,
    N: tz.const = 256,
    K: tz.const = 512,
):
    """out = gelu(row_scale · scale · (a @ b)), the product exact in i32; gelu by tanh, which is
    x / (1 + exp(-√(8/π) · (x + 0.044715 · x³))), in f32."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j, dtype=tz.i32, space=tz.L0C)
        for p in tz.loop(k, step=K, stages=2):
            acc += tz.load(a[i, p], space=tz.L1) @ tz.load(b[p, j], space=tz.L1)
        x = acc.to(tz.f32) * scale[j] * row_scale[i]
        y = x * (x * x * 0.07135481282052 + 1.5957691216057308)
        out[i, j] = (x / (1.0 + tz.exp(-y))).to(R)
