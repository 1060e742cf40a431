"""Tiles of several axes: reductions, broadcasting by name, transposes. CPU against reference.

Sums are of whole numbers, whose f32 sums are exact in any order, so results are equal bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import twin
from hypothesis import given, settings
from hypothesis import strategies as st

import terrazzo.lang as tz

rows, cols, deep, planes = tz.dims("rows cols deep planes")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16, tz.i32, tz.u32, tz.i8, tz.u8)
S = tz.dtypes("S", tz.f32, tz.i32, tz.u32)

EXTENTS = [*range(1, 20), 31, 32, 33, 47, 48, 63, 64, 65, 127, 128, 129, 1000]
SUM = {
    "f32": "f32",
    "f16": "f32",
    "bf16": "f32",
    "i32": "i32",
    "u32": "u32",
    "i8": "i32",
    "u8": "i32",
}
seeds, threads_ = st.integers(0, 2**32 - 1), st.integers(1, 4)


def cases(**strategies: Any) -> Any:
    return lambda test: settings(max_examples=20, deadline=None)(given(**strategies)(test))


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Whole numbers -9..9 (0..9 unsigned): many ties, exact sums."""
    return rng.integers(0 if dtype[0] == "u" else -9, 10, shape).astype(twin.NUMPY[dtype])


@tz.kernel
def along_columns(x: tz.gm[T, rows, cols], total: tz.gm[S, rows], top: tz.gm[T, rows],
                  low: tz.gm[T, rows], at: tz.gm[tz.i32, rows], ROWS: tz.const = 4):  # fmt: skip
    for r in tz.grid(rows, step=ROWS):
        t = tz.load(x[r])
        total[r], top[r] = tz.sum(t, axis=cols), tz.max(t, axis=cols)
        low[r], at[r] = tz.min(t, axis=cols), tz.argmax(t, axis=cols)


@tz.kernel
def along_rows(x: tz.gm[T, rows, cols], total: tz.gm[S, cols], top: tz.gm[T, cols],
               low: tz.gm[T, cols], at: tz.gm[tz.i32, cols], COLS: tz.const = 48):  # fmt: skip
    for c in tz.grid(cols, step=COLS):
        t = tz.load(x[:, c])
        total[c], top[c] = tz.sum(t, axis=rows), tz.max(t, axis=rows)
        low[c], at[c] = tz.min(t, axis=rows), tz.argmax(t, axis=rows)


@pytest.mark.parametrize("dtype", SUM)
@pytest.mark.parametrize("kernel", [along_columns, along_rows], ids=lambda k: k.name)
@cases(n=st.sampled_from(EXTENTS), m=st.integers(1, 9), seed=seeds, threads=threads_)
def test_reductions(kernel: tz.Kernel, dtype: str, n: int, m: int, seed: int, threads: int) -> None:
    shape = (m, n) if kernel is along_columns else (n, m)
    x = small(np.random.default_rng(seed), shape, dtype)
    twin.same(kernel, threads, x=x, total=twin.empty(m, SUM[dtype]), top=twin.empty(m, dtype),
              low=twin.empty(m, dtype), at=twin.empty(m, "i32"))  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("kernel", [along_columns, along_rows], ids=lambda k: k.name)
