"""Drafts from the sequence itself: what followed when it last went as it goes now."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from terrazzo.engine.sequence import Sequence

LEAST, MOST = 3, 8  # tokens that have to be alike, and that are compared where several places are


class Lookup:
    """Proposals by prompt lookup (Saxena, 2023): of the places where the last tokens have been
    before, the one where most of them agree, the latest of equals."""

    place_s = 0.0

    def propose(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, list[int]]:
        found = {seq: continuation(seq.text(), n) for seq, n in wanted.items()}
        return {seq: draft for seq, draft in found.items() if draft}

    def forget(self, seq: Sequence) -> None:
        """What is known of a sequence is its own."""


def continuation(text: np.ndarray, count: int) -> list[int]:
    """Up to `count` tokens that followed the end of `text` (i32) where it stands earlier in it."""
    size = len(text)
    if size <= LEAST:
        return []
    ends = np.flatnonzero(text[LEAST - 1 : -1] == text[-1]) + LEAST - 1
    for back in range(1, MOST):
        if back >= LEAST and len(ends) == 1:
            break
        inside = ends[ends >= back]
        left = inside[text[inside - back] == text[size - 1 - back]] if back < size else inside[:0]
        if not len(left):
            if back < LEAST:
                return []
            break
        ends = left
    at = int(ends[-1]) + 1
    draft = text[at : at + count].tolist()
    while len(draft) < count:  # the text goes on from its own end: it repeats itself
        draft += draft[: count - len(draft)]
    return draft
