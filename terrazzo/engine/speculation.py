"""Drafts: guesses at the next tokens that one step of the model looks at together.

A draft changes no answer. A draw depends on (seed, position) and on logits that are the same bits
however tokens arrive, so what is drawn at each of a draft's places is what plain decoding draws
there, up to and with the first token that differs from the draft.

How many tokens are worth guessing: a step of B sequences takes a + b · tokens seconds, measured as
steps go by. A place that is kept saves what a token costs, (a + b B) / B; one more place costs b
and what its proposal takes. If a guess that follows right ones is right with probability p (of the
sequence's last guesses), the n-th place is kept with p^n. Where not even the first pays, a guess is
tried now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

from terrazzo.engine.sequence import Sequence

MOST = 11  # places of a draft: with the token before them two tiles of six rows
PROBE = 16  # steps between tries where drafts do not pay
FADE, FORGET = 0.97, 0.85  # of what a step, and a guess, counts for at the next one


class Proposer(Protocol):
    """`place_s`: seconds that one more place of all sequences' drafts takes to propose."""

    place_s: float

    def propose(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, list[int]]:
        """Drafts of up to as many tokens as are wanted, for those sequences there is one for."""
        ...

    def forget(self, seq: Sequence) -> None:
        """The sequence has ended."""
        ...


class StepCost:
    """Seconds of a step as base + token · tokens: least squares over the last steps."""

    def __init__(self) -> None:
        self.base = self.token = 0.0
        self._sums = [0.0] * 5

    def note(self, tokens: int, seconds: float) -> None:
        new = (1.0, tokens, seconds, tokens * tokens, tokens * seconds)
        self._sums = [FADE * s + x for s, x in zip(self._sums, new, strict=True)]
        n, x, y, xx, xy = self._sums
        spread = xx - x * x / n
        if spread > n / 2:  # else all steps are of one size, which says nothing of a token's cost
            self.token = max(0.0, (xy - x * y / n) / spread)
        self.base = max(0.0, (y - self.token * x) / n)


class Guesses:
    """How often a sequence's guesses have been right lately, as if one of two had been before."""

    __slots__ = ("_right", "_tried", "idle")

    def __init__(self) -> None:
        self._right, self._tried = 0.5, 1.0
        self.idle = 0  # steps since a draft was wrong

    def note(self, drafted: int, accepted: int) -> None:
        for right in [True] * accepted + [False] * (accepted < drafted):
            self._right = FORGET * self._right + right
            self._tried = FORGET * self._tried + 1.0
        self.idle = PROBE if accepted == drafted else 0

    @property
    def chance(self) -> float:
        return self._right / self._tried


class Speculation:
    """Decides on drafts and learns from what comes of them. `worth` is what the chance that a
    place is kept has to be; a test may set it."""

    def __init__(self, proposer: Proposer, cost: StepCost) -> None:
        self.proposer, self.cost = proposer, cost
        self.worth: float | None = None
        self._guesses: dict[Sequence, Guesses] = {}

    def propose(
        self, room: Mapping[Sequence, int], left: int, reserve: Callable[[Sequence, int], int]
    ) -> dict[Sequence, list[int]]:
        """Drafts for sequences that are about to decode, each no longer than its room, and all
        together no longer than what is left of the step. `reserve` finds blocks for a draft, and
        says for how much of it."""
        if not room:
            return {}
        least = self._least_chance(len(room))
        wanted: dict[Sequence, int] = {}
        for seq, most in room.items():
            guesses = self._guesses.get(seq)
            if guesses is None:
                guesses = self._guesses[seq] = Guesses()
            guesses.idle += 1
            n = min(most, self._places(guesses, least))
            if n > 0:
                wanted[seq] = n
        if sum(wanted.values()) > left:
            share = left // len(wanted)
            wanted = {seq: min(n, share) for seq, n in wanted.items()} if share else {}
        wanted = {seq: found for seq, n in wanted.items() if (found := reserve(seq, n)) > 0}
        return self.proposer.propose(wanted) if wanted else {}

    def learn(self, seq: Sequence, drafted: int, accepted: int) -> None:
        self._guesses[seq].note(drafted, accepted)

    def forget(self, seq: Sequence) -> None:
        """The sequence has ended."""
        self._guesses.pop(seq, None)
        self.proposer.forget(seq)

    def _least_chance(self, sequences: int) -> float:
        if self.worth is not None:
            return self.worth
        step = self.cost.base + self.cost.token * sequences
        return (self.cost.token * sequences + self.proposer.place_s) / step if step else 1.0

    def _places(self, guesses: Guesses, least: float) -> int:
        chance = guesses.chance
        if chance < least:
            return int(least < 1.0 and guesses.idle >= PROBE)
        if chance >= 1.0 or least <= 0.0:
            return MOST
        return min(MOST, int(math.log(least) / math.log(chance)))
