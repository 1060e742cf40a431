"""How the cache of keys and values lies in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import GGUF
from terrazzo.models.kv_cache import KINDS, PAGE, Kind, KVCache, elements, page_bytes
from terrazzo.models.store import resolve
from terrazzo.runtime.launch import overlap


@pytest.fixture(scope="module")
def config() -> LlamaConfig:
    return LlamaConfig.from_gguf(GGUF.open(resolve("smollm2")))


@given(
    kind=st.sampled_from(KINDS),
    pages=st.integers(2, 40),
    kv_heads=st.integers(1, 9),
    head_dim=st.sampled_from([32, 64, 80, 96, 128]),
    layers=st.integers(1, 6),
)
def test_pages_lie_side_by_side(
    config: LlamaConfig, kind: Kind, pages: int, kv_heads: int, head_dim: int, layers: int
) -> None:
    """Every byte of the cache is one layer's, a page's bytes are together, and no kernel is refused
    for arrays whose rows take turns."""
    c = replace(config, kv_heads=kv_heads, head_dim=head_dim, layers=layers)
    cache = KVCache(c, pages, elements(c, kind))
    arrays = [a for layer in cache.layers for a in layer.arrays]
    assert sum(a.nbytes for a in arrays) == cache.nbytes == pages * page_bytes(c, cache.elements)
    assert {a.strides[0] for a in arrays} == {page_bytes(c, cache.elements)}
    assert all(not overlap(a, b) for n, a in enumerate(arrays) for b in arrays[:n])
    for layer in cache.layers:
        assert layer.k.shape == (pages, kv_heads, head_dim, PAGE)
        assert layer.v.shape == (pages, kv_heads, PAGE, head_dim)
        pairs = layer.k.reshape(pages, kv_heads, head_dim // 2, 2, PAGE)  # as rope writes them
        assert np.shares_memory(pairs, layer.k)


@given(kind=st.sampled_from(KINDS), pages=st.integers(2, 9), data=st.data())
def test_a_page_is_copied_and_cleared_whole(
    config: LlamaConfig, kind: Kind, pages: int, data: st.DataObject
) -> None:
    c = replace(config, layers=3)
    cache = KVCache(c, pages, elements(c, kind))
    arrays = [a for layer in cache.layers for a in layer.arrays]
    for n, a in enumerate(arrays):
        a[...] = 1 + n + np.arange(pages).reshape(-1, *[1] * (a.ndim - 1))
    source, target = data.draw(st.permutations(range(pages)))[:2]
    cache.copy(source, target)
    for n, a in enumerate(arrays):
        want = 1 + n + np.arange(pages)
        want[target] = want[source]
        assert (a == want.reshape(-1, *[1] * (a.ndim - 1))).all()
    cache.clear(source)
    assert all(not a[source].any() and a[target].all() for a in arrays)
