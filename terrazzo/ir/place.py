"""Errors at a place in a kernel's source."""

from __future__ import annotations

from typing import TypeVar

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Loc

E = TypeVar("E", bound=KernelError)


def mark(error: E, loc: Loc | None) -> E:
    """The same error, with its place filled in (None: a kernel that was built without source)."""
    if loc is not None:
        indent = len(loc.text) - len(loc.text.lstrip())
        error.where = f"{loc.file}:{loc.line}:{loc.col + 1}"
        error.source = loc.text.strip()
        error.caret = " " * (loc.col - indent) + "^" * max(1, loc.end_col - loc.col)
    return error


def snippet(loc: Loc) -> str:
    """The marked text itself."""
    return loc.text[loc.col : loc.end_col]
