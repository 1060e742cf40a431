"""Who holds which block of the KV cache, and which blocks' contents are known.

A block is a page of the cache: 16 tokens' keys and values. They depend on these tokens and all that
come before, so a full block is named by a hash over both: a sequence that begins with the same
tokens takes the block over instead of computing it. A block that nobody holds keeps its name until
it is needed for something else; the one least recently held goes first, and of those let go
together the deepest, so that what stays is the beginnings that others may share.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

BLOCK = 16
Key = bytes


def key(before: Key, tokens: Sequence[int]) -> Key:
    """The name of a block of `tokens` after a block named `before` (b"" for the first). Not to be
    met by chance or on purpose: what another user's block holds must not be found."""
    return hashlib.blake2b(before + array("i", tokens).tobytes(), digest_size=16).digest()


def keys(tokens: Sequence[int]) -> list[Key]:
    """The names of all full blocks of a sequence."""
    out: list[Key] = []
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        out.append(key(out[-1] if out else b"", tokens[end - BLOCK : end]))
    return out


class Blocks:
    """The books of `count` blocks. `copy(source, target)` and `clear(block)` do what they say to a
    block's contents in the cache."""

    def __init__(
        self, count: int, copy: Callable[[int, int], None], clear: Callable[[int], None]
    ) -> None:
        self.count = count
        self.refs = [0] * count
        self._copy, self._clear = copy, clear
        self._empty = list(range(count - 1, -1, -1))  # low numbers first: others stay untouched
        self._idle: OrderedDict[int, None] = (
            OrderedDict()
        )  # held by nobody, but named; oldest first
        self._names: list[Key | None] = [None] * count
        self._named: dict[Key, int] = {}
        self._spoilt: set[int] = set()

    @property
    def free(self) -> int:
        """How many blocks `take` can give."""
        return len(self._empty) + len(self._idle)

    @property
    def idle(self) -> int:
        """How many of the free ones could still be shared."""
        return len(self._idle)

    def idle_or(self, idle: int, other: int) -> list[int]:
        """A number for each block: `idle` of those, `other` of all others."""
        out = [other] * self.count
        for block in self._idle:
            out[block] = idle
        return out

    def take(self) -> int | None:
        """A block to write to, held once; None if all are held."""
        if self._empty:
            block = self._empty.pop()
        elif self._idle:
            block, _ = self._idle.popitem(last=False)
            self._unname(block)
        else:
            return None
        self.refs[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more holder of a block that is held, or named."""
        if not self.refs[block]:
            del self._idle[block]
        self.refs[block] += 1

    def own(self, block: int, key: Key | None) -> int | None:
        """The block itself if it is held once, else a copy in its place; None if there is no block
        to copy it to. `key` is the name of what its holder makes it, if it will be full: under
        another name nobody finds it any more."""
        if self.refs[block] == 1:
            if self._names[block] != key:
                self._unname(block)
            return block
        copy = self.take()
        if copy is not None:
            self._copy(block, copy)
            self.refs[block] -= 1
        return copy

    def release(self, blocks: Iterable[int]) -> None:
        """A sequence, its blocks given in its order, holds them no longer."""
        for block in reversed(list(blocks)):
            self.refs[block] -= 1
            if self.refs[block]:
                continue
            if block in self._spoilt:
                self._spoilt.discard(block)
                self._clear(block)
            if self._names[block] is None:
                self._empty.append(block)
            else:
                self._idle[block] = None

    def name(self, block: int, key: Key) -> None:
        """The block is full and will not change while it is named. The first of equals counts."""
        if key not in self._named and self._names[block] is None:
            self._named[key], self._names[block] = block, key

    def find(self, keys: Sequence[Key]) -> list[int]:
        """The blocks of the longest known beginning of a chain of names."""
        found: list[int] = []
        for k in keys:
            block = self._named.get(k)
            if block is None:
                break
            found.append(block)
        return found

    def spoil(self, blocks: Iterable[int]) -> None:
        """What held blocks hold may not be finite: nobody shares them from now on, and they are
        cleared when they are let go. (What lies past a sequence's end weighs nothing, but is
        read.)"""
        for block in blocks:
            self._unname(block)
            self._spoilt.add(block)

    def _unname(self, block: int) -> None:
        name = self._names[block]
        if name is not None:
            del self._named[name]
            self._names[block] = None

    def check(self, holders: Iterable[Sequence[int]]) -> None:
        """Raises AssertionError if the books do not agree with each other, or with the `holders`'
        lists of blocks."""
        held = [0] * self.count
        for blocks in holders:
            assert len(set(blocks)) == len(blocks), f"a sequence holds a block twice: {blocks}"
            for block in blocks:
                held[block] += 1
        wrong = [b for b in range(self.count) if held[b] != self.refs[b]]
        assert not wrong, f"block {wrong[0]}: {held[wrong[0]]} holders, {self.refs[wrong[0]]} noted"
        free = [*self._empty, *self._idle]
        assert len(set(free)) == len(free), "a block is free twice"
        assert set(free) == {b for b in range(self.count) if not self.refs[b]}, "free, but held"
        assert all(self._names[b] is not None for b in self._idle), "idle without a name"
        assert all(self._names[b] is None for b in self._empty), "empty with a name"
        names = {n: b for b, n in enumerate(self._names) if n is not None}
        assert names == self._named, "a name leads to another block"
        assert all(self.refs[b] for b in self._spoilt), "a spoilt block was let go"
