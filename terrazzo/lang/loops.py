"""`tz.grid` and `tz.loop`: what a kernel's `for` iterates over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from terrazzo.errors import KernelError
from terrazzo.ir.types import Value, i32
from terrazzo.lang import arith
from terrazzo.lang.symbols import Dim, Operand, describe


@dataclass(frozen=True)
class Range:
    """One variable: bounds (i32 scalars), step (None: scalar index), its dim ("" if none)."""

    lo: Value
    hi: Value
    step: int | None
    dim: str


@dataclass(frozen=True)
class Spec:
    """A grid (any order, parallel) or a loop (in order)."""

    kind: str
    ranges: tuple[Range, ...]
    stages: int = 1

    def __iter__(self) -> Any:
        raise KernelError(
            f"tz.{self.kind} outside of the kernel's own `for`",
            "loops belong in the @tz.kernel function itself",
        )


def grid(*axes: Any, step: Any = None, of: Any = None) -> Any:
    """Blocks (step given) or indices (step None) of each axis, in any order and in parallel."""
    if not axes:
        raise KernelError("tz.grid needs at least one dim", "as in tz.grid(rows, step=8)")
    steps = step if isinstance(step, tuple) else (step,) * len(axes)
    dims = of if isinstance(of, tuple) else (of,) * len(axes)
    if len(steps) != len(axes):
        raise KernelError(
            f"tz.grid has {len(axes)} axes and {len(steps)} steps",
            "one step an axis; None for an index",
        )
    if len(dims) != len(axes):
        raise KernelError(f"tz.grid has {len(axes)} axes and {len(dims)} in of=", "one dim an axis")
    return Spec(
        "grid",
        tuple(_range("tz.grid", 0, a, s, d) for a, s, d in zip(axes, steps, dims, strict=True)),
    )


def loop(
    lo: Any, hi: Any = None, *, step: int | None = None, of: Any = None, stages: int = 1
) -> Any:
    """`loop(n)` or `loop(lo, hi)` in order; with `step` the variable is a block of the dim `of`.

    `of` may be left out where `hi` is itself a dim. `stages`: so many buffers in flight.
    """
    if hi is None:
        lo, hi = 0, lo
    if not isinstance(stages, int) or stages < 1:
        raise KernelError(f"stages={stages!r} is not a positive number")
    return Spec("loop", (_range("tz.loop", lo, hi, step, of),), stages)


def _range(what: str, lo: Any, hi: Any, step: Any, of: Any) -> Range:
    if isinstance(step, Dim):
        step = step.lift()
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        shown = "a run-time value" if isinstance(step, Operand) else repr(step)
        raise KernelError(
            f"{what}: step is {shown}", "a step is a compile-time number: a tz.const or a literal"
        )
    if step is not None and step < 1:
        raise KernelError(f"{what}: step is {step}", "a step is at least 1")
    if of is None and isinstance(hi, Dim):
        of = hi
    if of is not None and not isinstance(of, Dim):
        raise KernelError(f"{what}: of={describe(of)} is not a dim")
    if step is not None and of is None:
        raise KernelError(f"{what}: blocks of which dim? The bound is not a dim", "say it: of=dim")
    values = []
    for bound in (lo, hi):
        (v,) = arith.values(what, bound, like=i32)
        if v.axes or v.dtype != i32:
            raise KernelError(f"{what}: a bound is {v.type}", "bounds are i32 scalars")
        values.append(v)
    return Range(values[0], values[1], step, of.name if of is not None else "")
