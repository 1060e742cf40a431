"""The source of a kernel: its AST, and places in it as `Loc` and as error texts with a caret."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Loc


class Source:
    """Lines and AST of one function, with columns and line numbers as in its file."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        name = getattr(fn, "__name__", repr(fn))
        try:
            lines, first = inspect.getsourcelines(fn)
        except (OSError, TypeError):
            raise KernelError(
                f"the source of kernel `{name}` cannot be read (defined in a REPL or by exec)",
                "put the kernel into a file",
            ) from None
        self.file = inspect.getsourcefile(fn) or "?"
        self.lines = [line.rstrip("\n") for line in lines]
        self.first = first
        self.text = "".join(lines)
        indented = self.lines[0][:1].isspace()
        # `if 1:` keeps the columns of an indented function; dedenting would shift them.
        tree = ast.parse(("if 1:\n" if indented else "") + self.text)
        ast.increment_lineno(tree, first - 1 - (1 if indented else 0))
        top = tree.body[0]
        node = top.body[0] if isinstance(top, ast.If) else top
        if not isinstance(node, ast.FunctionDef):
            raise KernelError(f"kernel `{name}` is not a plain function", "write it with def")
        self.function = node

    def loc(self, node: ast.AST) -> Loc:
        """Place of a node; one that spans lines is marked to the end of its first line."""
        line = getattr(node, "lineno", self.first)
        text = self.lines[line - self.first]
        raw = text.encode()
        col = len(raw[: getattr(node, "col_offset", 0)].decode())  # AST columns count bytes
        if getattr(node, "end_lineno", line) == line:
            end = len(raw[: getattr(node, "end_col_offset", len(raw))].decode())
        else:
            end = len(text)
        return Loc(self.file, line, col, end, text)


def locate(error: KernelError, loc: Loc) -> KernelError:
    """The same error with its place filled in."""
    indent = len(loc.text) - len(loc.text.lstrip())
    caret = " " * (loc.col - indent) + "^" * max(1, loc.end_col - loc.col)
    return type(error)(
        error.what,
        error.remedy,
        where=f"{loc.file}:{loc.line}:{loc.col + 1}",
        source=loc.text.strip(),
        caret=caret,
    )
