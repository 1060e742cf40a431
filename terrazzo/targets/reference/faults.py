"""A fault found while a kernel runs, in its author's terms: place, caret, numbers, remedy."""

from __future__ import annotations

from terrazzo.errors import KernelFault
from terrazzo.ir.ops import Loc
from terrazzo.ir.place import mark


def fault(loc: Loc | None, what: str, remedy: str = "") -> KernelFault:
    """The KernelFault to raise for `what` at `loc` (None: a kernel built without source)."""
    return mark(KernelFault(what, remedy), loc)
