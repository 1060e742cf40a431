"""Cosines and sines are made on demand, and are those of the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import GGUF
from terrazzo.models.rope_table import STEP, RopeTable


def test_rows_are_made_when_they_are_needed(model: GGUF) -> None:
    config = replace(LlamaConfig.from_gguf(model), context_length=3 * STEP - 7, rope_scale=2.0)
    factors = np.linspace(1.0, 3.0, 5)
    table = RopeTable(config, factors)
    half = config.head_dim // 2
    theta = config.rope_theta ** (-np.arange(half) / half) / 2.0
    theta[:5] /= factors
    for positions in (1, STEP, STEP + 1, config.context_length):
        table.cover(positions)
        angle = np.arange(positions)[:, None] * theta
        assert np.allclose(table.cos[:positions], np.cos(angle), rtol=0, atol=2.0**-24)
        assert np.allclose(table.sin[:positions], np.sin(angle), rtol=0, atol=2.0**-24)
    assert table.covered == config.context_length
    fresh = RopeTable(config, None)
    fresh.cover(1)
    assert fresh.covered == STEP and not fresh.cos[STEP:].any()
