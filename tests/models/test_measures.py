"""The measures that judge logits (tests/oracle/compact.py), on logits with a known fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.oracle import compact as measure

VOCABULARY = 4096
IDS = list(range(7, 7 + 24))


@pytest.fixture(scope="module")
def logits() -> measure.F32:
    rng = np.random.default_rng(5)
    return (rng.normal(0, 3, (len(IDS), VOCABULARY)) + 5).astype(np.float32)


def worse(logits: measure.F32, by: float) -> measure.F32:
    noise = np.random.default_rng(6).normal(0, by, logits.shape)
    return (logits + noise).astype(np.float32)


def test_nothing_differs(logits: measure.F32) -> None:
    stored = measure.compact(logits, IDS, measure.signs(VOCABULARY))
    assert measure.cosine(logits, logits) == pytest.approx(1)
    assert measure.estimated_cosine(stored, stored) == pytest.approx(1)
    assert measure.kl(logits, logits) == pytest.approx(0, abs=1e-12)
    assert measure.coarse_kl(stored, logits) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("by", [0.003, 0.1, 1.0])
def test_estimates(logits: measure.F32, by: float) -> None:
    """Sketched: 1 - cosine to within five standard deviations. The coarse KL is a lower bound."""
    other = worse(logits, by)
    sign = measure.signs(VOCABULARY)
    stored, ours = (measure.compact(rows, IDS, sign) for rows in (logits, other))
    ratio = (1 - measure.estimated_cosine(stored, ours)) / (1 - measure.cosine(logits, other))
    assert np.abs(ratio - 1).max() < 5 * np.sqrt(2 / measure.SKETCH)
    full, coarse = measure.kl(logits, other), measure.coarse_kl(stored, other)
    assert (coarse <= full + 1e-6).all()
    assert full.mean() > 0


def test_one_logit_in_4096_is_seen(logits: measure.F32) -> None:
    """Every column takes part in the estimate, not only the likely ones."""
    other = logits.copy()
    column = int(np.argmin(logits.max(axis=0)))
    other[:, column] += 20
    sign = measure.signs(VOCABULARY)
    stored, ours = (measure.compact(rows, IDS, sign) for rows in (logits, other))
    assert measure.estimated_cosine(stored, ours).max() < 0.9995


def test_losses(logits: measure.F32) -> None:
    loss = measure.negative_log_likelihood(logits, IDS)
    chance = np.exp(logits.astype(np.float64))
    chance /= chance.sum(axis=1, keepdims=True)
    want = [-np.log(chance[row, token]) for row, token in enumerate(IDS[1:])]
    assert loss == pytest.approx(want, rel=1e-5)
    assert measure.perplexity([loss]) == pytest.approx(np.exp(np.mean(want)), rel=1e-5)


def test_stored_form(logits: measure.F32, tmp_path: Path) -> None:
    sign = measure.signs(VOCABULARY)
    parts = [measure.compact(logits[:9], IDS[:9], sign), measure.compact(logits[9:], IDS[9:], sign)]
    measure.save(tmp_path / "stored.npz", parts)
    again = measure.read(tmp_path / "stored.npz")
    assert [len(part) for part in again] == [9, 15]
    assert np.array_equal(again[1].top_ids, parts[1].top_ids)
    assert np.array_equal(again[1].sketch, parts[1].sketch)
    assert (parts[0].top_ids[:, 0] == logits[:9].argmax(axis=1)).all()


def test_greedy_stops_at_an_end_token() -> None:
    assert measure.same_greedy([5, 6], [5, 6, 2, 9, 9], ends=(0, 2))
    assert measure.same_greedy([5, 6, 2], [5, 6, 2, 9], ends=(0, 2))
    assert not measure.same_greedy([5, 7], [5, 6, 2], ends=(0, 2))
    assert not measure.same_greedy([5], [5, 6, 2], ends=(0, 2))
