"""Grids: which block of a phase's grid a core works on when.

A phase's blocks are numbered row by row (the last variable fastest), perhaps in another order for
the sake of the L2 cache, and dealt out in turns: core c takes blocks c, c + cores, c + 2 · cores …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from terrazzo.targets.davinci.expr import Scalar, add, ceil_div, make, mul, sub
from terrazzo.targets.davinci.lowering.tiles import Range


@dataclass(frozen=True)
class GridAxis:
    """A grid variable: indices lo .. hi of its dim, in blocks of `step` (None: one by one, and the
    variable is a number). `extent` is the dim's."""

    name: str
    lo: Scalar
    hi: Scalar
    step: int | None
    extent: int

    @property
    def blocks(self) -> Scalar:
        return ceil_div(sub(self.hi, self.lo), self.step or 1)


def balanced(axes: Sequence[GridAxis], cores: int, granule: int) -> tuple[GridAxis, ...]:
    """The same grid in equal blocks. Steps are upper bounds: a grid of one blocked variable gets
    as many blocks as fill whole rounds of all cores, in multiples of `granule` indices."""
    blocked = [a for a in axes if a.step is not None]
    whole = [a for a in axes if a.step is None]
    if len(blocked) != 1 or not all(isinstance(x, int) for a in axes for x in (a.lo, a.hi)):
        return tuple(axes)
    (axis,) = blocked
    length = int(axis.hi) - int(axis.lo)  # type: ignore[arg-type]
    others = 1
    for a in whole:
        others *= max(1, int(a.hi) - int(a.lo))  # type: ignore[arg-type]
    blocks = -(-length // (axis.step or 1))
    rounds = -(-blocks * others // cores)
    wanted = max(blocks, rounds * cores // others)
    step = -(-length // wanted)
    step = min(axis.step or 1, -(-step // granule) * granule)
    return tuple(GridAxis(a.name, a.lo, a.hi, step, a.extent) if a is axis else a for a in axes)


def place(axes: Sequence[GridAxis], block: Scalar, swizzle: int) -> list[Scalar]:
    """Each variable's block number, for the block of that number.

    `swizzle` s > 1, for two variables: blocks go column by column through bands of s rows, so that
    cores at work at one time share rows and columns of the operands."""
    counts = [a.blocks for a in axes]
    if len(axes) == 2 and swizzle > 1:
        rows, columns = counts
        band = mul(columns, swizzle)
        first = mul(make("div", block, band), swizzle)
        height = make("min", swizzle, sub(rows, first))
        within = make("mod", block, band)
        return [add(first, make("mod", within, height)), make("div", within, height)]
    out: list[Scalar] = []
    rest = block
    for count in reversed(counts[1:]):
        out.append(make("mod", rest, count))
        rest = make("div", rest, count)
    return [rest, *reversed(out)]


def block_range(axis: GridAxis, number: Scalar) -> Range:
    """Where block `number` of a blocked variable lies."""
    step = axis.step or 1
    start = add(axis.lo, mul(number, step))
    return Range(start, size_of(start, axis.lo, axis.hi, step), min(step, axis.extent))


def size_of(start: Scalar, lo: Scalar, hi: Scalar, step: int) -> Scalar:
    """The extent of the block that begins at `start`: `step`, but what is left for the last."""
    if isinstance(lo, int) and isinstance(hi, int):
        if hi - lo <= step:
            return hi - lo
        if (hi - lo) % step == 0:
            return step
    return make("min", step, sub(hi, start))
