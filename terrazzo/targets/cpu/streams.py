"""Reading ahead: the next row of what a nest reads, if its results may be large.

A nest often reads a row twice or more (its sum, then its values times that). The first loop waits
for memory, those after it find the row in the caches and leave memory idle; the chip's own
prefetchers end with a page. So in the second loop over a row's columns (the only one, if there is
one) each chunk brings the same columns of the next row near: in the one that stores around the
caches (around.py), or that does not store. (4096 x 4096 on a Xeon, 1 thread: rms_norm 0.75 of the
time in f32 and 0.8 in f16, silu_mul 0.85 and 0.7, softmax 0.7 and 0.9; softmax in its last loop
instead of the second: 0.85.)
"""

from __future__ import annotations

from terrazzo.ir.graph import Graph
from terrazzo.ir.ops import Block, Load, Whole
from terrazzo.ir.types import DType
from terrazzo.targets.cpu.builder import W
from terrazzo.targets.cpu.evaluate import Evaluator
from terrazzo.targets.cpu.frame import Frame
from terrazzo.targets.cpu.micro_base import prefetch
from terrazzo.targets.cpu.nest import Level, Nest

LINE = 64


class Streams:
    """For the function of `frame`, at the column that `ev` is at."""

    def __init__(self, frame: Frame, ev: Evaluator, graph: Graph) -> None:
        self.fr, self.f, self.ev, self.graph = frame, frame.f, ev, graph
        self._read: list[tuple[Load, int]] = []
        self._level: Level | None = None
        self._here = False

    def begin(self, nest: Nest, large: bool) -> None:
        """Of the nest that comes next; `large`: its results may be."""
        loops = [level for level in nest.levels if level.col is not None]
        self._read = self._rows_of(nest) if large and nest.rows and loops else []
        self._level = loops[:2][-1] if loops else None

    def enter(self, level: Level) -> None:
        self._here = level is self._level

    def _rows_of(self, nest: Nest) -> list[tuple[Load, int]]:
        """What it reads row by row, each tensor once, and which of its dims is the rows'."""
        found: dict[str, tuple[Load, int]] = {}
        seen: set[int] = set()
        stack = [r.value for level in nest.levels for r in level.roots]
        while stack:
            v = stack.pop()
            if v.id in seen:
                continue
            seen.add(v.id)
            stack += self.graph.args(v)
            d = self.graph.defs[v.id]
            if isinstance(d, Load) and isinstance(self.fr.kernel.param(d.param).dtype, DType):
                axes = [e.axis if isinstance(e, (Whole, Block)) else "" for e in d.index]
                if axes.count(nest.rows[-1]) == 1:
                    found.setdefault(d.param, (d, axes.index(nest.rows[-1])))
        return list(found.values())

    def next_rows(self) -> list[tuple[str, int]]:
        """For the level's loop, of what lies side by side along its columns: where the next row
        starts, and the bytes of an element."""
        out: list[tuple[str, int]] = []
        for load, dim in self._read if self._here else []:
            last, dtype = load.index[-1], self.fr.kernel.param(load.param).dtype
            along = isinstance(last, (Whole, Block)) and last.axis == self.ev.col
            if along and isinstance(dtype, DType):
                p, stride = self.ev.memory.place_of(load)
                if str(stride) == "1":
                    row = self.f.mul(self.fr.stride(load.param, dim), dtype.bytes)
                    out.append((self.f.gep(p, row), dtype.bytes))
        return out

    def fetch(self, rows: list[tuple[str, int]], chunk: str, turn: int) -> None:
        """Brings `chunk` of these rows near, a line once; `turn`: its place among unrolled ones."""
        for p, size in rows:
            if turn * W * size % LINE == 0:
                prefetch(self.f, self.f.gep(p, self.f.mul(chunk, size)))
