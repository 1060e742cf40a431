"""Tiles of a core function while it is being lowered: buffers, axes, views, and the statements so
far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from terrazzo.ir.ops import Loc
from terrazzo.ir.types import DType
from terrazzo.targets.davinci.chips import BLOCK
from terrazzo.targets.davinci.expr import Scalar
from terrazzo.targets.davinci.program import Buffer, Instr, Operand, Space, Stmt, View


@dataclass(frozen=True)
class Range:
    """Where an axis is: its first index within the dim and its extent now, at most `cap`."""

    start: Scalar
    size: Scalar
    cap: int


@dataclass(frozen=True, eq=False)
class Tile:
    """A tile in UB, row-major over `axes` with room for `caps`; rows are padded to whole blocks.
    `strides`: of each axis in elements."""

    buffer: Buffer
    axes: tuple[str, ...]
    strides: tuple[int, ...]
    slot: Scalar = 0


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix in L1 or L0C in the NZ layout. `rows` and `columns` name its axes, outermost first
    (together they are the value's); `height` is the padded number of rows, `c0` the fractal's
    columns."""

    buffer: Buffer
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    height: int
    c0: int
    slot: Scalar = 0


@dataclass(frozen=True)
class Constant:
    """A tile all of whose elements are one scalar; has no memory until something needs it."""

    value: Scalar
    dtype: DType


@dataclass(frozen=True)
class Affine:
    """The tile index(axis) + offset, or `offset` alone where axis is ""."""

    axis: str
    offset: Scalar


Kept = Tile | Matrix | Constant | Affine


@dataclass
class Emitter:
    """A function's body as it grows. `ranges`: where every axis is at this point."""

    ranges: dict[str, Range]
    order: Mapping[str, int]  # axes' rank in memory, outer first
    body: list[Stmt] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    loc: Loc | None = None
    names: dict[str, int] = field(default_factory=dict)

    def emit(self, op: str, out: View, *ins: Operand, **attrs: object) -> None:
        self.body.append(Instr(op, out, ins, tuple(sorted(attrs.items())), self.loc))

    @contextmanager
    def nested(self) -> Iterator[list[Stmt]]:
        """Statements emitted within go to the list that this gives."""
        outer, self.body = self.body, []
        try:
            yield self.body
        finally:
            self.body = outer

    def name(self, stem: str) -> str:
        """A name not used before."""
        count = self.names[stem] = self.names.get(stem, 0) + 1
        return stem if count == 1 else f"{stem}{count}"

    def buffer(
        self, stem: str, space: Space, dtype: DType, elements: int, slots: int = 1
    ) -> Buffer:
        made = Buffer(
            self.name(stem), space, dtype, elements, slots, (), _called(self.loc) or stem, self.loc
        )
        self.buffers.append(made)
        return made

    def tile(self, stem: str, dtype: DType, axes: Sequence[str], slots: int = 1) -> Tile:
        """A new tile in UB with room for its axes' caps."""
        axes = tuple(sorted(axes, key=self.order.__getitem__))
        caps = [self.ranges[a].cap for a in axes]
        unit = max(1, BLOCK // dtype.bytes)
        padded = [*caps[:-1], -(-caps[-1] // unit) * unit] if caps else []
        strides, total = [], 1
        for cap in reversed(padded):
            strides.append(total)
            total *= cap
        buffer = self.buffer(stem, "UB", dtype, max(total, unit), slots)
        return Tile(buffer, axes, tuple(reversed(strides)))

    def view(self, tile: Tile, axes: Sequence[str]) -> View:
        """`tile` in an operation over `axes` (in memory order); those it lacks are broadcast."""
        own = dict(zip(tile.axes, tile.strides, strict=True))
        sizes = tuple(self.ranges[a].size if a in own else 1 for a in axes) or (1,)
        strides = tuple(own.get(a, 0) for a in axes) or (1,)
        return View(tile.buffer, sizes, strides, 0, tile.slot)

    def sorted(self, axes: Sequence[str]) -> tuple[str, ...]:
        return tuple(sorted(axes, key=self.order.__getitem__))


def _called(loc: Loc | None) -> str:
    """The author's name for what a line computes: the target of its assignment."""
    if loc is None or "=" not in loc.text:
        return ""
    target = loc.text.partition("=")[0].strip().rstrip("+-*/ ")
    return target if target.isidentifier() else ""
