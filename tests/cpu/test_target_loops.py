"""Loops, carried values, phases and scalar arguments: CPU against reference, bit for bit."""

# pyright: reportAttributeAccessIssue=false, reportInvalidTypeForm=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import twin
from hypothesis import given, settings
from hypothesis import strategies as st

import terrazzo.lang as tz

rows, cols, n, m, k, steps, three, seqs, tokens = tz.dims("rows cols n m k steps three seqs tokens")
F = tz.dtypes("F", tz.f32, tz.f16, tz.bf16)
S = tz.dtypes("S", tz.f32, tz.f16, tz.bf16, tz.i32, tz.u32, tz.i8, tz.u8)
EXTENTS = [*range(1, 20), 31, 33, 48, 64, 65, 129, 300]
extents, small_, seeds = st.sampled_from(EXTENTS), st.integers(1, 9), st.integers(0, 2**32 - 1)
threads_ = st.integers(1, 4)


def cases(**strategies: Any) -> Any:
    return lambda test: settings(max_examples=20, deadline=None)(given(**strategies)(test))


def numbers(rng: np.random.Generator, shape: Any, dtype: str = "f32") -> np.ndarray:
    return rng.integers(0, 5, shape).astype(twin.NUMPY[dtype])


@tz.kernel
def carried_tiles(x: tz.gm[tz.f32, rows, k, cols], total: tz.gm[tz.f32, rows, cols],
                  before: tz.gm[tz.f32, rows, cols], weighted: tz.gm[tz.f32, rows, cols],
                  norm: tz.gm[tz.f32, rows], R: tz.const = 3):  # fmt: skip
    """A sum, the value before the last, one that reads the other's new value, one of fewer axes."""
    for r in tz.grid(rows, step=R):
        acc, last, mix = tz.zeros(r, cols), tz.full(7.0, r, cols), tz.zeros(r, cols)
        top = tz.full(-1.0, r)
        for p in tz.loop(k):
            t = tz.load(x[r, p])
            last = acc
            acc = acc + t
            mix = mix * 0.5 + acc * top
            top = tz.maximum(top, tz.max(t, axis=cols))
        total[r], before[r], weighted[r], norm[r] = acc, last, mix, top


@cases(a=small_, b=extents, p=st.integers(0, 5), seed=seeds, threads=threads_)
def test_carried_tiles(a: int, b: int, p: int, seed: int, threads: int) -> None:
    """k = 0 leaves what was there before the loop. Sums and halves of small numbers are exact."""
    rng = np.random.default_rng(seed)
    outs: dict[str, Any] = {q: twin.empty((a, b)) for q in ("total", "before", "weighted")}
    twin.same(carried_tiles, threads, x=numbers(rng, (a, p, b)), norm=twin.empty(a), **outs)


@tz.kernel
def swaps(x: tz.gm[tz.f32, rows, cols], y: tz.gm[tz.f32, rows, cols],
          out: tz.gm[tz.f32, three, rows, cols], nums: tz.gm[tz.i32, rows, three],
          count: tz.i32):  # fmt: skip
    """Tiles and scalars that change places every trip."""
    for r in tz.grid(rows, step=2):
        a, b, c = tz.load(x[r]), tz.load(y[r]), tz.zeros(r, cols)
        for _ in tz.loop(count):
            a, b, c = b, c + 1.0, a
        out[0, r], out[1, r], out[2, r] = a, b, c
    for r in tz.grid(rows):
        u, v, w = tz.full(1, dtype=tz.i32), r * 2, tz.full(3, dtype=tz.i32)
        for i in tz.loop(count):
            u, v, w = v, w + i, u
        nums[r, 0], nums[r, 1], nums[r, 2] = u, v, w


