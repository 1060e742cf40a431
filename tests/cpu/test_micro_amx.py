"""Products on matrix tiles, bit for bit against the sequence of roundings that the instruction's
manual gives, and against exact sums; on machines that have AMX."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_harness import BF16, aligned, call, dot_tiles, flushed, fma, split, up16

from terrazzo.targets.cpu import isa as isas
from terrazzo.targets.cpu import layouts, micro
from terrazzo.targets.cpu.planes import terms

pytestmark = pytest.mark.skipif("amx" not in isas.runnable(), reason="this machine has no AMX")
# (dtype of A in memory, planes of A, dtype of B's values, planes of B)
KINDS = [
    (BF16, 1, BF16, 1), (np.float32, 1, BF16, 1), (np.float16, 2, np.float16, 2),
    (np.float32, 3, np.float32, 3), (np.float32, 2, np.float16, 2), (np.float32, 3, np.float16, 2),
    (BF16, 1, np.float32, 3), (np.float16, 2, BF16, 1),
]  # fmt: skip


def by_contract(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, planes: tuple[int, int] = (1, 1)
) -> np.ndarray:
    """f32 [m, n] of [m, k] and [k, n]."""
    (m, k), n = a.shape, b.shape[1]
    x = [flushed(p.astype(np.float32)) for p in split(a, planes[0])]
    y = [flushed(p.astype(np.float32)) for p in split(b, planes[1])]
    c = np.zeros((m, n), np.float32) if c is None else flushed(c)
    for start in range(0, k, 32):
        for left, right in terms(*planes):
            sums = [np.zeros((m, n), np.float32) for _ in range(2)]
            for i in range(start, min(start + 32, k)):
                new = fma(x[left][:, i, None], y[right][None, i], sums[i % 2])
                sums[i % 2] = flushed(new)
            c = flushed(c + flushed(sums[0] + sums[1]))
    return c


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32).astype(BF16)


def values(rng: np.random.Generator, kind: type, planes: int, *shape: int) -> np.ndarray:
    x = rng.standard_normal(shape, dtype=np.float32)
    exact = {1: BF16, 2: np.float16, 3: np.float32}[planes]
    return x.astype(exact).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(
    m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(0, 100), seed=st.integers(0, 99),
    onto=st.booleans(),
)  # fmt: skip
def test_bits(
    kind: tuple[type, int, type, int], m: int, n: int, k: int, seed: int, onto: bool
) -> None:
    rng, isa = np.random.default_rng(seed), isas.detect("amx")
    left, pa, right, pb = kind
    a, b = values(rng, left, pa, m, k), values(rng, right, pb, k, n)
    c = rng.standard_normal((m, up16(n)), dtype=np.float32) if onto else None
    got = dot_tiles(isa, a, b, c, (pa, pb))[:, :n]
    assert np.array_equal(got, by_contract(a, b, c if c is None else c[:, :n], (pa, pb)))


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_one_copy(kind: tuple[type, int, type, int]) -> None:
    """Rows and steps past what is copied at a time."""
    rng, isa = np.random.default_rng(1), isas.detect("amx")
    left, pa, right, pb = kind
    a, b = values(rng, left, pa, 300, 1100), values(rng, right, pb, 1100, 33)
    got = dot_tiles(isa, a, b, planes=(pa, pb))[:, :33]
    assert np.array_equal(got, by_contract(a, b, planes=(pa, pb)))


@settings(max_examples=30, deadline=None)
@given(
    k=st.integers(1, 700), seed=st.integers(0, 99), spread=st.sampled_from([1, 2.0**10, 2.0**30]),
    planes=st.sampled_from([2, 3]),
)  # fmt: skip
def test_sums_are_those_of_f32(k: int, seed: int, spread: float, planes: int) -> None:
    """Against exact sums: no further off than one f32 rounding for each step along k. Products of
    planes are exact in f32; 2^-25 of a product is left out; each block of 32 steps adds up 32
    products in two chains of 16 and their sum, and goes to the total once for each term."""
    rng, isa = np.random.default_rng(seed), isas.detect("amx")
    kind = np.float16 if planes == 2 else np.float32
    scale = rng.choice([1 / spread, 1.0, spread], (5, k)) if planes == 3 else 1
    a = (rng.standard_normal((5, k)) * scale).astype(kind)
    b = rng.standard_normal((k, 20)).astype(kind)
    got = dot_tiles(isa, a, b, planes=(planes, planes))[:, :20]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    steps = 17 + len(terms(planes, planes)) * ((k + 31) // 32)
    assert (np.abs(got - exact) <= size * (steps + 1) * 2.0**-24).all()


@pytest.mark.parametrize("planes", [1, 2, 3])
def test_infinities_stay_in_their_rows_and_columns(planes: int) -> None:
    """Zeros that fill up tiles meet no NaN, and products of infinities are those of floats; in
    tiles of all shapes, and where sums go onto others."""
    rng, isa = np.random.default_rng(2), isas.detect("amx")
    kind = {1: BF16, 2: np.float16, 3: np.float32}[planes]
    for m, n, k in ((19, 21, 37), (70, 50, 600), (33, 17, 32)):
        a, b = values(rng, kind, planes, m, k), values(rng, kind, planes, k, n)
        a[3, k - 1], a[5, 0], b[k - 1, 5], a[7, 2], b[1, 16] = np.inf, -np.inf, np.nan, 0, np.inf
        a[9, 1] = 0  # times infinity: NaN
        c = rng.standard_normal((m, up16(n)), dtype=np.float32)
        clean_a = np.where(np.isfinite(a), a, 0).astype(kind)
        clean_b = np.where(np.isfinite(b), b, 0).astype(kind)
        for onto in (None, c):
            got = dot_tiles(isa, a, b, onto, (planes, planes))[:, :n]
            with np.errstate(invalid="ignore"):
                want = a.astype(np.float64) @ b.astype(np.float64)
            bad = ~np.isfinite(want)
            assert np.array_equal(np.where(bad, want, 0), np.where(bad, got, 0), equal_nan=True)
            clean = dot_tiles(isa, clean_a, clean_b, onto, (planes, planes))[:, :n]
            assert np.array_equal(got[~bad], clean[~bad])


def test_denormals_count_as_zeros() -> None:
    isa = isas.detect("amx")
    a = np.full((2, 32), 2.0**-70, BF16)
    a[1] = 2.0**-130
    b = np.full((32, 2), 2.0**-60, BF16)
    b[:, 1] = 2.0**100
    got = dot_tiles(isa, a, b)[:, :2]
    assert got[0, 0] == 0 and got[0, 1] == 32 * 2.0**30 and not got[1].any()


def test_small_f16_are_exact() -> None:
    """Denormal f16 are normal bf16."""
    isa = isas.detect("amx")
    a = np.arange(1, 65, dtype=np.uint16).view(np.float16)[None]
    got = dot_tiles(isa, a, np.ones((64, 1), np.float16), planes=(2, 2))[0, 0]
    assert got == a.astype(np.float64).sum()


@pytest.mark.parametrize("planes", [1, 2, 3])
def test_a_row_does_not_depend_on_its_neighbours(planes: int) -> None:
    rng, isa = np.random.default_rng(3), isas.detect("amx")
    kind = {1: BF16, 2: np.float16, 3: np.float32}[planes]
    a, b = values(rng, kind, planes, 50, 130), values(rng, kind, planes, 130, 40)
    a[20, 3] = np.inf  # a neighbour's infinity changes nothing
    whole = dot_tiles(isa, a, b, planes=(planes, planes))
    for first, last in ((0, 1), (17, 18), (3, 36), (40, 50)):
        got = dot_tiles(isa, a[first:last], b, planes=(planes, planes))
        assert np.array_equal(got, whole[first:last], equal_nan=True)


@pytest.mark.parametrize("k", [1, 2, 31, 64, 77])
def test_pairs_of_a_panel(k: int) -> None:
    """Panels of a weight matrix to pairs of k-rows, zeros up to whole steps."""
    rng, isa = np.random.default_rng(k), isas.detect("amx")
    w = normal(rng, 16, k)
    panel = layouts.pack_float(w)[0]
    out = aligned(((k + 31) // 32 * 16, 16, 2), np.uint16)
    out[:] = 0x7FC0  # NaN: what is not written shows
    call(isa, micro.pair_panel(), "ppi", panel, out, k)
    want = np.zeros(((k + 31) // 32 * 32, 16), np.uint16)
    want[:k] = w.T.view(np.uint16)
    assert np.array_equal(out, want.reshape(-1, 2, 16).transpose(0, 2, 1))
