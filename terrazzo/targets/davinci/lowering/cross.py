"""Crossings: values that go from the cube to the vector cores or back, through global memory.

A crossing is a workspace with a few slots per group of cores and two flags: `ready`, raised by the
writer when a slot is full, and `free`, raised by the reader when it has read one. The reader raises
`free` once a slot at its start; the writer takes those back at its end. Both count the slots by
themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from terrazzo.errors import KernelError
from terrazzo.ir.graph import walk
from terrazzo.ir.ops import Load, Loc, Loop, Op, Stmt, Store
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, Value
from terrazzo.targets.davinci.chips import CROSS_FLAGS
from terrazzo.targets.davinci.expr import add, ceil_div, make, mul, sub, var
from terrazzo.targets.davinci.lowering.split import Split
from terrazzo.targets.davinci.lowering.tiles import Range
from terrazzo.targets.davinci.program import CoreKind, CrossSet, CrossWait, For, Gm, Let, Pipe, View

if TYPE_CHECKING:
    from terrazzo.targets.davinci.lowering.core import Core
    from terrazzo.targets.davinci.lowering.grid import GridAxis
    from terrazzo.targets.davinci.lowering.lower import Lowering


@dataclass(frozen=True)
class Crossing:
    """`gm` is [groups, slots, room for `axes`]; `strides` of the axes in it, `size` of a slot."""

    gm: Gm
    axes: tuple[str, ...]
    strides: tuple[int, ...]
    size: int
    slots: int
    ready: int
    free: int
    reader: CoreKind
    loc: Loc | None

    @property
    def write_pipe(self) -> Pipe:
        return "FIX" if self.reader == "vector" else "MTE3"

    def view(self, core: Core, axes: Sequence[str] | None = None) -> View:
        """The current slot, over `axes` (all of its own: None), this core's part of it."""
        strides = dict(zip(self.axes, self.strides, strict=True))
        slot = make("mod", var(self.counter), self.slots)
        offset = mul(add(mul(core.group, self.slots), slot), self.size)
        for a in self.axes:
            offset = add(offset, mul(core.shifted.get(a, 0), strides[a]))
        over = self.axes if axes is None else axes
        sizes = tuple(core.e.ranges[a].size if a in strides else 1 for a in over)
        return View(self.gm, sizes, tuple(strides.get(a, 0) for a in over), offset)

    @property
    def counter(self) -> str:
        return f"count_{self.gm.name}"

    def begin_write(self, core: Core) -> None:
        if core.chunked:
            return
        core.e.body.append(CrossWait(self.free, self.write_pipe, self.loc))

    def end_write(self, core: Core) -> None:
        if core.chunked:
            return
        core.e.body.append(CrossSet(self.ready, self.write_pipe, self.loc))
        self._count(core)

    def begin_read(self, core: Core) -> None:
        if core.chunked:
            return
        core.e.body.append(CrossWait(self.ready, "MTE2", self.loc))

    def end_read(self, core: Core) -> None:
        if core.chunked:
            return
        core.e.body.append(CrossSet(self.free, "MTE2", self.loc))
        self._count(core)

    def _count(self, core: Core) -> None:
        core.e.body.append(Let(self.counter, add(var(self.counter), 1), self.loc))
        start = Let(self.counter, 0, self.loc)
        if not any(isinstance(s, Let) and s.name == self.counter for s in core.prologue):
            core.prologue.append(start)


def plan(
    low: Lowering, parts: Split, grid: Loop, axes: Sequence[GridAxis], groups: int
) -> dict[int, Crossing]:
    """A crossing for every value that crosses, by value id."""
    caps = _caps(low, grid, axes)
    places = {id(s): s.loc for s in walk(grid.body)}
    out: dict[int, Crossing] = {}
    to_vector, to_cube = parts.to_vector, parts.to_cube
    todo: list[tuple[Value, CoreKind]] = [(v, "vector") for v in to_vector.values()]
    todo.extend((v, "cube") for v in to_cube.values() if v.id not in to_vector)
    for n, (v, reader) in enumerate(sorted(todo, key=lambda t: t[0].id)):
        d = low.graph.defs[v.id]
        loc = d.loc if isinstance(d, (Op, Load)) else places.get(id(d), grid.loc)
        if 2 * n + 1 >= CROSS_FLAGS:
            raise mark(KernelError(
                f"{len(todo)} values go between cube and vector cores, flags are there for"
                f" {CROSS_FLAGS // 2}", "split the kernel in two"), loc)  # fmt: skip
        order = tuple(sorted(v.axes, key=low.order.__getitem__))
        strides, size = [], 1
        for a in reversed(order):
            strides.append(size)
            size *= caps[a]
        slots = low.options.ahead + 1
        assert isinstance(v.dtype, DType)
        gm = Gm(f"workspace{len(low.workspaces)}", v.dtype,
                (groups, slots, *(caps[a] for a in order)), True, "normal", loc)  # fmt: skip
        low.workspaces.append(gm)
        out[v.id] = Crossing(
            gm, order, tuple(reversed(strides)), size, slots, 2 * n, 2 * n + 1, reader, loc
        )
    return out


