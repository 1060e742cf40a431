"""Kernels that between them use every part of the language; shared by the tests of lang and ir."""

import terrazzo.lang as tz

n, rows, dim, m, k = tz.dims("n rows dim m k")
seqs, heads, kvheads, tokens, ctx, pages, page, blocks = tz.dims(
    "seqs heads kvheads tokens ctx pages page blocks"
)
(d,) = tz.dims("d", static=True)
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)
A = tz.dtypes("A", tz.f32, tz.f16, tz.bf16, tz.a8)
W = tz.dtypes("W", tz.f32, tz.f16, tz.bf16, tz.q8_0, tz.q4_0, tz.q4_1, tz.q6_k)


@tz.kernel
def add(a: tz.gm[tz.f32, n], b: tz.gm[tz.f32, n], out: tz.gm[tz.f32, n], TILE: tz.const = 4096):
    """out = a + b."""
    for i in tz.grid(n, step=TILE):
        out[i] = a[i] + b[i]


@tz.kernel(aliases=[("out", "x")])
def rms_norm(
    x: tz.gm[T, rows, dim],
    weight: tz.gm[tz.f32, dim],
    out: tz.gm[T, rows, dim],
    eps: tz.f32,
    ROWS: tz.const = 8,
):
    """out = x / sqrt(mean(x^2) + eps) * weight, per row, in f32."""
    w = tz.load(weight, space=tz.UB)
    for r in tz.grid(rows, step=ROWS):
        t = tz.load(x[r], space=tz.UB).to(tz.f32)
        out[r] = (t * tz.rsqrt(tz.mean(t * t, axis=dim) + eps) * w).to(T)


@tz.kernel
def softmax(x: tz.gm[T, rows, dim], out: tz.gm[T, rows, dim], scale: tz.f32, ROWS: tz.const = 8):
    """out = softmax(x * scale) along dim."""
    for r in tz.grid(rows, step=ROWS):
        t = x[r].to(tz.f32) * scale
        e = tz.exp(t - tz.max(t, axis=dim))
        out[r] = (e / tz.sum(e, axis=dim)).to(T)


@tz.kernel
def matmul(
    a: tz.gm[T, m, k],
    b: tz.gm[T, k, n],
    c: tz.gm[T, m, n],
    M: tz.const = 128,
    N: tz.const = 256,
    K: tz.const = 64,
):
    """c = a @ b."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j, tz.f32, space=tz.L0C)
        for p in tz.loop(k, step=K, stages=2):
            acc += tz.load(a[i, p], space=tz.L1) @ tz.load(b[p, j], space=tz.L1)
        c[i, j] = acc.to(T)


@tz.kernel
def linear(
    a: tz.gm[A, m, k],
    w: tz.gm[W, n, k],
    out: tz.gm[T, m, n],
    bias: tz.gm[tz.f32, n] | None = None,
    residual: tz.gm[T, m, n] | None = None,
    act: tz.const = None,
    M: tz.const = 64,
    N: tz.const = 128,
    K: tz.const = 256,
):
    """out = act(a @ w^T + bias) + residual."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j)
        for p in tz.loop(k, step=K):
            acc += tz.load(a[i, p]) @ tz.load(w[j, p])
        if bias is not None:
            acc += bias[j]
        if act is not None:
            acc = act(acc)
        if residual is not None:
            acc += residual[i, j].to(tz.f32)
        out[i, j] = acc.to(T)


@tz.kernel
def flash(
    q: tz.gm[tz.f16, tokens, heads, d],
    kcache: tz.gm[tz.f16, pages, kvheads, d, page],
    vcache: tz.gm[tz.f16, pages, kvheads, page, d],
    table: tz.gm[tz.i32, seqs, blocks],
    q_start: tz.gm[tz.i32, seqs],
    q_len: tz.gm[tz.i32, seqs],
    lengths: tz.gm[tz.i32, seqs],
    out: tz.gm[tz.f16, tokens, heads, d],
    scale: tz.f32,
    PAGE: tz.const = 16,
    BQ: tz.const = 32,
):
    """Causal attention over a paged cache, one sequence a row of `table`, of unequal lengths."""
    group = heads // kvheads
    for b, h in tz.grid(seqs, heads):
        length = tz.load(lengths[b])
        s0 = tz.load(q_start[b])
        s1 = s0 + q_len[b]
        shift = length - s1
        for i in tz.loop(s0, s1, of=tokens, step=BQ):
            qt = tz.load(q[i, h]).to(tz.f32) * (scale * 1.4426950408889634)
            top, total, acc = tz.full(-1e30, i), tz.zeros(i), tz.zeros(i, d)
            for j in tz.loop(0, i.stop + shift, of=ctx, step=256):
                where = table[b, j // PAGE]
                kt = tz.load(kcache[where, h // group, :, j % PAGE])
                s = qt @ kt.to(tz.f32)
                s = tz.where(tz.index(j) <= tz.index(i) + shift, s, -1e30)
                mn = tz.maximum(top, tz.max(s, axis=j))
                p = tz.exp2(s - mn)
                r = tz.exp2(top - mn)
                total = total * r + tz.sum(p, axis=j)
                acc = acc * r + p @ vcache[where, h // group, j % PAGE].to(tz.f32)
                top = mn
            out[i, h] = (acc / total).to(tz.f16)
