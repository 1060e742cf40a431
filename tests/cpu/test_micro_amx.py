"""The bf16 product on matrix tiles, bit for bit against the sequence of roundings that the
instruction's manual gives; on machines that have AMX."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_harness import dot_bf16, fma

from terrazzo.targets.cpu import isa as isas

pytestmark = pytest.mark.skipif("amx" not in isas.runnable(), reason="this machine has no AMX")
BF16 = ml_dtypes.bfloat16
SMALLEST = np.float32(2.0**-126)  # normal f32


def flushed(x: np.ndarray) -> np.ndarray:
    """Denormals to 0 of their sign."""
    return np.where(np.abs(x) < SMALLEST, np.copysign(np.float32(0), x), x)


def by_contract(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """f32 [m, n] of bf16 [m, k] and [k, n]."""
    (m, k), n = a.shape, b.shape[1]
    a, b = flushed(a.astype(np.float32)), flushed(b.astype(np.float32))
    c = np.zeros((m, n), np.float32) if c is None else flushed(c)
    for start in range(0, k, 32):
        sums = [np.zeros((m, n), np.float32) for _ in range(2)]
        for i in range(start, min(start + 32, k)):
            sums[i % 2] = flushed(fma(a[:, i, None], b[None, i], sums[i % 2]))
        c = flushed(c + flushed(sums[0] + sums[1]))
    return c


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32).astype(BF16)


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(0, 100), seed=st.integers(0, 99),
    wide=st.booleans(), onto=st.booleans(),
)  # fmt: skip
def test_bits(m: int, n: int, k: int, seed: int, wide: bool, onto: bool) -> None:
    rng, isa = np.random.default_rng(seed), isas.detect("amx")
    a, b = normal(rng, m, k), normal(rng, k, n)
    c = rng.standard_normal((m, (n + 15) // 16 * 16), dtype=np.float32) if onto else None
    got = dot_bf16(isa, a.astype(np.float32) if wide else a, b, c)[:, :n]
    assert np.array_equal(got, by_contract(a, b, c if c is None else c[:, :n]))


def test_more_than_one_copy() -> None:
    """Rows and steps past what is copied at a time."""
    rng, isa = np.random.default_rng(1), isas.detect("amx")
    a, b = normal(rng, 300, 1100), normal(rng, 1100, 33)
    assert np.array_equal(dot_bf16(isa, a, b)[:, :33], by_contract(a, b))


def test_infinities_stay_in_their_rows_and_columns() -> None:
    """Zeros that fill up tiles meet no NaN."""
    rng, isa = np.random.default_rng(2), isas.detect("amx")
    a, b = normal(rng, 19, 37), normal(rng, 37, 21)
    a[3, 36], b[36, 5] = np.inf, np.nan
    got = dot_bf16(isa, a, b)[:, :21]
    bad = ~np.isfinite(got)
    assert np.array_equal(bad, (np.arange(19) == 3)[:, None] | (np.arange(21) == 5))


def test_denormals_count_as_zeros() -> None:
    isa = isas.detect("amx")
    a = np.full((2, 32), 2.0**-70, BF16)
    a[1] = 2.0**-130
    b = np.full((32, 2), 2.0**-60, BF16)
    b[:, 1] = 2.0**100
    got = dot_bf16(isa, a, b)[:, :2]
    assert got[0, 0] == 0 and got[0, 1] == 32 * 2.0**30 and not got[1].any()


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    rng, isa = np.random.default_rng(3), isas.detect("amx")
    a, b = normal(rng, 50, 130), normal(rng, 130, 40)
    whole = dot_bf16(isa, a, b)
    for first, last in ((0, 1), (17, 18), (3, 36), (40, 50)):
        assert np.array_equal(dot_bf16(isa, a[first:last], b), whole[first:last])
