"""The words in which generated code reports a fault: what happened, in which statement, and a
number.

`control` block of a launch: { i32 cancel, i32 fault, i64 detail }; the first fault of a run is
kept. A detail names the statement by its place among all statements of the kernel after the passes
(`ir.graph.walk`), for an index also the dimension, and the offending number where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

NONFINITE, BOUNDS, EXPECTATION = 1, 2, 3
CONTROL = 2  # slot of the launch table
_STATEMENT, _DIMENSION = 40, 32  # first bit of each; below them the number, an i32


@dataclass(frozen=True)
class Detail:
    """`dimension` is -1 in the bounds of a loop."""

    statement: int
    dimension: int
    number: int

    @staticmethod
    def of(word: int) -> Detail:
        number = word & 0xFFFFFFFF
        dimension = (word >> _DIMENSION & 0xFF) - 1
        return Detail(word >> _STATEMENT, dimension, number - (number >> 31 << 32))


def pack(statement: int, dimension: int = -1) -> int:
    """The constant part of a detail."""
    return statement << _STATEMENT | (dimension + 1) << _DIMENSION
