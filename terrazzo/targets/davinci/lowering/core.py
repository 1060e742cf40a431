"""The walk over a phase's statements that both kinds of core share: scalars, loops, carried values,
addresses in global memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from terrazzo.errors import KernelError
from terrazzo.ir.graph import walk
from terrazzo.ir.ops import Carry, Expect, Load, Loop, LoopVar, Op, Stmt, Store
from terrazzo.ir.place import mark
from terrazzo.ir.types import Value
from terrazzo.targets.davinci import program as p
from terrazzo.targets.davinci.expr import Scalar, add, ceil_div, make, mul, sub, var
from terrazzo.targets.davinci.lowering import levels
from terrazzo.targets.davinci.lowering.grid import size_of
from terrazzo.targets.davinci.lowering.scalars import Scalars
from terrazzo.targets.davinci.lowering.split import Split
from terrazzo.targets.davinci.lowering.tiles import Emitter, Range, Tile

if TYPE_CHECKING:
    from terrazzo.targets.davinci.lowering.cross import Crossing
    from terrazzo.targets.davinci.lowering.lower import Lowering


class Core(ABC):
    """One function of a phase. `group`: the number of its cube core (or its own, if there is only
    one kind). `depth`: loops around the current statement, the grid included."""

    kind: p.CoreKind

    def __init__(
        self, low: Lowering, parts: Split, crossing: Mapping[int, Crossing], group: Scalar
    ) -> None:
        self.low, self.parts, self.crossing, self.group = low, parts, crossing, group
        self.graph = low.graph
        self.e = Emitter({}, low.order)
        self.prologue: list[p.Stmt] = []
        self.numbers = Scalars(low.graph, low.dims, self.e.ranges)
        self.kept: dict[int, Any] = {}
        self.depth = 0
        self.stages = low.options.slots  # slots of what is loaded here
        self.shifted: dict[str, Scalar] = {}  # axis -> where this core's part of the block begins
        self.chunked = (
            False  # within a part of the block: crossings are waited for around all parts
        )
        self.alone: Scalar = 1  # 0 on a vector core that only keeps step

    # -- walking -------------------------------------------------------------------------------

    def enter(self, statements: Iterable[Stmt]) -> None:
        """Statements before the grid: once a core."""
        self.stages = 1
        self.block(tuple(statements))
        self.stages = self.low.options.slots

    def set_range(self, axis: str, r: Range) -> None:
        """Where an axis's block is, for all cores of the group."""
        self.e.ranges[axis] = r
        self.numbers.blocks[axis] = r

    def share(self, axis: str, begin: Scalar, size: Scalar, cap: int) -> None:
        """This core works on `size` indices of an axis's block, from its index `begin` on. What the
        kernel computes from the block's start and extent (loop bounds) stays that of the whole
        block, on every core."""
        self.shifted[axis] = begin
        self.e.ranges[axis] = Range(add(self.e.ranges[axis].start, begin), size, cap)

    def block(self, statements: Sequence[Stmt]) -> None:
        for s in statements:
            if isinstance(s, Expect):
                raise mark(KernelError("`tz.expect` is not checked on this target"), s.loc)
            self.e.loc = s.loc
            if isinstance(s, Loop):
                if s.kind == "grid":
                    raise mark(KernelError("a grid within a grid is not for this target"), s.loc)
                if self.relevant(s):
                    self.loop(s)
                else:
                    self.end(s)  # the other kind's result may arrive here
            elif not self.numbers.statement(s):
                self.tile_statement(s)

    @abstractmethod
    def relevant(self, s: Loop) -> bool:
        """Whether this kind of core has anything to do in a loop."""

    @abstractmethod
    def tile_statement(self, s: Op | Load | Store) -> None:
        """A load, a store or an operation on tiles."""

    def loop(self, s: Loop) -> None:
        (v,) = s.vars
        if not (self.numbers.has(v.lo) and self.numbers.has(v.hi)):
            raise mark(
                KernelError(
                    "the bounds of this loop are computed from a tile's elements, which a core's"
                    " scalar unit does not get",
                    "compute them from dims, parameters and single elements of tensors",
                ),
                s.loc,
            )
        lo, hi, step = self.numbers.get(v.lo), self.numbers.get(v.hi), v.step or 1
        self.begin(s, lo)
        groups = levels.groups(self.graph, self.parts, s, self.kind, self.low.options.ahead)
        stages, self.stages = self.stages, s.stages
        self.depth += 1
        if len(groups) == 1:
            name = self.e.name(v.name)
            with self.e.nested() as body:
                self._trip(s, v, var(name), lo, hi)
                self.block(groups[0].statements)
                self.finish(s, groups[0].statements)
            self.e.body.append(p.For(name, lo, hi, step, tuple(body), s.loc))
        else:
            self._skewed(s, v, lo, hi, step, groups)
        self.depth -= 1
        self.stages = stages
        self.end(s)

    def _trip(self, s: Loop, v: LoopVar, start: Scalar, lo: Scalar, hi: Scalar) -> None:
        if v.var is not None:
            self.numbers.set(v.var, start)
        else:
            size = size_of(start, lo, hi, v.step or 1)
            self.set_range(v.name, Range(start, size, self.low.most(v)))

    def _skewed(
        self, s: Loop, v: LoopVar, lo: Scalar, hi: Scalar, step: int,
        groups: Sequence[levels.Group],
    ) -> None:  # fmt: skip
        """A loop whose groups of statements work on different trips at a time (levels.py)."""
        name = self.e.name(f"{v.name}_step")
        trips = self.e.name(f"{v.name}_trips")
        self.e.body.append(p.Let(trips, ceil_div(sub(hi, lo), step), s.loc))
        before = set(self.kept)
        with self.e.nested() as body:
            for g in groups:
                trip = sub(var(name), g.shift)
                self._trip(s, v, add(lo, mul(trip, step)), lo, hi)
                for i, kept in self.kept.items():
                    if i not in before and isinstance(kept, Tile) and kept.buffer.slots > 1:
                        self.kept[i] = replace(kept, slot=trip)
                self.group_slots = (g.slots, trip)
                with self.e.nested() as part:
                    self.block(g.statements)
                    self.finish(s, g.statements)
                self.group_slots = ({}, 0)
                here = make("and", make("le", 0, trip), make("lt", trip, var(trips)))
                body.append(p.If(here, tuple(part), s.loc))
        most = max(g.shift for g in groups)
        self.e.body.append(p.For(name, 0, add(var(trips), most), 1, tuple(body), s.loc))

    group_slots: tuple[Mapping[int, int], Scalar] = ({}, 0)

    def begin(self, s: Loop, lo: Scalar) -> None:
        """Before a loop: carried values get their first value."""
        for c in s.carries:
            if not c.var.axes and self.numbers.has(c.init):
                name = self.e.name(f"carried{c.var.id}")
                self.e.body.append(p.Let(name, self.numbers.get(c.init), s.loc))
                self.numbers.set(c.var, var(name))
                self.numbers.set(c.result, var(name))
            else:
                self.begin_carry(s, c, lo)

    def finish(self, s: Loop, done: Sequence[Stmt]) -> None:
        """At a trip's end, of the statements `done`: carried values get their next."""
        here = {st.result.id for st in walk(tuple(done)) if isinstance(st, (Op, Load))}
        here |= {c.result.id for st in walk(tuple(done)) if isinstance(st, Loop)
                 for c in st.carries}  # fmt: skip
        lets: list[p.Stmt] = []
        for c in s.carries:
            if self.numbers.has(c.var):
                held = self.numbers.get(c.var)
                if c.next.id in here or not isinstance(held, int):
                    lets.append(p.Let(str(held), self.numbers.get(c.next), s.loc))
            elif c.next.id in here:
                self.finish_carry(c)
        self.e.body += lets

    @abstractmethod
    def begin_carry(self, s: Loop, c: Carry, lo: Scalar) -> None:
        """Before the loop: a carried tile's first value."""

    @abstractmethod
    def finish_carry(self, c: Carry) -> None:
        """At a trip's end: its next."""

    def end(self, s: Loop) -> None:
        """After a loop: results stand for what was carried."""
        for c in s.carries:
            if c.var.id in self.kept:
                self.kept[c.result.id] = self.kept[c.var.id]

    # -- cross-core flags ----------------------------------------------------------------------

    def credits(self) -> list[p.Stmt]:
        """At the function's start: what this core reads, it lets the other kind write."""
        return [
            p.CrossSet(c.free, "MTE2", c.loc)
            for c in self.crossing.values()
            if c.reader == self.kind
            for _ in range(c.slots)
        ]

    def drains(self) -> list[p.Stmt]:
        """At its end: flags that the readers raised last are taken back."""
        return [
            p.CrossWait(c.free, c.write_pipe, c.loc)
            for c in self.crossing.values()
            if c.reader != self.kind
            for _ in range(c.slots)
        ]

    # -- global memory -------------------------------------------------------------------------

    def gm_strides(self, name: str) -> list[int]:
        strides, total = [], 1
        for extent in reversed(self.low.gm[name].shape):
            strides.append(total)
            total *= extent
        return strides[::-1]

    def address(self, s: Load | Store, name: str) -> tuple[Scalar, dict[str, Scalar]]:
        """A load's or store's offset, and the stride of each of its axes. Its entries are scalars
        or blocks."""
        offset: Scalar = 0
        strides: dict[str, Scalar] = {}
        for entry, stride in zip(s.index, self.gm_strides(name), strict=True):
            if isinstance(entry, Value):
                offset = add(offset, mul(self.numbers.get(entry), stride))
            else:
                offset = add(offset, mul(self.e.ranges[entry.axis].start, stride))
                strides[entry.axis] = add(strides.get(entry.axis, 0), stride)
        return offset, strides
