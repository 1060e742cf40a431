"""Whole steps of the real model, bit for bit: a row's logits do not depend on its company.

Sequences of unequal lengths run alone and in one batch, in one piece and in pieces, on pages in
order and shuffled, on one to four threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from terrazzo.models import loading
from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import GGUF
from terrazzo.models.kv_cache import PAGE, Kind, KVCache, elements
from terrazzo.models.llama import Budget, Chunk, LlamaStep

PAGES = 64  # of the cache; 17 sequences of up to 48 tokens fit


@pytest.fixture(scope="module")
def parts(model: GGUF) -> tuple[LlamaConfig, loading.LlamaWeights]:
    config = LlamaConfig.from_gguf(model)
    return config, loading.load(model, config, 1)


def step(
    parts: tuple[LlamaConfig, loading.LlamaWeights], kind: Kind, threads: int = 1
) -> LlamaStep:
    config, weights = parts
    cache, int8 = KVCache(config, PAGES, elements(config, kind)), kind != "f32"
    budget = Budget(tokens=512, seqs=17, pages=PAGES)
    return LlamaStep(config, weights, cache, budget, int8=int8, threads=threads)


@pytest.fixture(scope="module", params=["f16", "f32", "int8", "auto"])
def one(request: pytest.FixtureRequest, parts: tuple[LlamaConfig, loading.LlamaWeights]):
    return request.param, step(parts, request.param)


def sequences(seed: int, count: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(20, 40_000, rng.integers(1, 40)).tolist() for _ in range(count)]


def pages(order: Sequence[int]) -> np.ndarray:
    return np.array(order, np.int32)


IN_ORDER = pages(range(PAGES))


def whole(s: LlamaStep, ids: list[int]) -> np.ndarray:
    return s.run([Chunk(IN_ORDER, ids, 0)])[0].copy()


@pytest.mark.parametrize("count", [2, 5, 17])
def test_alone_and_in_a_batch(one: tuple[Kind, LlamaStep], count: int) -> None:
    _, s = one
    texts = sequences(count, count)
    alone = [whole(s, ids) for ids in texts]
    own = [pages(range(n * 3, n * 3 + 3)) for n in range(count)]  # 48 tokens each
    together = s.run([Chunk(p, ids, 0) for p, ids in zip(own, texts, strict=True)])
    for a, b in zip(alone, together, strict=True):
        assert np.array_equal(a, b)


def test_one_piece_or_many(one: tuple[Kind, LlamaStep]) -> None:
    _, s = one
    ids = np.random.default_rng(7).integers(20, 40_000, 75).tolist()
    expected = whole(s, ids)
    got = np.empty(0)
    for cuts in ([1, 2, 40], [16, 32, 48, 64], [74], [33, 34, 35]):
        for begin, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
            got = s.run([Chunk(IN_ORDER, ids[begin:end], begin)])[0]
        assert np.array_equal(got, expected), cuts


def test_every_position_as_prompt_and_as_decode(one: tuple[Kind, LlamaStep]) -> None:
    _, s = one
    ids = np.random.default_rng(8).integers(20, 40_000, 20).tolist()
    prompt = s.run([Chunk(IN_ORDER, ids, 0, logits=len(ids))]).copy()
    for n, token in enumerate(ids):
        assert np.array_equal(s.run([Chunk(IN_ORDER, [token], n)])[0], prompt[n])


def test_pages_in_any_order(one: tuple[Kind, LlamaStep]) -> None:
    _, s = one
    ids = np.random.default_rng(9).integers(20, 40_000, 3 * PAGE + 5).tolist()
    shuffled = pages(np.random.default_rng(10).permutation(PAGES).tolist())
    assert np.array_equal(s.run([Chunk(shuffled, ids, 0)])[0], whole(s, ids))


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_any_number_of_threads(
    one: tuple[Kind, LlamaStep],
    parts: tuple[LlamaConfig, loading.LlamaWeights],
    threads: int,
) -> None:
    kind, s = one
    other = step(parts, kind, threads)
    for ids in ([5], np.random.default_rng(11).integers(20, 40_000, 300).tolist()):
        assert np.array_equal(whole(other, ids), whole(s, ids))


def test_a_copied_page_goes_its_own_way(one: tuple[Kind, LlamaStep]) -> None:
    """The second of two sequences that share 20 tokens writes into its own copy of page 1."""
    _, s = one
    ids = np.random.default_rng(12).integers(20, 40_000, 24).tolist()
    expected = whole(s, ids)
    s.run([Chunk(IN_ORDER, ids[:20], 0)])
    s.cache.copy(1, 40)
    s.run([Chunk(IN_ORDER, [5, 6, 7], 20)])
    assert np.array_equal(s.run([Chunk(pages([0, 40]), ids[20:], 20)])[0], expected)
