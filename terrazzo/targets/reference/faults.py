"""A fault found while a kernel runs, in its author's terms: place, caret, numbers, remedy."""

from __future__ import annotations

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Loc


def fault(loc: Loc | None, what: str, remedy: str = "") -> KernelError:
    """The KernelError to raise for `what` at `loc` (None: a kernel built without source)."""
    if loc is None:
        return KernelError(what, remedy)
    indent = len(loc.text) - len(loc.text.lstrip())
    return KernelError(
        what,
        remedy,
        where=f"{loc.file}:{loc.line}:{loc.col + 1}",
        source=loc.text.strip(),
        caret=" " * (loc.col - indent) + "^" * max(1, loc.end_col - loc.col),
    )
