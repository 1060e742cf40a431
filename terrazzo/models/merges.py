"""Byte-pair merging: a word's characters joined, pair by pair, in the order of a model file's list.

The rule is llama.cpp's: of all neighbours in the word that are on the list, the pair highest up is
joined first, the leftmost of equals. The `tokenizers` package does the same (it is the tests'
oracle), but with hash maps that beside the weights of a small model are a twentieth of the
process's memory. Here the list is three sorted arrays, 16 bytes a merge.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import repeat

import numpy as np

# Words of text repeat; longer ones than this (data, not language) would only fill the cache.
_CACHED_WORDS, _CACHED_CHARACTERS = 4096, 32


class Merges:
    """The merges "left right" of a vocabulary, highest first, by token id."""

    def __init__(self, table: np.ndarray) -> None:
        """`table`: what `parse` returned; it is copied."""
        keys, ranks, self._joined = (row.copy().data for row in table)
        # Read one element at a time: a memoryview gives plain numbers, ten times as fast as NumPy.
        self._keys, self._ranks = keys, ranks
        self._cached = lru_cache(_CACHED_WORDS)(self._merge)

    @staticmethod
    def parse(merges: Sequence[str], ids: Mapping[str, int]) -> np.ndarray:
        """The table [3, merges] u64 of pairs in order, their ranks, the tokens they become. `ids`:
        the id of every token.

        Raises ValueError with the text of the first merge that is not two tokens, or whose parts
        together are not a token; both have to be for its place in a word to be named."""
        count, spaces = len(merges), list(map(str.count, merges, repeat(" ")))
        if spaces.count(1) != count:
            wrong = next(merge for merge, n in zip(merges, spaces, strict=True) if n != 1)
            raise ValueError(f"{wrong!r} is not two tokens")
        parts = " ".join(merges).split(" ") if merges else []
        wholes = map(str.replace, merges, repeat(" "), repeat(""))
        try:
            pairs = np.fromiter(map(ids.__getitem__, parts), np.uint64, 2 * count)
            joined = np.fromiter(map(ids.__getitem__, wholes), np.uint64, count)
        except KeyError as missing:
            raise ValueError(f"{missing} is needed for a merge and is not a token") from None
        keys = pairs[::2] << np.uint64(32) | pairs[1::2]
        order = np.argsort(keys, kind="stable")  # a pair listed twice counts where it is first
        return np.stack([keys[order], order.astype(np.uint64), joined[order]])

    def __call__(self, symbols: tuple[int, ...]) -> Sequence[int]:
        """The tokens of the word whose characters are the tokens `symbols`."""
        if len(symbols) > _CACHED_CHARACTERS:
            return self._merge(symbols)
        return self._cached(symbols)

    def _find(self, left: int, right: int) -> tuple[int, int] | None:
        """A pair's rank and the token it becomes; None if it is not on the list."""
        key = left << 32 | right
        at = bisect_left(self._keys, key)
        if at == len(self._keys) or self._keys[at] != key:
            return None
        return self._ranks[at], self._joined[at]

    def _merge(self, word: tuple[int, ...]) -> tuple[int, ...]:
        """Symbols are a linked list, candidates a heap by rank and place. A candidate whose symbols
        have changed meanwhile is passed over. n characters take O(n log n)."""
        symbols, end = list(word), len(word)
        before, after = list(range(-1, end - 1)), list(range(1, end + 1))
        heap: list[tuple[int, int, int, int, int]] = []

        def offer(i: int) -> None:
            left, right = symbols[i], symbols[after[i]]
            if found := self._find(left, right):
                heappush(heap, (found[0], i, left, right, found[1]))

        for i in range(end - 1):
            offer(i)
        while heap:
            _, i, left, right, joined = heappop(heap)
            j = after[i]
            if symbols[i] != left or j == end or symbols[j] != right:
                continue
            symbols[i], symbols[j] = joined, -1  # -1: part of the symbol in front
            after[i] = after[j]
            if after[i] < end:
                before[after[i]] = i
                offer(i)
            if before[i] >= 0:
                offer(before[i])
        return tuple(symbol for symbol in symbols if symbol >= 0)
