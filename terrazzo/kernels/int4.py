"""Matrix products with weights of four bits, unpacked in the kernel's own text.

A weight is (code - zero) · scale with a code of 0 … 15; scale and zero belong to a column and a
group of consecutive k (128 of them, as GPTQ and AWQ files have it). A group's codes lie in half as
many rows of bytes: byte row r holds code r in its low bits and code r + half in its high ones, so
that both halves of a group come out of one load as whole tiles, with nothing to interleave.
"""

import terrazzo.lang as tz

m, n, groups, two, half = tz.dims("m n groups two half")
R = tz.dtypes("R", tz.f32, tz.f16, tz.bf16)


@tz.kernel
def matmul_int4(
    a: tz.gm[tz.f16, m, groups, two, half],
    w: tz.gm[tz.u8, groups, half, n],
    scale: tz.gm[tz.f16, groups, n],
    zero: tz.gm[tz.f16, groups, n],
    out: tz.gm[R, m, n],
    M: tz.const = 128,
    N: tz.const = 128,
):
    """out = a @ ((codes of w - zero) · scale); weights rounded to f16, sums in f32.

    a is [m, k] seen as groups of two halves: k = groups · two · half, `two` is 2.
    """
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j, space=tz.L0C)
        for g in tz.loop(groups, stages=2):
            byte = tz.load(w[g, :, j], space=tz.UB)
            low = (byte & 15).to(tz.f16)
            # Up to 255, exact in f16: this needs no shift of bytes, which the vector unit has not.
            high = (byte.to(tz.f16) - low) * 0.0625
            s, z = tz.load(scale[g, j], space=tz.UB), tz.load(zero[g, j], space=tz.UB)
            acc += tz.load(a[i, g, 0], space=tz.L1) @ ((low - z) * s)
            acc += tz.load(a[i, g, 1], space=tz.L1) @ ((high - z) * s)
        out[i, j] = acc.to(R)
