"""Attention against a float64 softmax over the whole context, and its invariance to grouping."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import NUMPY, UNIT, Target, assert_close, empty

from terrazzo.kernels import attention

PAGE = 16


def oracle(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, position: np.ndarray, scale: float
) -> np.ndarray:
    """q [n, d] at `position`s, k and v [context, d] -> [n, d], in float64."""
    x = scale * (q.astype(np.float64) @ k.astype(np.float64).T)
    x = np.where(np.arange(len(k)) <= position[:, None], x, -np.inf)
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v.astype(np.float64)


def slack(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> float:
    """A score's f32 error e moves its weight by e; the result is a mean of values."""
    qk = (
        scale
        * np.abs(q.astype(np.float64)).sum(-1).max(initial=0)
        * np.abs(k.astype(np.float64)).max(initial=0)
    )
    return float(
        (4 * q.shape[-1] * qk + 600) * UNIT["f32"] * np.abs(v.astype(np.float64)).max(initial=0)
    )


@dataclass
class Batch:
    """Sequences of (context before, new queries) in a shuffled paged cache."""

    args: dict[str, np.ndarray]
    k: list[np.ndarray]
    v: list[np.ndarray]


def make(seed: int, lengths: list[tuple[int, int]], kvheads: int, group: int, d: int, cache: str,
         shuffle: bool = True) -> Batch:  # fmt: skip
    rng = np.random.default_rng(seed)
    totals = [before + new for before, new in lengths]
    blocks = max(-(-t // PAGE) for t in totals)
    pages = sum(-(-t // PAGE) for t in totals)
    free = rng.permutation(pages) if shuffle else np.arange(pages)
    kcache, vcache = (
        empty((pages, kvheads, d, PAGE), cache),
        empty((pages, kvheads, PAGE, d), cache),
    )
    table, ks, vs, used = np.zeros((len(lengths), blocks), np.int32), [], [], 0
    for i, total in enumerate(totals):
        own = free[used : (used := used + -(-total // PAGE))]
        table[i, : len(own)] = own
        each = np.random.default_rng(
            [seed, total]
        )  # a sequence's content depends on its length alone
        k, v = (each.standard_normal((total, kvheads, d)).astype(NUMPY[cache]) for _ in "kv")
        at = np.arange(total)
        kcache[own[at // PAGE], :, :, at % PAGE] = k
        vcache[own[at // PAGE], :, at % PAGE] = v
        ks.append(k)
        vs.append(v)
    counts = np.array([new for _, new in lengths], np.int32)
    queries = []
    for total, n in zip(totals, counts, strict=True):
        each = np.random.default_rng([seed, total, 1])
        queries.append(each.standard_normal((total, kvheads, group, d))[total - n :])
    q = np.concatenate(queries).astype(np.float32)
    args = {
        "q": q, "kcache": kcache, "vcache": vcache, "table": table,
        "seq": np.arange(len(lengths), dtype=np.int32), "count": counts,
        "first": np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32),
        "position": np.array([before for before, _ in lengths], np.int32), "out": empty(q.shape),
    }  # fmt: skip
    return Batch(args, ks, vs)


def check(b: Batch, scale: float) -> None:
    a = b.args
    for i, (k, v) in enumerate(zip(b.k, b.v, strict=True)):
        rows = slice(a["first"][i], a["first"][i] + a["count"][i])
        position = a["position"][i] + np.arange(a["count"][i])
        for h in range(k.shape[1]):
            for g in range(a["q"].shape[2]):
                q = a["q"][rows, h, g]
                assert_close(a["out"][rows, h, g], oracle(q, k[:, h], v[:, h], position, scale),
                             slack(q, k[:, h], v[:, h], scale))  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=4),
    kvheads=st.integers(1, 3), group=st.integers(1, 3), d=st.sampled_from([16, 64]),
    cache=st.sampled_from(["f16", "f32", "bf16"]), bq=st.sampled_from([1, 7, 32]),
)  # fmt: skip
def test_ragged_batches(
    target: Target,
    lengths: list[tuple[int, int]],
    kvheads: int,
    group: int,
    d: int,
    cache: str,
    bq: int,
) -> None:
    b = make(1, lengths, kvheads, group, d, cache)
    target(attention.attention, **b.args, scale=d**-0.5, BQ=bq)
    check(b, d**-0.5)


@pytest.mark.parametrize("context", [1, 15, 16, 17, 255, 256, 257, 511, 513, 800])
def test_decode_at_block_edges(target: Target, context: int) -> None:
    b = make(2, [(context - 1, 1)], 1, 3, 16, "f16")
    target(attention.attention, **b.args, scale=0.25, BQ=1)
    check(b, 0.25)


def test_large_scores_do_not_overflow(target: Target) -> None:
    b = make(3, [(280, 20)], 1, 1, 16, "f32")
    b.args["q"] *= 100
    target(attention.attention, **b.args, scale=1.0)
    assert np.isfinite(b.args["out"]).all()
    check(b, 1.0)


def test_spans_cut_anywhere_and_pages_anywhere_give_the_same(target: Target) -> None:
    """One span, many spans, decode one by one, contiguous and shuffled pages: equal rows.

    Bitwise on a target that keeps a row's order of sums; the reference sums in float64, so equal
    too but for the rare result next to a tie.
    """
    whole = make(4, [(0, 300)], 2, 2, 16, "f16", shuffle=False)
    target(attention.attention, **whole.args, scale=0.25)
    starts = np.array([0, 1, 17, 100, 256, 299], np.int32)
    cut = make(4, [(0, 300)], 2, 2, 16, "f16")
    counts = np.diff(np.append(starts, 300)).astype(np.int32)
    cut.args |= {"seq": np.zeros(6, np.int32), "first": starts, "position": starts, "count": counts}
    target(attention.attention, **cut.args, scale=0.25, BQ=16)
    assert np.allclose(cut.args["out"], whole.args["out"], rtol=0, atol=2 * UNIT["f32"] * 4)
    single = make(4, [(299, 1)], 2, 2, 16, "f16")
    target(attention.attention, **single.args, scale=0.25, BQ=1)
    assert np.allclose(
        single.args["out"][0], whole.args["out"][-1], rtol=0, atol=2 * UNIT["f32"] * 4
    )


@settings(max_examples=12, deadline=None)
@given(
    s=st.integers(1, 70),
    before=st.integers(0, 300),
    kvheads=st.integers(1, 2),
    group=st.integers(1, 3),
    dtype=st.sampled_from(["f32", "f16"]),
)
def test_plain_flash(
    target: Target, s: int, before: int, kvheads: int, group: int, dtype: str
) -> None:
    rng = np.random.default_rng(s)
    t, d = s + before, 16
    q = rng.standard_normal((kvheads * group, s, d)).astype(NUMPY[dtype])
    k, v = (rng.standard_normal((kvheads, t, d)).astype(NUMPY[dtype]) for _ in "kv")
    out = empty(q.shape, dtype)
    target(attention.flash_attention, q=q, k=k, v=v, out=out, scale=0.25, BQ=16)
    for h in range(kvheads * group):
        kh, vh = k[h // group], v[h // group]
        exact = oracle(q[h], kh, vh, before + np.arange(s), 0.25)
        assert_close(out[h], exact, slack(q[h], kh, vh, 0.25))


def rounding(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> float:
    """What rounding the weights to the values' type adds to `slack`: a unit of the largest value,
    as weights are rounded relative to themselves and sum to one."""
    unit = max(UNIT[name] for name, dtype in NUMPY.items() if v.dtype == dtype)
    return slack(q, k, v, scale) + 1.01 * unit * float(np.abs(v.astype(np.float64)).max(initial=0))


@settings(max_examples=12, deadline=None)
@given(
    s=st.integers(1, 70),
    before=st.integers(0, 300),
    group=st.integers(1, 3),
    dtype=st.sampled_from(["f32", "f16", "bf16"]),
)
def test_flash_with_products_as_the_cube_takes_them(
    target: Target, s: int, before: int, group: int, dtype: str
) -> None:
    rng = np.random.default_rng(s)
    t, d = s + before, 16
    q = rng.standard_normal((group, s, d)).astype(NUMPY[dtype])
    k, v = (rng.standard_normal((1, t, d)).astype(NUMPY[dtype]) for _ in "kv")
    out = empty(q.shape)
    target(attention.flash_attention, q=q, k=k, v=v, out=out, scale=0.25, BQ=16, NARROW=True)
    for h in range(group):
        exact = oracle(q[h], k[0], v[0], before + np.arange(s), 0.25)
        assert_close(out[h], exact, rounding(q[h], k[0], v[0], 0.25))


@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 600), min_size=1, max_size=3),
    kvheads=st.integers(1, 2),
    group=st.integers(1, 4),
    dtype=st.sampled_from(["f32", "f16", "bf16"]),
    narrow=st.booleans(),
)
def test_decode_on_plain_caches(
    target: Target, lengths: list[int], kvheads: int, group: int, dtype: str, narrow: bool
) -> None:
    """What lies beyond a sequence's length is NaN and must not be seen."""
    rng = np.random.default_rng(sum(lengths))
    seqs, ctx, d = len(lengths), 600, 16
    q = rng.standard_normal((seqs, kvheads, group, d)).astype(NUMPY[dtype])
    k, v = (rng.standard_normal((seqs, kvheads, ctx, d)).astype(NUMPY[dtype]) for _ in "kv")
    for b, length in enumerate(lengths):
        k[b, :, length:] = v[b, :, length:] = np.nan
    out, size = empty(q.shape), np.array(lengths, np.int32)
    args = {"q": q, "k": k, "v": v, "length": size, "out": out}
    target(attention.decode_attention, **args, scale=0.25, NARROW=narrow)
    for b, length in enumerate(lengths):
        for h in range(kvheads):
            kh, vh = k[b, h, :length], v[b, h, :length]
            exact = oracle(q[b, h], kh, vh, np.full(group, length), 0.25)
            bound = (rounding if narrow else slack)(q[b, h], kh, vh, 0.25)
            assert_close(out[b, h], exact, bound)


def test_decode_equals_the_last_row_of_a_prompt(target: Target) -> None:
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal((2, 300, 16)).astype(np.float16) for _ in "qkv")
    whole, last = empty(q.shape), empty((1, 2, 1, 16))
    target(attention.flash_attention, q=q, k=k, v=v, out=whole, scale=0.25)
    args = {"q": q[None, :, -1:], "k": k[None], "v": v[None], "length": np.array([300], np.int32)}
    target(attention.decode_attention, **args, out=last, scale=0.25)
    assert np.allclose(last[0, :, 0], whole[:, -1], rtol=0, atol=8 * UNIT["f32"])