@cases(a=small_, b=extents, count=st.integers(0, 7), seed=seeds, threads=threads_)
def test_swaps(a: int, b: int, count: int, seed: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    twin.same(swaps, threads, x=numbers(rng, (a, b)), y=numbers(rng, (a, b)), count=count,
              out=twin.empty((3, a, b)), nums=twin.empty((a, 3), "i32"))  # fmt: skip


@tz.kernel
def nested(x: tz.gm[tz.f32, n, m, cols], out: tz.gm[tz.f32, cols], pairs: tz.gm[tz.i32, n],
           tri: tz.gm[tz.f32, n, cols]):  # fmt: skip
    """A carried tile through two loops; inner bounds that depend on the outer variable."""
    for c in tz.grid(cols, step=32):
        acc = tz.zeros(c)
        for i in tz.loop(n):
            part = tz.zeros(c)
            for j in tz.loop(m):
                part = part + x[i, j, c]
                acc = acc + part
        out[c] = acc
    for i in tz.grid(n):
        count, acc = tz.full(0, dtype=tz.i32), tz.zeros(cols)
        for j in tz.loop(i, m):
            acc = acc + x[i, j]
            for h in tz.loop(j, m):
                count = count + h * 10 + 1
        pairs[i] = count
        tri[i] = acc


@cases(a=st.integers(1, 5), b=st.integers(0, 5), c=extents, seed=seeds, threads=threads_)
def test_nested_loops(a: int, b: int, c: int, seed: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    twin.same(nested, threads, x=numbers(rng, (a, b, c)), out=twin.empty(c),
              pairs=twin.empty(a, "i32"), tri=twin.empty((a, c)))  # fmt: skip


@tz.kernel
def ragged(x: tz.gm[tz.f32, tokens, cols], first: tz.gm[tz.i32, seqs], last: tz.gm[tz.i32, seqs],
           total: tz.gm[tz.f32, seqs, cols], out: tz.gm[tz.f32, tokens, cols],
           top: tz.gm[tz.f32, seqs], STEP: tz.const = 4):  # fmt: skip
    """Bounds that were loaded: blocks of each sequence's own rows, some empty."""
    for s in tz.grid(seqs):
        acc, best = tz.zeros(cols), tz.full(-1.0)
        for i in tz.loop(first[s], last[s], of=tokens, step=STEP):
            t = tz.load(x[i])
            out[i] = t * tz.extent(i).to(tz.f32) + tz.start(i).to(tz.f32)
            acc = acc + tz.sum(t, axis=i)
            best = tz.maximum(best, tz.max(tz.max(t, axis=cols), axis=i))
        total[s], top[s] = acc, best


@cases(lengths=st.lists(st.integers(0, 11), min_size=1, max_size=9), b=extents, seed=seeds,
       threads=threads_)  # fmt: skip
def test_ragged_blocks(lengths: list[int], b: int, seed: int, threads: int) -> None:
    rng = np.random.default_rng(seed)
    ends = np.cumsum(lengths).astype(np.int32)
    size, count = int(ends[-1]), len(lengths)
    twin.same(ragged, threads, x=numbers(rng, (size, b)), first=(ends - lengths).astype(np.int32),
              last=ends, total=twin.empty((count, b)), out=twin.empty((size, b)),
              top=twin.empty(count))  # fmt: skip


@tz.kernel
def phases(x: tz.gm[tz.f32, rows, cols], mid: tz.gm[tz.f32, rows, cols], sums: tz.gm[tz.f32, rows],
           out: tz.gm[tz.f32, rows, cols], grand: tz.gm[tz.f32, three]):  # fmt: skip
    """Each phase reads what all blocks of the one before wrote."""
    for r in tz.grid(rows, step=2):
        mid[r] = tz.load(x[r]) + 1.0
    for r in tz.grid(rows):
        sums[r] = tz.sum(mid[r], axis=cols)
    for r, c in tz.grid(rows, cols, step=(3, 32)):
        out[r, c] = mid[rows - 1 - tz.index(r), c] + sums[r]
    for _ in tz.grid(1):
        total = tz.sum(tz.load(sums), axis=rows)
        grand[0], grand[1], grand[2] = total, tz.max(tz.load(sums), axis=rows), total * 2.0


@cases(a=small_, b=extents, seed=seeds, threads=st.integers(1, 6))
def test_phases(a: int, b: int, seed: int, threads: int) -> None:
    """Up to 6 threads for as few as one block."""
    rng = np.random.default_rng(seed)
    twin.same(phases, threads, x=numbers(rng, (a, b)), mid=twin.empty((a, b)), sums=twin.empty(a),
              out=twin.empty((a, b)), grand=twin.empty(3))  # fmt: skip


@tz.kernel
def alone(
    x: tz.gm[tz.f32, rows, cols], out: tz.gm[tz.f32, rows], low: tz.gm[tz.i32, three], s: tz.i32
):
    """A grid of one block."""
    for _ in tz.grid(1):
        out[:] = tz.sum(x[:, :], axis=cols)
        best = tz.full(0, dtype=tz.i32)
        for i in tz.loop(s):
            best = best + i
        low[0], low[1], low[2] = best, rows, s


@cases(a=small_, b=extents, s=st.integers(0, 4), seed=seeds, threads=threads_)
def test_one_block(a: int, b: int, s: int, seed: int, threads: int) -> None:
    x = numbers(np.random.default_rng(seed), (a, b))
    twin.same(alone, threads, x=x, out=twin.empty(a), low=twin.empty(3, "i32"), s=s)


@tz.kernel
def scalars(x: tz.gm[S, n], out: tz.gm[S, n], one: tz.gm[S, three], s: S, f: tz.f32, i: tz.i32,
            u: tz.u32, floats: tz.gm[tz.f32, n], ints: tz.gm[tz.i32, n],
            words: tz.gm[tz.u32, n]):  # fmt: skip
    for b in tz.grid(n, step=64):
        out[b] = x[b] + s
        floats[b] = x[b].to(tz.f32) * f
        ints[b] = tz.index(b) * i
        words[b] = tz.index(b).to(tz.u32) ^ u
    for _ in tz.grid(1):
        one[0], one[1], one[2] = s, s + s, tz.maximum(s, x[0])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "u32", "i8", "u8"])
