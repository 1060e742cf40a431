"""Operands of vector instructions: a value's elements in memory, in the form an instruction takes.

A value may have been kept without memory (a constant, an index, a mask that compares indices); here
it gets some. Constants and differences of indices, which stay what they are, are made once, at the
function's start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Loc
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, bool_, f16, f32, i32
from terrazzo.targets.davinci.chips import BLOCK
from terrazzo.targets.davinci.expr import Scalar, add
from terrazzo.targets.davinci.lowering import casts
from terrazzo.targets.davinci.lowering.tiles import Affine, Constant, Emitter, Range, Tile
from terrazzo.targets.davinci.lowering.tiles import Kept as InMemory
from terrazzo.targets.davinci.program import Operand, Stmt, View

Axes = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Relative:
    """The mask index(column) - index(row) <mode> threshold; no memory until it is used. `always`:
    1 where it holds for the whole tile."""

    row: str
    column: str
    mode: str
    threshold: Scalar
    always: Scalar


Kept = InMemory | Relative


def unsupported(op: str, dtype: DType, loc: Loc | None) -> KernelError:
    text = f"the vector unit of this chip has no rule for `{op}` in {dtype}"
    return mark(KernelError(text, "cast to f32 first, or compute it another way"), loc)


class Operands:
    """`prologue`: statements at the function's start. `axes` are in memory order."""

    def __init__(self, e: Emitter, prologue: list[Stmt]) -> None:
        self.e = e
        self.prologue = prologue
        self._differences: dict[tuple[str, str], Tile] = {}
        self._constants: dict[tuple[Scalar, DType], Tile] = {}

    def tile(self, kept: Kept, dtype: DType, axes: Axes) -> Tile:
        """`kept` in memory; a constant over all of `axes`."""
        e = self.e
        match kept:
            case Tile():
                return kept
            case Constant(value=value) if dtype == bool_:
                return self._nonzero(self.tile(Constant(value, f16), f16, axes))
            case Constant(value=value):
                out = e.tile("const", dtype, axes)
                e.emit("vbrc", e.view(out, out.axes), value)
                return out
            case Affine(axis=axis, offset=offset):
                out = e.tile("index", i32, (axis,) if axis else ())
                start = add(e.ranges[axis].start, offset) if axis else offset
                e.emit("varange", e.view(out, out.axes), start)
                return casts.cast(e, out, dtype, out.axes)
            case Relative():
                return self.mask(kept)
        raise AssertionError(kept)

    def at(self, kept: Kept, dtype: DType, axes: Axes) -> View:
        """`kept` over `axes`; those it lacks are repeated."""
        return self.e.view(self.tile(kept, dtype, axes), axes)

    def second(self, kept: Kept, dtype: DType, axes: Axes) -> Operand:
        """As `at`; a constant stays a scalar."""
        return kept.value if isinstance(kept, Constant) else self.at(kept, dtype, axes)

    def block(self, kept: Kept, dtype: DType, axes: Axes) -> View:
        """As `at`, for instructions that take no scalar; a constant is one block of memory."""
        if not isinstance(kept, Constant):
            return self.at(kept, dtype, axes)
        if not isinstance(kept.value, (int, float)):
            return self.at(kept, dtype, axes)  # known at the launch or in the loop only
        tile = self._constants.get((kept.value, dtype))
        if tile is None:
            unit = BLOCK // dtype.bytes
            with self._at_start():
                buffer = self.e.buffer("const", "UB", dtype, unit)
                tile = Tile(buffer, (), ())
                self.e.emit("vbrc", View(buffer, (unit,), (1,)), kept.value)
            self._constants[kept.value, dtype] = tile
        return self.e.view(tile, axes)

    def whole(self, kept: Kept, dtype: DType, axes: Axes) -> View:
        """As `at`, for instructions that repeat nothing."""
        e = self.e
        tile = self.tile(kept, dtype, axes)
        if tile.axes == axes:
            return e.view(tile, axes)
        if dtype == bool_:  # bits are not repeated: numbers are
            numbers = self.whole(casts.cast(e, tile, f16, tile.axes), f16, axes)
            out = e.tile("mask", bool_, axes)
            e.emit("vcmp", e.view(out, axes), numbers, 0.0, mode="ne")
            return e.view(out, axes)
        out = e.tile("whole", dtype, axes)
        e.emit("vbrc", e.view(out, axes), e.view(tile, axes))
        return e.view(out, axes)

    def whole_second(self, kept: Kept, dtype: DType, axes: Axes) -> Operand:
        return kept.value if isinstance(kept, Constant) else self.whole(kept, dtype, axes)

    def mask(self, m: Relative) -> Tile:
        """The mask's bits."""
        e = self.e
        difference = self._difference(m.row, m.column)
        out = e.tile("mask", bool_, difference.axes)
        views = [e.view(t, difference.axes) for t in (out, difference)]
        e.emit("vcmp", views[0], views[1], m.threshold, mode=m.mode)
        return out

    def _nonzero(self, x: Tile) -> Tile:
        out = self.e.tile("mask", bool_, x.axes)
        views = [self.e.view(t, x.axes) for t in (out, x)]
        self.e.emit("vcmp", *views, 0.0, mode="ne")
        return out

    def _difference(self, row: str, column: str) -> Tile:
        """index(column) - index(row) within their blocks, f32, for the largest block."""
        known = self._differences.get((row, column))
        if known is not None:
            return known
        e = self.e
        with self._at_start():
            parts = [self.tile(Affine(a, 0), f32, ()) for a in (column, row)]
            out = e.tile("difference", f32, (row, column))
            views = [e.view(t, out.axes) for t in (out, *parts)]
            e.emit("vsub", *views)
        self._differences[row, column] = out
        return out

    @contextmanager
    def _at_start(self) -> Iterator[None]:
        """What is emitted within goes to the function's start, where all axes are whole blocks."""
        e = self.e
        ranges, body = e.ranges, e.body
        e.ranges = {a: Range(0, r.cap, r.cap) for a, r in ranges.items()}
        e.body = self.prologue
        try:
            yield
        finally:
            e.ranges, e.body = ranges, body
