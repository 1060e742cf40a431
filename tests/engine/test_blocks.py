"""The books of blocks against what the blocks hold, over random use."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from terrazzo.engine.blocks import BLOCK, Blocks, key, keys


@dataclass
class Text:
    """A sequence: its tokens, all of them computed, and its blocks."""

    tokens: list[int]
    blocks: list[int] = field(default_factory=list)


class Cache:
    """Blocks whose contents are the tokens they were computed from: the whole sequence's so far."""

    def __init__(self, count: int) -> None:
        self.held: list[tuple[int, ...]] = [()] * count
        self.cleared: list[int] = []
        self.blocks = Blocks(count, self.copy, self.cleared.append)
        self.texts: list[Text] = []

    def copy(self, source: int, target: int) -> None:
        self.held[target] = self.held[source]

    def begin(self, tokens: list[int]) -> bool:
        """A sequence of these tokens, as much of it shared as is known."""
        found = self.blocks.find(keys(tokens))
        for n, b in enumerate(found):
            assert self.held[b] == tuple(tokens[: (n + 1) * BLOCK])
        text = Text(tokens[: len(found) * BLOCK])
        for b in found:
            self.blocks.share(b)
            text.blocks.append(b)
        self.texts.append(text)
        return all(self.extend(text, t) for t in tokens[len(text.tokens) :])

    def fork(self, text: Text) -> None:
        for b in text.blocks:
            self.blocks.share(b)
        self.texts.append(Text(list(text.tokens), list(text.blocks)))

    def extend(self, text: Text, token: int) -> bool:
        at, lane = divmod(len(text.tokens), BLOCK)
        block = self.blocks.take() if not lane else self.blocks.own(text.blocks[at], None)
        if block is None:
            return False
        text.blocks[at:] = [block]
        text.tokens.append(token)
        self.held[block] = tuple(text.tokens)
        if lane == BLOCK - 1:
            self.blocks.name(block, keys(text.tokens)[-1])
        return True

    def end(self, text: Text) -> None:
        for n, b in enumerate(text.blocks):  # nobody else has written to what is ours
            own = tuple(text.tokens[: (n + 1) * BLOCK])
            assert self.held[b][: len(own)] == own
        self.blocks.release(text.blocks)
        self.texts.remove(text)

    def check(self) -> None:
        self.blocks.check([t.blocks for t in self.texts])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.sampled_from([3, 8, 40]))
def test_random_use(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    cache = Cache(count)
    for _ in range(80):
        texts, do = cache.texts, rng.integers(0, 10)
        one = texts[rng.integers(len(texts))] if texts else None
        if one is None or do < 3:
            fits = cache.begin(rng.integers(0, 2, rng.integers(1, 60)).repeat(9).tolist()[:70])
            if not fits:
                cache.end(texts[-1])
        elif do < 4:
            cache.fork(one)
        elif do < 8:
            for token in rng.integers(0, 2, rng.integers(1, 20)).tolist():
                if not cache.extend(one, token):
                    break
        elif do < 9:
            cache.blocks.spoil(one.blocks)
            cache.end(one)
        else:
            cache.end(one)
        cache.check()
    for text in list(cache.texts):
        cache.end(text)
    cache.check()
    assert cache.blocks.free == count


def test_a_name_is_of_all_that_came_before() -> None:
    a, b = keys(list(range(40))), keys([7, *range(1, 40)])
    assert len(a) == 2 and not set(a) & set(b)
    assert a[1] == key(a[0], range(16, 32))
    assert keys(list(range(15))) == []


def test_what_goes_first() -> None:
    """What was let go first, and of one sequence its end."""
    cache = Cache(6)
    old, new = list(range(48)), list(range(100, 148))
    for tokens in (old, new):
        assert cache.begin(tokens)
    cache.end(cache.texts[0])
    cache.end(cache.texts[0])
    lost = []
    for n in range(6):
        assert cache.begin([1000 + n])
        lost.append((len(cache.blocks.find(keys(old))), len(cache.blocks.find(keys(new)))))
    assert lost == [(2, 3), (1, 3), (0, 3), (0, 2), (0, 1), (0, 0)]
    assert cache.blocks.take() is None


def test_shared_again_is_recent() -> None:
    cache = Cache(4)
    a, b = [1] * 32, [2] * 32
    for tokens in (a, b, a):
        assert cache.begin(tokens)
        cache.end(cache.texts[0])
    assert cache.begin([5]) and cache.begin([6])
    assert len(cache.blocks.find(keys(a))) == 2 and not cache.blocks.find(keys(b))


def test_spoilt_blocks_are_cleared_and_forgotten() -> None:
    cache = Cache(4)
    assert cache.begin([1] * 40)
    (text,) = cache.texts
    cache.fork(text)
    cache.blocks.spoil(text.blocks)
    assert not cache.blocks.find(keys([1] * 40))
    cache.end(text)
    assert not cache.cleared
    blocks = set(cache.texts[0].blocks)
    cache.end(cache.texts[0])
    assert set(cache.cleared) == blocks
