"""What is known of each cell of a memory: who wrote it last and when, who has read it since.

A cell is as many bytes as are only ever accessed together. Accesses are whole regions: one NumPy
operation each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.targets.davinci.numbers.memory import Memory, Piece

Array = np.ndarray
NEVER = -1
_SEVERAL = 1 << 30  # groups of cores that have read a cell


@dataclass(frozen=True)
class Clash:
    """An access of pipe `number` at `clock` that is not ordered with the one looked at, or of a
    group of cores (`number` is NEVER). `wrote`: it was a write. `byte`: the first one."""

    number: int
    clock: int
    wrote: bool
    byte: int


class Shadow:
    """`shared`: other groups of cores access the memory too; `written`: it holds data already."""

    def __init__(self, memory: Memory, shared: bool = False, written: bool = False) -> None:
        n = len(memory.data) // memory.unit
        self.unit = memory.unit
        self.writer = np.full(n, 0 if written else NEVER, np.int16)
        self.clock = np.zeros(n, np.int32)
        self.owner = np.zeros(0 if shared else n, np.int16)
        self.readers: dict[int, Array] = {}
        self.shared = shared
        self.group = np.zeros(n if shared else 0, np.int32)  # that wrote last, counted from 1
        self.read_by = np.zeros(n if shared else 0, np.int32)  # the group that read it
        self.first = self.now = 1  # the phase's first group, and the current one

    def forget(self) -> None:
        """As never written nor read."""
        self.writer[:] = NEVER

    def phase(self, first: int) -> None:
        """All cores have met; groups from `first` on are those of this phase."""
        self.first = first
        self.read_by[self.read_by == _SEVERAL] = 0

    def cells(self, of: Array, piece: Piece) -> Array:
        """The piece's elements of one of the arrays."""
        u, size = self.unit, of.itemsize
        *outer, run = piece.shape
        shape = (*outer, run // u)
        steps = (*(s // u * size for s in piece.strides[:-1]), size)
        return np.ndarray(shape, of.dtype, of, piece.start // u * size, steps)  # type: ignore[arg-type]

    def unwritten(self, piece: Piece) -> tuple[int, int]:
        """How many bytes nobody has written, and the first one."""
        w = self.cells(self.writer, piece)
        if w.min() != NEVER:
            return 0, 0
        bad = w == NEVER
        return int(np.count_nonzero(bad)) * self.unit, self._byte(piece, bad)

    def foreign(self, piece: Piece, owner: int) -> tuple[int, int, int]:
        """How many bytes another tile was written to, the first one, and whose it is."""
        o = self.cells(self.owner, piece)
        if o.min() == o.max() == owner:
            return 0, 0, 0
        bad = (o != owner) & (self.cells(self.writer, piece) != NEVER)
        if not bad.any():
            return 0, 0, 0
        whose = int(o[bad].flat[0])
        return int(np.count_nonzero(bad)) * self.unit, self._byte(piece, bad), whose

    def before_read(self, piece: Piece, row: Array) -> Iterator[Clash]:
        """Writes that a pipe that knows `row` does not know to be done."""
        w, k = self.cells(self.writer, piece), self.cells(self.clock, piece)
        low = w.min()
        if low == w.max():
            if k.max() > row[low]:
                yield self._clash(piece, w, k, k > row[low], True)
        else:
            bad = k > row[w]
            for number in np.unique(w[bad]):
                yield self._clash(piece, w, k, bad & (w == number), True)
        if self.shared:
            g = self.cells(self.group, piece)
            bad = (g >= self.first) & (g != self.now)
            if bad.any():
                yield Clash(NEVER, 0, True, self._byte(piece, bad))

    def before_write(self, piece: Piece, row: Array) -> Iterator[Clash]:
        """Writes and reads that it does not know to be done."""
        yield from self.before_read(piece, row)
        for number, array in self.readers.items():
            k = self.cells(array, piece)
            if k.max() > row[number]:
                bad = k > row[number]
                at = int(k[bad].max())
                yield Clash(number, at, False, self._byte(piece, bad))
        if self.shared:
            g = self.cells(self.read_by, piece)
            bad = (g >= self.first) & (g != self.now)
            if bad.any():
                yield Clash(NEVER, 0, False, self._byte(piece, bad))

    def read(self, piece: Piece, number: int, clock: int) -> None:
        array = self.readers.get(number)
        if array is None:
            array = self.readers[number] = np.zeros(len(self.writer), np.int32)
        self.cells(array, piece)[...] = clock
        if self.shared:
            g = self.cells(self.read_by, piece)
            g[...] = np.where((g >= self.first) & (g != self.now), _SEVERAL, self.now)

    def write(self, piece: Piece, number: int, clock: int, owner: int) -> None:
        self.cells(self.writer, piece)[...] = number
        self.cells(self.clock, piece)[...] = clock
        if self.shared:
            self.cells(self.group, piece)[...] = self.now
        else:
            self.cells(self.owner, piece)[...] = owner

    def spoil(self, piece: Piece) -> None:
        """What lies there is of no use."""
        self.cells(self.writer, piece)[...] = NEVER

    def _clash(self, piece: Piece, w: Array, k: Array, bad: Array, wrote: bool) -> Clash:
        number = int(w[bad].flat[0])
        return Clash(number, int(k[bad].max()), wrote, self._byte(piece, bad))

    def _byte(self, piece: Piece, bad: Array) -> int:
        """The address of the first bad cell."""
        at: Any = np.unravel_index(int(np.argmax(bad)), bad.shape)
        steps = (*piece.strides[:-1], self.unit)
        return piece.start + sum(int(i) * s for i, s in zip(at, steps, strict=True))
