"""Sampling against oracles that sort, and the distribution of draws by chi-square."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import NUMPY, UNIT, Target, assert_close, empty

from terrazzo.kernels import sampling


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(0, 9), dim=st.integers(1, 70), dtype=st.sampled_from(["f32", "f16", "bf16"])
)
def test_softmax(target: Target, rows: int, dim: int, dtype: str) -> None:
    x = (np.random.default_rng(dim).standard_normal((rows, dim)) * 5).astype(NUMPY[dtype])
    out = empty(x.shape, dtype)
    target(sampling.softmax, x=x, out=out, scale=0.5)
    e = np.exp(0.5 * (x.astype(np.float64) - x.astype(np.float64).max(-1, keepdims=True)))
    exact = e / e.sum(-1, keepdims=True)
    # The exponent's error, u · |x|, is the result's relative error.
    assert_close(out, exact, exact * (dim + 40) * UNIT["f32"])


def test_softmax_limits(target: Target) -> None:
    x = np.array([[1e38, -1e38, 0.0], [-np.inf, 0.0, -np.inf], [3e38, 3e38, -np.inf]], np.float32)
    out = empty(x.shape)
    target(sampling.softmax, x=x, out=out, scale=1.0)
    assert np.array_equal(out, np.array([[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0]], np.float32))


@settings(max_examples=20, deadline=None)
@given(
    seqs=st.integers(1, 4), vocab=st.sampled_from([1, 15, 300, 4096, 5000]), seed=st.integers(0, 99)
)
def test_argmax_is_the_first_of_equals(target: Target, seqs: int, vocab: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-5, 5, (seqs, vocab)).astype(np.float32)
    out = np.full(seqs, 77, np.int32)
    target(sampling.argmax, logits=x, out=out)
    assert np.array_equal(out, x.argmax(-1))


def test_repeat_penalty(target: Target) -> None:
    x = np.random.default_rng(0).standard_normal((3, 200)).astype(np.float32)
    want = x.copy()
    ids = np.stack([np.random.default_rng(i).permutation(200)[:100] for i in range(3)]).astype(
        np.int32
    )
    count, penalty = np.array([0, 100, 7], np.int32), np.array([1.5, 1.3, 1.0], np.float32)
    for row in range(3):
        for token in ids[row, : count[row]]:
            v = want[row, token]
            want[row, token] = v / penalty[row] if v > 0 else v * penalty[row]
    target(sampling.repeat_penalty, logits=x, ids=ids, count=count, penalty=penalty)
    assert np.array_equal(x, want)


def kept(logits: np.ndarray, t: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Tokens that may be drawn, by sorting; `weights` are f32 as the contract has them."""
    if t <= 1e-6:
        return np.arange(len(logits)) == logits.argmax()
    keep = np.ones(len(logits), bool)
    if 0 < top_k < len(logits):
        keep &= logits >= np.sort(logits)[::-1][top_k - 1]
    w = np.where(keep, np.exp((logits - logits.max()).astype(np.float64) / t), 0)
    if top_p < 1:
        order = np.sort(w)[::-1]
        enough = np.flatnonzero(np.cumsum(order) >= top_p * w.sum() * (1 - 1e-12))[0]
        keep &= w >= order[enough]
    return keep & (w >= max(min_p, 2.0**-126))


def launch_candidates(target: Target, logits: np.ndarray, settings_: list[tuple]) -> np.ndarray:
    t, k, p, m = (np.array(c) for c in zip(*settings_, strict=True))
    weight = empty(logits.shape)
    target(
        sampling.candidates,
        logits=logits,
        temperature=t.astype(np.float32),
        top_k=k.astype(np.int32),
        top_p=p.astype(np.float32),
        min_p=m.astype(np.float32),
        weight=weight,
        BLOCK=512,
    )
    return weight


knobs = st.tuples(
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.sampled_from([0, 1, 2, 40, 10**6]),
    st.sampled_from([0.0, 0.1, 0.9, 0.95, 1.0]),
    st.sampled_from([0.0, 0.05, 0.5]),
)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(knobs, min_size=1, max_size=3),
    vocab=st.sampled_from([1, 2, 50, 700, 1500]),
    seed=st.integers(0, 999),
)
def test_candidates_equal_the_sorted_ones(
    target: Target, rows: list[tuple], vocab: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((len(rows), vocab)) * 3).astype(np.float32)
    weight = launch_candidates(target, logits, rows)
    for x, w, (t, k, p, m) in zip(logits, weight, rows, strict=True):
        keep = kept(x, t, k, p, m)
        exact = np.exp((x - x.max()).astype(np.float64) / max(t, 1e-6))
        # f32 exponents: relative error u · |exponent|; then a boundary of top-p or min-p may move
        # by that.
        near = np.abs(exact[keep].min() - exact) <= 1e-4 * exact[keep].min()
        assert np.array_equal((w > 0) | near, keep | near)
        assert np.allclose(
            w[w > 0], exact[w > 0], rtol=1e-5 + 2 * UNIT["f32"] * 40 / max(t, 0.3), atol=1e-44
        )


