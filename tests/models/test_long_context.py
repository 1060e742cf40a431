"""Contexts of several parts: logits are the same bits however the parts are shared out."""

from __future__ import annotations

import numpy as np
import pytest

from terrazzo.engine.model import Model, load
from terrazzo.kernels.attention_parts import PART
from terrazzo.models.kv_cache import Kind
from terrazzo.models.llama import Chunk

CONTEXT = 3 * PART + 100


def model(threads: int, kv: Kind) -> Model:
    """With random keys and values for two sequences, as if they had been computed."""
    m = load("smollm2", threads=threads, context=CONTEXT, sequences=2, kv=kv)
    rng = np.random.default_rng(0)
    for layer in m.step.cache.layers:
        for x in (layer.k, layer.v, layer.kscale, layer.vscale):
            if x is None:
                continue
            bits = rng.integers(-100, 100, x.shape, np.int8)
            x[...] = bits if x.dtype == np.int8 else (bits / np.float32(100)).astype(x.dtype)
    return m


def logits(m: Model, *chunks: tuple[int, int, int]) -> np.ndarray:
    """Of (sequence, position, count) the last tokens', up to 12 each."""
    pages = np.arange(m.step.cache.pages, dtype=np.int32).reshape(2, -1)
    return m.step.run([
        Chunk(pages[s], list(range(100 + at, 100 + at + n)), at, min(n, 12)) for s, at, n in chunks
    ]).copy()  # fmt: skip


@pytest.mark.parametrize("kv", ["f16", "int8"])
def test_parts_by_one_thread_or_by_several(kv: Kind) -> None:
    one, two = model(1, kv), model(2, kv)
    for at in (PART - 1, PART, 2 * PART + 7, CONTEXT - 1):
        np.testing.assert_array_equal(logits(one, (0, at, 1)), logits(two, (0, at, 1)))
    together = logits(one, (0, 3 * PART - 5, 10), (1, 2 * PART + 3, 4))
    np.testing.assert_array_equal(
        together, logits(two, (0, 3 * PART - 5, 10), (1, 2 * PART + 3, 4))
    )
    singly = [logits(two, (0, 3 * PART - 5 + i, 1)) for i in range(10)]
    np.testing.assert_array_equal(together[:10], np.concatenate(singly))
    whole = logits(two, (0, 3 * PART - 30, 40))[-5:]  # more rows than may be split
    singly = [logits(two, (0, 3 * PART + 5 + i, 1)) for i in range(5)]
    np.testing.assert_array_equal(whole, np.concatenate(singly))
