"""The cache of keys and values: pages of 16 tokens, the same pages in every layer.

A page's layers lie side by side, so that a sequence's tokens take few pages of the system's, which
are large where it has them: with an array a layer in pages of 4 KiB every 6 KiB that attention
reads cost a walk of page tables, half of its time (16 sequences behind 500 tokens 1.05 ms a layer,
now 0.68; one behind 8,000 0.25 and 0.16; a Xeon, 1 thread).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from terrazzo.models.config import LlamaConfig
from terrazzo.targets.cpu.pool import private_memory

PAGE = 16
WIDE_LAYERS = 4  # of "auto": the first layers' errors go through all the others
Kind = Literal["f32", "f16", "int8", "auto"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class LayerCache:
    """Keys [pages, kv heads, d, 16] (token = lane), values [pages, kv heads, 16, d]. With scales
    (f16 [pages, kv heads, 16]) both are whole numbers in a unit a token and head."""

    k: np.ndarray
    v: np.ndarray
    kscale: np.ndarray | None = None
    vscale: np.ndarray | None = None

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(a for a in (self.k, self.v, self.kscale, self.vscale) if a is not None)


class KVCache:
    """`elements`: each layer's element type, as `elements` has them. Zero at first: what is read
    past a sequence's end is finite."""

    def __init__(self, config: LlamaConfig, pages: int, elements: Sequence[np.dtype]) -> None:
        self.pages, self.elements = pages, tuple(elements)
        size = page_bytes(config, elements)
        self.nbytes = pages * size
        self._memory = private_memory(self.nbytes).reshape(pages, size)
        self._used = 0  # bytes of a page
        heads, d = config.kv_heads, config.head_dim
        keys, values, scales = (heads, d, PAGE), (heads, PAGE, d), (heads, PAGE)
        self.layers: tuple[LayerCache, ...] = ()
        for dtype in elements:
            both = [self._take(keys, dtype), self._take(values, dtype)]
            if dtype == np.int8:
                both += [self._take(scales, np.dtype(np.float16)) for _ in "kv"]
            self.layers += (LayerCache(*both),)

    def _take(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The next bytes of all pages as an array [pages, *shape]."""
        start, size = self._used, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._used += size
        return self._memory[:, start : start + size].view(dtype).reshape(self.pages, *shape)

    def copy(self, source: int, target: int) -> None:
        """Page `target` becomes a copy of page `source`, in every layer."""
        self._memory[target] = self._memory[source]

    def clear(self, page: int) -> None:
        """The page is as it was at first."""
        self._memory[page] = 0


def elements(config: LlamaConfig, kind: Kind) -> tuple[np.dtype, ...]:
    """The element type of each layer's keys and values. f32: where rounding must not show. int8:
    with one f16 scale a token and head for keys and one for values. auto: f16 in the first 4
    layers, int8 in the others."""
    name = {"f32": np.float32, "f16": np.float16, "int8": np.int8, "auto": np.int8}[kind]
    wide = min(WIDE_LAYERS, config.layers) if kind == "auto" else 0
    return (np.dtype(np.float16),) * wide + (np.dtype(name),) * (config.layers - wide)


def token_bytes(config: LlamaConfig, element: np.dtype) -> int:
    """Bytes of one token's keys and values in one layer, scales and all."""
    scale = 2 if element.itemsize == 1 else 0
    return 2 * config.kv_heads * (config.head_dim * element.itemsize + scale)


def page_bytes(config: LlamaConfig, elements: Sequence[np.dtype]) -> int:
    """Bytes of one page in all layers."""
    return PAGE * sum(token_bytes(config, e) for e in elements)
