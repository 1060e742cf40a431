"""The demo model's logits and text, every position in full, against fp32 transformers on the same
file.

Run by `make oracle` (its own environment: torch, transformers). llama.cpp's figures, the bar for
int8 activations, are the stored ones that tests/oracle/make_logits.py measured on the same
positions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import terrazzo
from tests.oracle import compact as measure
from tests.oracle import fp32

DATA = Path(__file__).resolve().parents[1] / "data"
ORACLE: dict[str, Any] = json.loads((DATA / "oracle.json").read_text())
TEXTS: dict[str, Any] = json.loads((DATA / "texts.json").read_text())
ENDS = (0, 2)  # end of text, end of turn
# Two fp32 evaluations in different summation orders: |logits| reach 40, 576 to 1,536 terms a sum,
# 30 layers.
STORED_TOLERANCE = 5e-3


@dataclass
class Figures:
    """Per position over all the passages, of one kind of activations against fp32."""

    cosine: measure.F64
    same_top: np.ndarray
    kl: measure.F64
    loss: measure.F64

    def report(self, name: str) -> None:
        print(
            f"\n{name}: cosine min {self.cosine.min():.8f} mean {self.cosine.mean():.8f}, "
            f"same top-1 {self.same_top.mean():.3%}, KL mean {self.kl.mean():.3e} "
            f"max {self.kl.max():.3e}, perplexity {np.exp(self.loss.mean()):.4f}"
        )


@pytest.fixture(scope="module")
def oracle(model_path: Path) -> Any:
    return fp32.load(model_path)


@pytest.fixture(scope="module")
def oracle_rows(oracle: Any) -> list[measure.F32]:
    """The fp32 logits of each passage (650 MB in all)."""
    return [fp32.logits(oracle, row["ids"]) for row in ORACLE["passages"]]


@pytest.fixture(scope="module")
def f32(model_path: Path) -> Any:
    return terrazzo.load(str(model_path), activations="f32", context=1024)


def evaluate(model: Any, oracle_rows: list[measure.F32]) -> Figures:
    rows: list[tuple[np.ndarray, ...]] = []
    for row, oracle in zip(ORACLE["passages"], oracle_rows, strict=True):
        logits = model.logits(row["ids"])
        rows.append((
            measure.cosine(oracle, logits),
            logits.argmax(axis=1) == oracle.argmax(axis=1),
            measure.kl(oracle, logits),
            measure.negative_log_likelihood(logits, row["ids"]),
        ))  # fmt: skip
    return Figures(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def perplexity(oracle_rows: list[measure.F32]) -> float:
    pairs = zip(ORACLE["passages"], oracle_rows, strict=True)
    return measure.perplexity(
        [measure.negative_log_likelihood(logits, row["ids"]) for row, logits in pairs]
    )


def test_enough_positions() -> None:
    assert sum(len(row["ids"]) for row in ORACLE["passages"]) >= 2000


def test_stored_outputs(oracle_rows: list[measure.F32]) -> None:
    """What is stored is what fp32 gives again."""
    stored = measure.read(DATA / "oracle_logits.npz")
    for row, logits, kept in zip(ORACLE["passages"], oracle_rows, stored, strict=True):
        again = measure.compact(logits, row["ids"], measure.signs(logits.shape[1]))
        picked = np.take_along_axis(logits, kept.top_ids.astype(np.int64), axis=1)
        assert np.abs(picked - kept.top_logits).max() < STORED_TOLERANCE
        assert np.abs(again.log_sum_exp - kept.log_sum_exp).max() < STORED_TOLERANCE
        assert np.abs(again.target - kept.target)[:-1].max() < STORED_TOLERANCE
        assert measure.estimated_cosine(kept, again).min() > 1 - 1e-7
        loss = measure.negative_log_likelihood(logits, row["ids"]).sum()
        assert loss == pytest.approx(row["nll"], rel=1e-4)


def test_logits_f32(f32: Any, oracle_rows: list[measure.F32]) -> None:
    got = evaluate(f32, oracle_rows)
    got.report("f32 activations")
    assert got.cosine.min() >= 0.99999
    assert got.same_top.mean() >= 0.999
    assert np.exp(got.loss.mean()) == pytest.approx(perplexity(oracle_rows), rel=1e-4)


def test_logits_int8(model_path: Path, oracle_rows: list[measure.F32]) -> None:
    model = terrazzo.load(str(model_path), activations="int8", context=1024)
    got = evaluate(model, oracle_rows)
    theirs = sum(row["llama.cpp"]["kl"] for row in ORACLE["passages"]) / len(got.kl)
    got.report("int8 activations")
    print(f"llama.cpp: KL mean {theirs:.3e}; fp32: perplexity {perplexity(oracle_rows):.4f}")
    assert got.kl.mean() <= theirs
    assert np.exp(got.loss.mean()) == pytest.approx(perplexity(oracle_rows), rel=0.005)


def test_greedy_f32(f32: Any, oracle: Any) -> None:
    """64 tokens, identical on at least 9 of 10 prompts; the stored texts are fp32's again."""
    count = TEXTS["greedy_tokens"]
    ours, again = 0, 0
    for row in ORACLE["greedy"]:
        ids = list(f32.generate_ids(row["ids"], max_tokens=count, temperature=0))
        chosen, lead = fp32.greedy(oracle, row["ids"], count)
        same = measure.same_greedy(ids, chosen, ENDS)
        ours += same
        again += measure.same_greedy(chosen, row["fp32"], ENDS)
        print(f"greedy: same {same}, {len(ids)} tokens, smallest lead {lead:.4f}")
    assert ours >= 9
    assert again >= 9
