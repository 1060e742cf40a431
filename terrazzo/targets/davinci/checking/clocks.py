"""Vector clocks: what every pipe of a group of cores knows to be done on every other.

Pipe p of core c is number c · len(PIPES) + p. Its row holds, for each pipe, the number of the last
instruction there that is done before the pipe's next one starts. Flags carry rows from pipe to
pipe. Numbers grow over the whole launch: what an earlier group or phase did is below every row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from terrazzo.targets.davinci.numbers.unit import PIPES

_ALWAYS = np.iinfo(np.int64).max
_PIPE = {p: i for i, p in enumerate(PIPES)}


class Clocks:
    """`rows[number]`, for groups of at most `most` cores; its last column stands for "never" and is
    always known."""

    def __init__(self, most: int) -> None:
        self.base = 0
        self.rows = np.zeros((most * len(PIPES), most * len(PIPES) + 1), np.int64)

    def begin(self) -> None:
        """A group of cores begins; everything before it is done."""
        self.base = int(self.rows[:, :-1].max(initial=0)) + 1
        self.rows[:, :-1] = self.base
        self.rows[:, -1] = _ALWAYS
        self._seen: dict[int, Any] = {}
        self._last: dict[int, Any] = {}

    def number(self, core: int, pipe: str) -> int:
        return core * len(PIPES) + _PIPE[pipe]

    def tick(self, number: int) -> int:
        """The next instruction's number."""
        self.rows[number, number] += 1
        return int(self.rows[number, number])

    def seen(self, core: int) -> Any:
        """The scalar unit's row; the same object until it changes."""
        row = self._seen.get(core)
        if row is None:
            row = self._seen[core] = self.rows[self.number(core, "S")].copy()
        return row

    def issued(self, number: int, known: Any) -> None:
        if known is not self._last.get(number):
            self._last[number] = known
            self.learn(number, known)

    def learn(self, number: int, row: Any) -> None:
        np.maximum(self.rows[number], row, out=self.rows[number])
        if number % len(PIPES) == _PIPE["S"]:
            self._seen.pop(number // len(PIPES), None)

    def learn_one(self, number: int, other: int, clock: int) -> None:
        self.rows[number, other] = max(self.rows[number, other], clock)

    def joined(self, core: int) -> None:
        own = self.rows[core * len(PIPES) : (core + 1) * len(PIPES)]
        own[:] = own.max(axis=0)
        self._seen.pop(core, None)

    def forced(self, number: int) -> None:
        """The pipe knows all that was started anywhere."""
        self.learn(number, np.append(np.diagonal(self.rows), _ALWAYS))
