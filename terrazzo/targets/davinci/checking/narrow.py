"""Finds sums and products that are kept in 16 bits over many terms."""

from __future__ import annotations

from terrazzo.targets.davinci.checking.finding import Finding, Findings
from terrazzo.targets.davinci.checking.plan import NARROW
from terrazzo.targets.davinci.numbers.memory import Memory, Region
from terrazzo.targets.davinci.program import Instr, Program, walk

MANY = 64  # terms of a sum in 16 bits that are one too many: an error of some roundings each

Chain = frozenset[Instr]


class Narrow:
    """Follows values from tile to tile: `_made` holds the additions and multiplications in 16 bits
    that a region's numbers have come through. One that finds itself there accumulates."""

    def __init__(self, program: Program, found: Findings) -> None:
        self.found = found
        self.suspects = frozenset(
            s for p in program.phases for f in p.functions for s in walk(f.body)
            if isinstance(s, Instr) and s.op in ("vadd", "vsub", "vmul") and s.out.dtype in NARROW
        )  # fmt: skip
        self._made: dict[tuple[Memory, int], Chain] = {}

    def forget(self) -> None:
        self._made.clear()

    def instr(self, s: Instr, out: Region, sources: list[Region]) -> None:
        if s.op == "vreduce" and s.attr("kind") == "sum" and sources[0].view.dtype in NARROW:
            axis = s.attr("axis", -1)
            assert isinstance(axis, int)
            if sources[0].shape[axis] > MANY:
                self._tell(s, f"{sources[0].shape[axis]} elements are summed up")
        if not self.suspects or out.view.space == "GM":
            return
        chain: Chain = frozenset().union(
            *(self._made.get((r.memory, r.start), frozenset()) for r in sources)
        )
        if s in self.suspects:
            if s in chain:
                self._tell(s, "a value is accumulated from trip to trip")
            chain = chain | {s}
        self._made[out.memory, out.start] = chain

    def _tell(self, s: Instr, what: str) -> None:
        self.found(Finding("narrow", f"{what} in {s.out.dtype}", "cast to f32 before, and back to"
                           f" {s.out.dtype} at the end", s.loc))  # fmt: skip
