"""Axes, indexing, reductions, dots, loops and packed tiles of the reference target."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import NUMPY, run

import terrazzo.lang as tz
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed

n, m, k, p, q = tz.dims("n m k p q")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)
N = tz.dtypes("N", tz.i32, tz.f32)


@tz.kernel
def reductions(
    x: tz.gm[N, m, n],
    sums: tz.gm[N, m],
    most: tz.gm[N, n],
    least: tz.gm[N, m],
    where: tz.gm[tz.i32, n],
):
    """Sum and minimum along n; maximum and its lowest index along m."""
    for i in tz.grid(m, step=3):
        sums[i] = tz.sum(x[i], axis=n)
        least[i] = tz.min(x[i], axis=n)
    for j in tz.grid(n, step=4):
        most[j] = tz.max(x[:, j], axis=m)
        where[j] = tz.argmax(x[:, j], axis=m)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(1, 9), cols=st.integers(1, 9), dtype=st.sampled_from([np.int32, np.float32])
)
def test_reductions(rows: int, cols: int, dtype: type) -> None:
    x = np.random.default_rng(rows).integers(-3, 4, (rows, cols)).astype(dtype)
    sums, least = np.zeros(rows, dtype), np.zeros(rows, dtype)
    most, where = np.zeros(cols, dtype), np.zeros(cols, np.int32)
    run(reductions, x=x, sums=sums, most=most, least=least, where=where)
    assert np.array_equal(sums, x.sum(1)) and np.array_equal(least, x.min(1))
    assert np.array_equal(most, x.max(0)) and np.array_equal(where, x.argmax(0))


def test_sums_accumulate_wide_and_argmax_counts_in_the_dimension() -> None:
    @tz.kernel
    def blocks(x: tz.gm[tz.f16, n], total: tz.gm[tz.f32, p], where: tz.gm[tz.i32, p]):
        """The sum of each block of 4 and the index of its largest."""
        for b in tz.grid(p):
            for j in tz.loop(b * 4, b * 4 + 4, of=n, step=4):
                total[b] = tz.sum(x[j], axis=j)
                where[b] = tz.argmax(x[j], axis=j)

    x = np.array([60000, 60000, -60000, 1, 0, 2, 9, 9], np.float16)
    total, where = np.zeros(2, np.float32), np.zeros(2, np.int32)
    run(blocks, x=x, total=total, where=where)
    # 60000 in f16 is 60000 exactly; an f16 sum would have been infinite.
    assert total.tolist() == [60001, 20] and where.tolist() == [0, 6]


def test_empty_reductions() -> None:
    @tz.kernel
    def empty(
        x: tz.gm[tz.f32, m, n], s: tz.gm[tz.f32, m], hi: tz.gm[tz.f32, m], lo: tz.gm[tz.f32, m]
    ):
        """Sum, maximum, minimum along n."""
        for i in tz.grid(m, step=8):
            s[i] = tz.sum(x[i], axis=n)
            hi[i] = tz.max(x[i], axis=n)
            lo[i] = tz.min(x[i], axis=n)

    s, hi, lo = (np.zeros(2, np.float32) for _ in range(3))
    run(empty, x=np.zeros((2, 0), np.float32), s=s, hi=hi, lo=lo)
    assert s.tolist() == [0, 0] and hi.tolist() == [-np.inf] * 2 and lo.tolist() == [np.inf] * 2


def test_axes_broadcast_by_name_whatever_their_order() -> None:
    @tz.kernel
    def outer(
        a: tz.gm[tz.f32, m], b: tz.gm[tz.f32, n], x: tz.gm[tz.f32, n, m], out: tz.gm[tz.f32, m, n]
    ):
        """out[i, j] = a[i] - b[j] + x[j, i]."""
        for i, j in tz.grid(m, n, step=(3, 2)):
            out[i, j] = a[i] - b[j] + x[j, i]

    rng = np.random.default_rng(0)
    a, b, x = rng.random(7, np.float32), rng.random(5, np.float32), rng.random((5, 7), np.float32)
    out = np.zeros((7, 5), np.float32)
    run(outer, a=a, b=b, x=x, out=out)
    assert np.array_equal(out, a[:, None] - b + x.T)


def test_dot_contracts_every_shared_axis() -> None:
    @tz.kernel
    def contract(a: tz.gm[T, m, p, k], b: tz.gm[T, p, n, k], out: tz.gm[tz.f32, n, m]):
        """out[j, i] = Σ over p and k of a[i, p, k] · b[p, j, k]."""
        for i, j in tz.grid(m, n, step=(4, 4)):
            out[j, i] = tz.load(a[i]) @ tz.load(b[:, j])

    rng = np.random.default_rng(0)
    for name in NUMPY:
        a, b = (
            rng.standard_normal((5, 3, 6)).astype(NUMPY[name]),
            rng.standard_normal((3, 9, 6)).astype(NUMPY[name]),
        )
        out = np.zeros((9, 5), np.float32)
        run(contract, a=a, b=b, out=out)
        exact = np.einsum("ipk,pjk->ji", a.astype(np.float64), b.astype(np.float64))
        assert np.allclose(out, exact, rtol=2.0**-24, atol=1e-12)


def test_integer_dot_is_exact() -> None:
    @tz.kernel
    def product(a: tz.gm[tz.i8, m, k], b: tz.gm[tz.i8, k, n], out: tz.gm[tz.i32, m, n]):
        """out = a @ b in i32."""
        for i, j in tz.grid(m, n, step=(4, 4)):
            out[i, j] = tz.load(a[i]) @ tz.load(b[:, j])

    a, b = np.full((2, 2000), -128, np.int8), np.full((2000, 3), -128, np.int8)
    out = np.zeros((2, 3), np.int32)
    run(product, a=a, b=b, out=out)
    assert (out == 2000 * 128 * 128).all()


def test_gather_and_scatter_by_axis_name() -> None:
    @tz.kernel
    def shuffle(
        x: tz.gm[tz.f32, p, q, k],
        row: tz.gm[tz.i32, n],
        col: tz.gm[tz.i32, n],
        to: tz.gm[tz.i32, n],
        out: tz.gm[tz.f32, k, m],
    ):
        """out[:, to[j]] = x[row[j], col[j], :]: j is one axis, though it stands in two places."""
        for j in tz.grid(n, step=4):
            out[:, to[j]] = x[row[j], col[j]]

    rng = np.random.default_rng(0)
    x = rng.random((4, 5, 3), np.float32)
    row, col = rng.integers(0, 4, 7).astype(np.int32), rng.integers(0, 5, 7).astype(np.int32)
    to = rng.permutation(9)[:7].astype(np.int32)
    out, want = np.zeros((3, 9), np.float32), np.zeros((3, 9), np.float32)
    run(shuffle, x=x, row=row, col=col, to=to, out=out)
    want[:, to] = x[row, col].T
    assert np.array_equal(out, want)


def test_loops_carry_values_and_blocks_have_run_time_bounds() -> None:
    @tz.kernel
    def fibonacci(
        lo: tz.gm[tz.i32, n],
        hi: tz.gm[tz.i32, n],
        x: tz.gm[tz.f32, m],
        a: tz.gm[tz.i32, n],
        s: tz.gm[tz.f32, n],
    ):
        """a = Fibonacci number hi - lo; s = sum of x[lo:hi], in blocks of 3."""
        for i in tz.grid(n):
            f, g = tz.full(0, dtype=tz.i32), tz.full(1, dtype=tz.i32)
            for _ in tz.loop(lo[i], hi[i]):
                f, g = g, f + g
            total = tz.full(0.0)
            for j in tz.loop(lo[i], hi[i], of=m, step=3):
                total += tz.sum(x[j], axis=j)
            a[i], s[i] = f, total

    lo, hi = np.array([0, 2, 5, 3], np.int32), np.array([0, 10, 5, 4], np.int32)
    x = np.arange(10, dtype=np.float32)
    a, s = np.zeros(4, np.int32), np.zeros(4, np.float32)
    run(fibonacci, lo=lo, hi=hi, x=x, a=a, s=s)
    assert a.tolist() == [0, 21, 0, 1] and s.tolist() == [0, 44, 0, 3]


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "q4_1", "q6_k", "a8"])
def test_packed_blocks_decode_and_multiply(fmt: str) -> None:
    W = tz.dtypes("W", formats.FORMATS[fmt])

    @tz.kernel
    def parts(
        w: tz.gm[W, n, k], x: tz.gm[tz.f32, k], out: tz.gm[tz.f32, n], plain: tz.gm[tz.f32, n, k]
    ):
        """out = w @ x in blocks of 256 of k; plain = w, decoded."""
        for i in tz.grid(n, step=2):
            acc = tz.zeros(i)
            for j in tz.loop(k, step=256):
                acc += tz.load(w[i, j]) @ tz.load(x[j])
                plain[i, j] = w[i, j].to(tz.f32)
            out[i] = acc

    rng = np.random.default_rng(0)
    x, wide = (
        rng.standard_normal(768).astype(np.float32),
        rng.standard_normal((5, 768)).astype(np.float32),
    )
    w = Packed(formats.FORMATS[fmt], wide.shape, formats.encode(fmt, wide))
    values = formats.decode(fmt, w.data, w.shape)
    out, plain = np.zeros(5, np.float32), np.zeros_like(wide)
    run(parts, w=w, x=x, out=out, plain=plain)
    assert np.array_equal(plain, values)
    assert np.allclose(out, values.astype(np.float64) @ x, rtol=0, atol=1e-5)


def test_quantize_stores_blocks_of_an_a8_row() -> None:
    @tz.kernel
    def blocks(x: tz.gm[tz.f32, m, n], out: tz.gm[tz.a8, m, n]):
        """out = x, 64 columns at a time."""
        for i, j in tz.grid(m, n, step=(2, 64)):
            out[i, j] = tz.quantize(x[i, j], tz.a8)

    x = np.random.default_rng(0).standard_normal((3, 160)).astype(np.float32)
    want = formats.encode("a8", x)
    out = Packed(formats.A8, x.shape, np.zeros_like(want))
    run(blocks, x=x, out=out)
    assert np.array_equal(out.data, want)
