"""Products of bytes on the CPU target: exact, with and without an accumulator, and where they end.

The library's `matmul_i8` is tested with the kernels.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import terrazzo.lang as tz
from terrazzo.errors import KernelError

m, n, k = tz.dims("m n k")
(s,) = tz.dims("s", static=True)
B = tz.dtypes("B", tz.i8, tz.u8)


@tz.kernel
def product(a: tz.gm[B, m, s], b: tz.gm[tz.i8, n, s], out: tz.gm[tz.i32, m, n]):
    """out = a @ bᵀ, in one piece."""
    for i in tz.grid(m, step=8):
        out[i] = tz.load(a[i]) @ tz.load(b)


@tz.kernel
def scaled(a: tz.gm[B, m, k], b: tz.gm[tz.i8, k, n], out: tz.gm[tz.i32, m, n], K: tz.const = 16):
    """out is doubled before each block of products is added: a sum that is no plain one."""
    for i in tz.grid(m, step=8):
        acc = tz.zeros(i, n, dtype=tz.i32)
        for p in tz.loop(k, step=K):
            acc = acc * 2 + tz.load(a[i, p]) @ tz.load(b[p])
        out[i] = acc


@tz.kernel
def unbounded(a: tz.gm[tz.i8, m, k], b: tz.gm[tz.i8, k, n], out: tz.gm[tz.i32, m, n]):
    """All of k at once."""
    for i in tz.grid(m, step=8):
        out[i] = tz.load(a[i]) @ tz.load(b)


def bytes_of(rng: np.random.Generator, shape: tuple[int, int], signed: bool) -> np.ndarray:
    info = np.iinfo(np.int8 if signed else np.uint8)
    return rng.choice([info.min, info.max, 1, 77], shape).astype(info.dtype)


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 20), columns=st.integers(1, 40), signed=st.booleans())
def test_one_product(rows: int, columns: int, signed: bool) -> None:
    rng = np.random.default_rng(rows)
    a, b = bytes_of(rng, (rows, 512), signed), bytes_of(rng, (columns, 512), True)
    out = np.full((rows, columns), 77, np.int32)
    product(a, b, out)
    assert np.array_equal(out, a.astype(np.int64) @ b.astype(np.int64).T)


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 20), length=st.integers(0, 60), signed=st.booleans())
def test_rescaled_sums(rows: int, length: int, signed: bool) -> None:
    rng = np.random.default_rng(length)
    a, b = bytes_of(rng, (rows, length), signed), bytes_of(rng, (length, 5), True)
    out = np.full((rows, 5), 77, np.int32)
    scaled(a, b, out)
    want = np.zeros((rows, 5), np.int64)
    for p in range(0, length, 16):
        want = want * 2 + a[:, p : p + 16].astype(np.int64) @ b[p : p + 16].astype(np.int64)
    assert np.array_equal(out, want)


@pytest.mark.parametrize(("signed", "most"), [(True, 1024), (False, 514)])
def test_sums_that_f32_would_round_are_refused(signed: bool, most: int) -> None:
    rng = np.random.default_rng(0)
    for length in (most, most + 1):
        a, b = bytes_of(rng, (2, length), signed), bytes_of(rng, (3, length), True)
        a[:], b[:] = a.max() if not signed else -128, -128
        out = np.zeros((2, 3), np.int32)
        if length == most:
            product(a, b, out)
            assert np.array_equal(out, a.astype(np.int64) @ b.astype(np.int64).T)
        else:
            with pytest.raises(KernelError, match=f"blocks of up to {most:,}"):
                product(a, b, out)


def test_a_sum_of_any_length_is_refused() -> None:
    a = np.zeros((3, 3), np.int8)
    with pytest.raises(KernelError, match="any number of products along `k`"):
        unbounded(a, a, np.zeros((3, 3), np.int32))
