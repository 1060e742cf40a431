"""The passes every target shares. Each file is one function from IR to IR with its goals on top."""

from __future__ import annotations

from collections.abc import Callable

from terrazzo.ir.ops import Kernel
from terrazzo.ir.passes.accumulate import accumulate
from terrazzo.ir.passes.dead import drop_dead
from terrazzo.ir.passes.simplify import simplify

Pass = Callable[[Kernel], Kernel]


def pipeline() -> tuple[tuple[str, Pass], ...]:
    """Passes in order, by name."""
    return (
        ("simplify", simplify),  # first: later passes see one value for one meaning
        ("dead", drop_dead),  # simplify leaves behind what it replaced
        ("accumulate", accumulate),  # needs single uses, so after dead code is gone
    )
