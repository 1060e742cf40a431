"""What 8-bit keys and values do to the demo model's perplexity, on the passages of the logits
oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import terrazzo
from terrazzo.models.kv_cache import Kind
from tests.oracle import compact as measure

DATA = Path(__file__).resolve().parents[1] / "data"
TEXTS: dict[str, Any] = json.loads((DATA / "texts.json").read_text())


def perplexity(kind: Kind, activations: str) -> float:
    model = terrazzo.load("smollm2", kv=kind, activations=activations, context=1024)
    passages = [model.tokenizer.encode(p["text"])[:1024] for p in TEXTS["passages"]]
    return measure.perplexity(
        [measure.negative_log_likelihood(model.logits(ids), ids) for ids in passages]
    )


@pytest.mark.parametrize("activations", ["int8", "f32"])
def test_perplexity_stays_within_half_a_percent(activations: str) -> None:
    f16, int8, auto = (perplexity(kind, activations) for kind in ("f16", "int8", "auto"))
    print(f"\n{activations} activations: f16 {f16:.4f}, int8 {int8:.4f}, auto {auto:.4f}")
    assert abs(int8 / f16 - 1) < 0.005
    assert abs(auto / f16 - 1) < 0.005