@pytest.mark.parametrize("top_k", [1, 2, 3, 4, 5, 7])
def test_top_k_keeps_ties(target: Target, top_k: int) -> None:
    """Equal logits, both zeros, negative numbers and infinities: the k-th largest decides."""
    x = np.array([[3, -np.inf, 1, 1, -0.0, 0.0, 1, -5, 3, -np.inf]], np.float32)
    weight = launch_candidates(target, x, [(1.0, top_k, 1.0, 0.0)])
    assert np.array_equal(weight[0] > 0, x[0] >= np.sort(x[0])[::-1][top_k - 1])


def test_top_k_is_exact_where_weights_round_alike(target: Target) -> None:
    x = np.array([[10.0, -200.0, -201.0, np.nextafter(np.float32(10), np.float32(0))]], np.float32)
    weight = launch_candidates(target, x, [(1.0, 1, 1.0, 0.0)])
    assert np.array_equal(weight[0] > 0, [True, False, False, False])


@pytest.mark.parametrize(
    ("top_p", "count"), [(0.0, 1), (0.49, 1), (0.5, 3), (0.51, 3), (0.99, 3), (1.0, 4)]
)
def test_top_p_with_ties(target: Target, top_p: float, count: int) -> None:
    """Weights 1, 1/2, 1/2 and a tiny one: the two halves are equal and stay or go together."""
    p = np.array([1.0, 0.5, 0.5, 2.0**-20])
    weight = launch_candidates(target, np.log(p).astype(np.float32)[None], [(1.0, 0, top_p, 0.0)])
    assert (weight[0] > 0).sum() == count


def test_rows_do_not_depend_on_the_batch(target: Target) -> None:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((5, 900)).astype(np.float32) * 3
    rows = [
        (1.0, 40, 0.9, 0.0),
        (0.0, 0, 1.0, 0.0),
        (0.7, 0, 0.5, 0.1),
        (1.0, 0, 1.0, 0.0),
        (2.0, 5, 1.0, 0.0),
    ]
    together = launch_candidates(target, logits, rows)
    for i, row in enumerate(rows):
        assert np.array_equal(launch_candidates(target, logits[i : i + 1], [row])[0], together[i])


def launch_draw(target: Target, weight: np.ndarray, seed: int, positions: np.ndarray) -> np.ndarray:
    n = len(positions)
    out = np.full(n, -1, np.int32)
    seeds = np.tile(np.array([seed, 9], np.uint32), (n, 1))
    rows = np.ascontiguousarray(np.broadcast_to(weight, (n, weight.shape[-1])))
    target(sampling.draw, weight=rows, seed=seeds, position=positions.astype(np.int32), out=out)
    return out


def test_draws_follow_the_weights(target: Target) -> None:
    weight = np.array([1, 0.5, 0, 0.25, 0.125, 1, 0, 0.03], np.float32)
    out = launch_draw(target, weight, 3, np.arange(400))
    counts = np.bincount(out, minlength=8)
    assert counts[2] == counts[6] == 0
    want = 400 * weight / weight.sum()
    live = weight > 0
    # chi-square with 5 degrees of freedom: 20.5 is passed by chance once in 1000; the seed is
    # fixed.
    assert ((counts - want)[live] ** 2 / want[live]).sum() < 20.5


def test_draws_repeat_and_depend_on_seed_and_position_only(target: Target) -> None:
    weight = np.random.default_rng(0).random(1500).astype(np.float32)
    positions = np.array([5, 6, 7, 5])
    a = launch_draw(target, weight, 1, positions)
    assert np.array_equal(a, launch_draw(target, weight, 1, positions)) and a[0] == a[3]
    alone = [launch_draw(target, weight, 1, positions[i : i + 1])[0] for i in range(4)]
    assert np.array_equal(a, alone)
    assert not np.array_equal(a, launch_draw(target, weight, 2, positions))


def test_a_single_candidate_always_wins(target: Target) -> None:
    weight = np.zeros(1200, np.float32)
    weight[777] = 2.0**-126
    assert (launch_draw(target, weight, 5, np.arange(50)) == 777).all()
