"""The source of a kernel: its AST, and places in it as `Loc` and as error texts with a caret."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any
from weakref import WeakSet

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Loc


@lru_cache(maxsize=8)
def _module(text: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """The functions of a file by name and first line (its decorator's, as in code objects)."""
    out: dict[tuple[str, int], ast.FunctionDef] = {}
    todo: list[ast.AST] = [ast.parse(text)]
    while todo:  # statements only: walking every expression would take most of the time
        node = todo.pop()
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            out[node.name, first] = node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, [])
            todo += inner if isinstance(inner, list) else []
    return out


class Source:
    """The file of one function. Lines are read at once, so that later edits of the file do no harm;
    they are parsed when first needed, and again after `forget`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.name = fn.__name__
        code = fn.__code__
        self.file = code.co_filename
        self.first = code.co_firstlineno
        self.lines = linecache.getlines(self.file, fn.__globals__)
        if not self.lines:
            raise KernelError(
                f"the source of kernel `{self.name}` cannot be read (defined in a REPL or by exec)",
                "put the kernel into a file",
            )

    @cached_property
    def function(self) -> ast.FunctionDef:
        """The function's AST; its lines and columns are those of the file."""
        found = _module("".join(self.lines)).get((self.name, self.first))
        if found is None:
            raise KernelError(
                f"kernel `{self.name}` is not at line {self.first} of {self.file}",
                "the file changed after it was imported: start again",
            )
        _parsed.add(self)
        return found

    @property
    def text(self) -> str:
        """The function's lines, decorators included."""
        return "".join(self.lines[self.first - 1 : self.function.end_lineno])

    def loc(self, node: ast.AST) -> Loc:
        """Place of a node; one that spans lines is marked to the end of its first line."""
        line = getattr(node, "lineno", self.first)
        text = self.lines[line - 1].rstrip("\n")
        raw = text.encode()
        col = len(raw[: getattr(node, "col_offset", 0)].decode())  # AST columns count bytes
        if getattr(node, "end_lineno", line) == line:
            end = len(raw[: getattr(node, "end_col_offset", len(raw))].decode())
        else:
            end = len(text)
        return Loc(self.file, line, col, end, text)


_parsed: WeakSet[Source] = WeakSet()


def forget() -> None:
    """Lets go of what has been parsed, a megabyte for the kernels of a model: it is needed again
    only when a kernel is specialised anew, which parses the few files concerned."""
    for source in list(_parsed):
        source.__dict__.pop("function", None)
    _parsed.clear()
    _module.cache_clear()


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
