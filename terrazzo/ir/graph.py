"""Questions about a kernel's values: who defines them, who uses them, what they depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from terrazzo.ir.ops import (
    Block,
    Carry,
    Expect,
    Kernel,
    Load,
    Loop,
    LoopVar,
    Op,
    Stmt,
    Store,
    Whole,
)
from terrazzo.ir.types import Value

Def = Op | Load | Carry | LoopVar


def index_values(stmt: Load | Store) -> tuple[Value, ...]:
    """The values among a load's or store's index entries."""
    return tuple(e for e in stmt.index if isinstance(e, Value))


def index_axes(stmt: Load | Store) -> tuple[str, ...]:
    """Axes of the index in order of first appearance."""
    out: dict[str, None] = {}
    for e in stmt.index:
        if isinstance(e, (Whole, Block)):
            out[e.axis] = None
        else:
            out.update(dict.fromkeys(e.axes))
    return tuple(out)


def operands(stmt: Op | Load | Store | Expect) -> tuple[Value, ...]:
    if isinstance(stmt, Op):
        return stmt.args
    if isinstance(stmt, Expect):
        return (stmt.condition,)
    if isinstance(stmt, Load):
        return index_values(stmt)
    return (stmt.value, *index_values(stmt))


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, outer before inner, in order."""
    for s in body:
        yield s
        if isinstance(s, Loop):
            yield from walk(s.body)


@dataclass
class Graph:
    """`defs` by value id; `loops` by block axis name or id of a scalar loop variable."""

    kernel: Kernel

    def __post_init__(self) -> None:
        self.defs: dict[int, Def] = {}
        self.loop_of: dict[str, tuple[Loop, LoopVar]] = {}
        for s in walk(self.kernel.body):
            if isinstance(s, (Op, Load)):
                self.defs[s.result.id] = s
            elif isinstance(s, Loop):
                for v in s.vars:
                    self.loop_of[v.name] = (s, v)
                    if v.var is not None:
                        self.defs[v.var.id] = v
                for c in s.carries:
                    self.defs[c.var.id] = c
                    self.defs[c.result.id] = c

    def op(self, v: Value) -> Op | None:
        d = self.defs[v.id]
        return d if isinstance(d, Op) else None

    def args(self, v: Value) -> tuple[Value, ...]:
        """Direct operands; a loop-carried value or a loop variable has none."""
        d = self.defs[v.id]
        return operands(d) if isinstance(d, (Op, Load)) else ()

    def const(self, v: Value) -> int | float | None:
        d = self.defs[v.id]
        if isinstance(d, Op) and d.op == "const":
            value = d.attr("value")
            return value if isinstance(value, (int, float)) else None
        return None