def _caps(low: Lowering, grid: Loop, axes: Sequence[GridAxis]) -> dict[str, int]:
    caps = {a.name: low.dims[a.dim] for a in low.kernel.axes if not a.block}
    caps |= {a.name: min(a.step or 1, a.extent) for a in axes}
    for s in walk(grid.body):
        if isinstance(s, Loop):
            caps |= {v.name: low.most(v) for v in s.vars}
    return caps


def halve(core: Core, parts: Split, grid: Loop, ratio: int) -> str | None:
    """Gives a vector core its share of the block: of the axis that all crossing values and all
    stores have, which it returns. Without such an axis the second core only keeps step."""
    shared: set[str] | None = None
    for s in walk(grid.body):
        if isinstance(s, Store) and id(s) not in parts.direct:
            axes = {e.axis for e in s.index if not isinstance(e, Value)}
            shared = axes if shared is None else shared & axes
    for v in parts.to_vector.values():
        shared = set(v.axes) if shared is None else shared & set(v.axes)
    reduced = {op.attr("axis") for op in walk(grid.body)
               if isinstance(op, Op) and op.op == "reduce"}  # fmt: skip
    blocked = [v.name for v in grid.vars if v.var is None]
    usable = [a for a in blocked if a in (shared or set()) and a not in reduced]
    half = make("mod", var("core"), ratio)
    if ratio == 1:
        return usable[0] if usable else None
    if not usable:
        core.alone = make("eq", half, 0)
        note = "the second vector core of each group idles: no axis to share"
        if note not in core.low.notes:
            core.low.notes.append(note)
        return None
    axis = usable[0]
    r = core.e.ranges[axis]
    each = make("div", add(r.size, ratio - 1), ratio)
    begin = make("min", mul(half, each), r.size)
    size = make("min", each, sub(r.size, begin))
    if isinstance(r.size, int) and r.size % ratio == 0:
        size, begin = r.size // ratio, mul(half, r.size // ratio)
    core.share(axis, begin, size, -(-r.cap // ratio))
    return axis


def chunked(core: Core, body: Sequence[Stmt], axis: str, cap: int) -> None:
    """The vector core's share of the block, `cap` indices of `axis` at a time. The values that
    cross are waited for and handed back once, for all parts."""
    r = core.e.ranges[axis]
    name = core.e.name("chunk")
    at = mul(var(name), cap)
    reads = [c for c in core.crossing.values() if c.reader == core.kind]
    writes = [c for c in core.crossing.values() if c.reader != core.kind]
    for c in reads:
        c.begin_read(core)
    for c in writes:
        c.begin_write(core)
    core.shifted[axis] = add(core.shifted.get(axis, 0), at)
    size = (
        cap if isinstance(r.size, int) and r.size % cap == 0 else make("min", cap, sub(r.size, at))
    )
    core.e.ranges[axis] = Range(add(r.start, at), size, cap)
    core.chunked = True
    with core.e.nested() as part:
        core.block(body)
    core.chunked = False
    core.e.body.append(For(name, 0, ceil_div(r.size, cap), 1, tuple(part), core.e.loc))
    for c in reads:
        c.end_read(core)
    for c in writes:
        c.end_write(core)


def chunkable(parts: Split, grid: Loop) -> bool:
    """Whether all values that cross are made outside of the grid's inner loops."""
    inner = {x.result.id for s in grid.body if isinstance(s, Loop) for x in walk(s.body)
             if isinstance(x, (Op, Load))}  # fmt: skip
    return not inner & (parts.to_vector.keys() | parts.to_cube.keys())
