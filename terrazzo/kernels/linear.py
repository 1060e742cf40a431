"""Matrix products. Sums over k are f32 (the Cube's accumulator L0C), in blocks of K."""

import terrazzo.lang as tz
from terrazzo.kernels.convert import pack

m, n, k = tz.dims("m n k")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)
A = tz.dtypes("A", tz.f32, tz.f16, tz.bf16, tz.a8)
W = tz.dtypes("W", tz.f32, tz.f16, tz.bf16, tz.q8_0, tz.q4_0, tz.q4_1, tz.q6_k)
R = tz.dtypes("R", tz.f32, tz.f16, tz.bf16)
Q = tz.dtypes("Q", tz.f32, tz.f16, tz.bf16, tz.a8)
S = tz.dtypes("S", tz.i32, tz.f32, tz.f16, tz.bf16)


@tz.kernel
def matmul(
    a: tz.gm[T, m, k],
    b: tz.gm[T, k, n],
    out: tz.gm[R, m, n],
    M: tz.const = tz.by_target(128, cpu=1024),
    N: tz.const = tz.by_target(256, amx=512),
    K: tz.const = tz.by_target(64, cpu=512, davinci=128),
):
    """out = a @ b."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j, space=tz.L0C)
        for p in tz.loop(k, step=K, stages=2):  # double-buffered where the chip gains from it
            acc += tz.load(a[i, p], space=tz.L1) @ tz.load(b[p, j], space=tz.L1)
        out[i, j] = acc.to(R)


@tz.kernel
def matmul_bias_gelu(
    a: tz.gm[T, m, k],
    b: tz.gm[T, k, n],
    bias: tz.gm[tz.f32, n],
    out: tz.gm[R, m, n],
    act: tz.const = tz.gelu_tanh,
    M: tz.const = 128,
    N: tz.const = 128,
    K: tz.const = tz.by_target(64, cpu=512),
):
    """out = act(a @ b + bias), the sum and its epilogue in f32; gelu by tanh unless told otherwise.

    On an NPU the Cube makes the sums and the Vector cores what follows.
    """
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j, space=tz.L0C)
        for p in tz.loop(k, step=K, stages=2):
            acc += tz.load(a[i, p], space=tz.L1) @ tz.load(b[p, j], space=tz.L1)
        out[i, j] = act(acc + bias[j]).to(R)


@tz.kernel
def matmul_i8(
    a: tz.gm[tz.i8, m, k],
    b: tz.gm[tz.i8, k, n],
    out: tz.gm[S, m, n],
    scale: tz.gm[tz.f32, n] | None = None,
    M: tz.const = 128,
    N: tz.const = 128,
    K: tz.const = tz.by_target(128, cpu=512),
):
    """out = a @ b, summed exactly in i32 (k up to 131,071); times its column's scale, if given."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j, dtype=tz.i32, space=tz.L0C)
        for p in tz.loop(k, step=K, stages=2):
            acc += tz.load(a[i, p], space=tz.L1) @ tz.load(b[p, j], space=tz.L1)
        out[i, j] = acc.to(S) if scale is None else (acc.to(tz.f32) * scale[j]).to(S)


@tz.kernel(aliases=[("out", "residual")])
def linear(
    a: tz.gm[A, m, k],
    w: tz.gm[W, n, k],
    out: tz.gm[R, m, n],
    bias: tz.gm[tz.f32, n] | None = None,
    residual: tz.gm[R, m, n] | None = None,
    act: tz.const = None,
    M: tz.const = 128,
    N: tz.const = 256,
    K: tz.const = tz.by_target(256, davinci=128),
):
    """out = act(a @ wᵀ + bias) + residual; what is not given is left out.

    w keeps its packed format to the Cube. With a in a8 the products are summed as integers, 16 k at
    a time, then scaled; with floats the weights are decoded group by group. K is a multiple of both
    formats' groups.
    """
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j, space=tz.L0C)
        for p in tz.loop(k, step=K, stages=2):
            acc += tz.load(a[i, p], space=tz.L1) @ tz.load(w[j, p], space=tz.L1)
        if bias is not None:
            acc += bias[j]
        if act is not None:
            acc = act(acc)
        if residual is not None:
            acc += residual[i, j].to(tz.f32)
        out[i, j] = acc.to(R)


@tz.kernel
def gated_linear(
    a: tz.gm[A, m, k],
    gate: tz.gm[W, n, k],
    up: tz.gm[W, n, k],
    out: tz.gm[Q, m, n],
    act: tz.const = tz.silu,
    M: tz.const = 128,
    N: tz.const = 128,
    K: tz.const = 256,
):
    """out = act(a @ gateᵀ) · (a @ upᵀ), no product in memory. N is a multiple of 32 for a8."""
    for i, j in tz.grid(m, n, step=(M, N)):
        g, u = tz.zeros(i, j, space=tz.L0C), tz.zeros(i, j, space=tz.L0C)
        for p in tz.loop(k, step=K, stages=2):
            t = tz.load(a[i, p], space=tz.L1)
            g += t @ tz.load(gate[j, p], space=tz.L1)
            u += t @ tz.load(up[j, p], space=tz.L1)
        out[i, j] = pack(act(g) * u, Q)