@cases(a=extents, i=st.integers(-(2**31), 2**31 - 1), u=st.integers(0, 2**32 - 1), seed=seeds)
def test_scalar_arguments(dtype: str, a: int, i: int, u: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    twin.same(scalars, x=numbers(rng, a, dtype), out=twin.empty(a, dtype), s=3, f=1.5, i=i, u=u,
              one=twin.empty(3, dtype), floats=twin.empty(a), ints=twin.empty(a, "i32"),
              words=twin.empty(a, "u32"))  # fmt: skip


@tz.kernel
def carried_scalars(
    x: tz.gm[S, n, k], out: tz.gm[S, n], last: tz.gm[S, n], where: tz.gm[tz.i32, n]
):
    """Carried scalars of every type; a flag; the place of the largest."""
    for r in tz.grid(n):
        best, old, at = tz.load(x[r, 0]), tz.load(x[r, 0]), tz.full(0, dtype=tz.i32)
        for j in tz.loop(1, k):
            t = tz.load(x[r, j])
            old = best
            at = tz.where(t > best, j, at)
            best = tz.maximum(best, t)
        out[r], last[r], where[r] = best, old, at


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "u32", "i8", "u8"])
@cases(a=small_, b=st.integers(1, 9), seed=seeds, threads=threads_)
def test_carried_scalars(dtype: str, a: int, b: int, seed: int, threads: int) -> None:
    x = numbers(np.random.default_rng(seed), (a, b), dtype)
    twin.same(carried_scalars, threads, x=x, out=twin.empty(a, dtype), last=twin.empty(a, dtype),
              where=twin.empty(a, "i32"))  # fmt: skip


@tz.kernel
def carried_types(
    x: tz.gm[S, rows, k, cols], out: tz.gm[S, rows, cols], flag: tz.gm[tz.bool_, rows, cols]
):
    """Carried tiles of every type, bool among them."""
    for r in tz.grid(rows, step=2):
        best, seen = tz.load(x[r, 0]), tz.load(x[r, 0]) > 3
        for j in tz.loop(k):
            t = tz.load(x[r, j])
            best, seen = tz.maximum(best, t), seen | (t > 3)
        out[r], flag[r] = best, seen


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "u32", "i8", "u8"])
@cases(a=small_, b=extents, p=st.integers(1, 4), seed=seeds)
def test_carried_tiles_of_every_type(dtype: str, a: int, b: int, p: int, seed: int) -> None:
    x = numbers(np.random.default_rng(seed), (a, p, b), dtype)
    twin.same(carried_types, x=x, out=twin.empty((a, b), dtype), flag=twin.empty((a, b), "bool"))