@cases(n=st.sampled_from(EXTENTS), seed=seeds)
def test_nan_wins(kernel: tz.Kernel, dtype: str, n: int, seed: int) -> None:
    """max and min of a row with a NaN are NaN; argmax is the place of its first NaN."""
    rng = np.random.default_rng(seed)
    x = small(rng, (5, n), dtype)
    for r, count in enumerate((0, 1, 2, n, n // 2)):
        x[r, rng.integers(0, n, count)] = rng.choice([np.nan, np.inf, -np.inf])
    shape = x if kernel is along_columns else np.ascontiguousarray(x.T)
    twin.same(kernel, x=shape, total=twin.empty(5), top=twin.empty(5, dtype),
              low=twin.empty(5, dtype), at=twin.empty(5, "i32"))  # fmt: skip


@tz.kernel
def extremes(x: tz.gm[T, rows, cols], top: tz.gm[T, rows], low: tz.gm[T, rows]):
    for r in tz.grid(rows):
        top[r], low[r] = tz.max(x[r], axis=cols), tz.min(x[r], axis=cols)


@pytest.mark.parametrize("dtype", SUM)
def test_reduction_over_nothing(dtype: str) -> None:
    """The type's lowest and highest number (or infinity)."""
    twin.same(
        extremes, x=twin.empty((3, 0), dtype), top=twin.empty(3, dtype), low=twin.empty(3, dtype)
    )


@tz.kernel
def rank3(
    x: tz.gm[tz.f32, planes, rows, cols],
    inner: tz.gm[tz.f32, planes, rows],
    middle: tz.gm[tz.f32, planes, cols],
    outer: tz.gm[tz.f32, rows, cols],
    both: tz.gm[tz.f32, planes],
    last: tz.gm[tz.i32, planes, cols],
    P: tz.const = 3,
):
    for p in tz.grid(planes, step=P):
        t = tz.load(x[p])
        inner[p] = tz.sum(t, axis=cols)
        middle[p] = tz.sum(t, axis=rows)
        both[p] = tz.sum(tz.sum(t, axis=cols), axis=rows)
        last[p] = tz.argmax(t, axis=rows)
    for r in tz.grid(rows, step=2):
        outer[r] = tz.sum(x[:, r], axis=planes)


@cases(p=st.integers(1, 8), m=st.integers(1, 7), n=st.sampled_from(EXTENTS[:30]), seed=seeds,
       threads=threads_)  # fmt: skip
def test_rank_3(p: int, m: int, n: int, seed: int, threads: int) -> None:
    x = small(np.random.default_rng(seed), (p, m, n), "f32")
    twin.same(
        rank3,
        threads,
        x=x,
        inner=twin.empty((p, m)),
        middle=twin.empty((p, n)),
        outer=twin.empty((m, n)),
        both=twin.empty(p),
        last=twin.empty((p, n), "i32"),
    )


@tz.kernel
def broadcasts(a: tz.gm[tz.f32, rows], b: tz.gm[tz.f32, cols], x: tz.gm[tz.f32, rows, cols],
               total: tz.gm[tz.f32, rows, cols], turned: tz.gm[tz.f32, cols, rows],
               filled: tz.gm[tz.f32, rows, cols], weighted: tz.gm[tz.f32, rows],
               cube: tz.gm[tz.f32, rows, cols, deep], c: tz.gm[tz.f32, deep], s: tz.f32,
               R: tz.const = 5, C: tz.const = 32):  # fmt: skip
    for i, j in tz.grid(rows, cols, step=(R, C)):
        p, q = tz.load(a[i]), tz.load(b[j])
        total[i, j] = p + q * s
        turned[j, i] = q * p - x[i, j]
        filled[i, j] = p
        cube[i, j] = p * q * c[:] + x[i, j]
    for i in tz.grid(rows, step=R):
        weighted[i] = tz.sum(a[i] * x[i] * tz.load(b), axis=cols) + s


@cases(m=st.integers(1, 20), n=st.sampled_from(EXTENTS[:30]), k=st.integers(1, 20), seed=seeds,
       threads=threads_)  # fmt: skip
def test_broadcasting(m: int, n: int, k: int, seed: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    twin.same(broadcasts, threads, a=small(rng, (m,), "f32"), b=small(rng, (n,), "f32"),
              x=small(rng, (m, n), "f32"), total=twin.empty((m, n)), turned=twin.empty((n, m)),
              filled=twin.empty((m, n)), weighted=twin.empty(m), cube=twin.empty((m, n, k)),
              c=small(rng, (k,), "f32"), s=3.0)  # fmt: skip


@tz.kernel
def three_levels(x: tz.gm[tz.f32, rows, cols], y: tz.gm[tz.f32, rows, cols],
                 score: tz.gm[tz.f32, rows], R: tz.const = 4):  # fmt: skip
    """A reduction of a reduction's elementwise result, twice, and a row scalar made of all."""
    for r in tz.grid(rows, step=R):
        t = tz.load(x[r])
        e = tz.exp(t - tz.max(t, axis=cols))
        total = tz.sum(e, axis=cols)
        centred = e / total - tz.mean(e / total, axis=cols)
        spread = tz.sum(centred * centred, axis=cols)
        y[r] = centred * tz.rsqrt(spread + 1e-3)
        score[r] = tz.log(total) + spread


@tz.kernel
def normal_columns(x: tz.gm[tz.f32, rows, cols], y: tz.gm[tz.f32, rows, cols], C: tz.const = 40):
    """Columns by their own mean and variance: reductions over the outer axis."""
    for c in tz.grid(cols, step=C):
        t = tz.load(x[:, c])
        d = t - tz.mean(t, axis=rows)
        y[:, c] = d * tz.rsqrt(tz.mean(d * d, axis=rows) + 1e-3)


@cases(m=st.integers(1, 9), n=st.sampled_from(EXTENTS), seed=seeds, threads=threads_)
def test_chains_of_reductions(m: int, n: int, seed: int, threads: int) -> None:
    """f32 sums of n terms: n · 2^-24 relative to the sum of magnitudes, which are of order 1
    here."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, n)).astype(np.float32)
    slack = (n + 16) * 2.0**-22
    twin.close(three_levels, slack, threads, x=x, y=twin.empty((m, n)), score=twin.empty(m))
    twin.close(normal_columns, slack, threads, x=x.T.copy(), y=twin.empty((n, m)))
