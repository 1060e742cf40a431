"""Which names a loop carries from trip to trip, and what they are after it.

A name bound to a tile or a number before the loop and assigned in its body is carried, unless the
body merely uses the name anew (assigns before it reads, another type). Anything else keeps its
value of before the loop, and is an error where the body both reads and then changes it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Carry
from terrazzo.ir.types import Value
from terrazzo.lang import arith
from terrazzo.lang.symbols import Memory, Tile, View, describe
from terrazzo.lang.trace import Builder


@dataclass(frozen=True)
class Gone:
    """Stands for a name that cannot be read here, and why."""

    what: str
    remedy: str


@dataclass(eq=False)
class Outer:
    """A name that keeps its value of before the loop; `read` is where the body reads it."""

    value: Any
    read: ast.AST | None = None


class LoopNames:
    """The names of one loop. `at` gives a context that places errors at a node."""

    def __init__(
        self,
        names: dict[str, Any],
        builder: Builder,
        assigned_at: dict[str, ast.AST],
        at: Callable[[ast.AST], Any],
    ) -> None:
        self.names = names
        self.builder = builder
        self.assigned_at = assigned_at
        self.at = at
        self.assigned: list[str] = []
        self.before: dict[str, Any] = {}
        self.inits: dict[str, Value] = {}
        self.vars: dict[str, Value] = {}
        self.outers: dict[str, Outer] = {}

    def prepare(self, node: ast.For, assigned: list[str], carries: bool) -> None:
        """Before the body's scope opens: what could be carried gets its initial value."""
        self.assigned = assigned
        self.before = {
            n: self.names[n]
            for n in assigned
            if n in self.names and not isinstance(self.names[n], Gone)
        }
        with self.at(node.iter):
            for n, v in self.before.items():
                if carries and (isinstance(v, Tile) or type(v) in (int, float)):
                    self.inits[n] = arith.values("a loop", v)[0]

    def enter(self) -> None:
        """The body's scope is open: bind the names as its statements see them."""
        self.vars = {n: self.builder.new(v.type) for n, v in self.inits.items()}
        self.outers = {n: Outer(v) for n, v in self.before.items() if n not in self.inits}
        self.names.update({n: Tile(v) for n, v in self.vars.items()})
        self.names.update(self.outers)

    def leave(self, label: str, line: int, kind: str, own: list[str]) -> tuple[Carry, ...]:
        """After the body: close its scope, bind the names as the code after the loop sees them."""
        for n, outer in self.outers.items():
            if self.names[n] is not outer and outer.read is not None:
                with self.at(outer.read):
                    raise self._changed(n, outer, kind, line)
        after = {n: o.value for n, o in self.outers.items() if self.names[n] is o}
        nexts: dict[str, Value] = {}
        for n, var in self.vars.items():
            value = self.names[n]
            same = value is self.before[n] or (isinstance(value, Tile) and value.value == var)
            if same and var.id not in self.builder.used:
                after[n] = self.before[n]
            elif (next_ := self._next(n, value, var, line)) is not None:
                nexts[n] = next_
        self.builder.use(nexts.values())
        self.builder.leave()
        self.builder.use(self.inits[n] for n in nexts)
        carries = []
        for n, next_ in nexts.items():
            result = self.builder.new(next_.type)
            carries.append(Carry(self.inits[n], self.vars[n], next_, result))
            after[n] = Tile(result)
        for n in [*self.assigned, *own]:
            if n in after:
                self.names[n] = after[n]
            elif n in self.names:
                self.names[n] = Gone(
                    f"`{n}` exists only inside {label}",
                    "bind it before the loop to carry it out, or use it inside",
                )
        return tuple(carries)

    def _changed(self, name: str, outer: Outer, kind: str, line: int) -> KernelError:
        if kind == "grid":
            return KernelError(
                f"`{name}` goes from one block of the grid to the next (line {line})",
                "a grid's blocks run in any order: use tz.loop, or another name inside",
            )
        return KernelError(
            f"`{name}` is {describe(outer.value)} and changes from trip to trip (line {line})",
            "a loop carries tiles and numbers; use another name inside",
        )

    def _next(self, name: str, value: Any, var: Value, line: int) -> Value | None:
        """The value a name has after a trip; None where the body merely uses the name anew."""
        node = self.assigned_at[name]
        with self.at(node):
            if type(value) in (int, float):
                return arith.values("a loop", value, like=var.dtype)[0]
            if isinstance(value, (View, Memory)):
                value = value.lift()
            if isinstance(value, Tile) and value.value.type == var.type:
                return value.value
            if var.id not in self.builder.used:
                return None
            shown = value.value.type if isinstance(value, Tile) else describe(value)
            raise KernelError(
                f"`{name}` is {var.type} before the loop (line {line}) and {shown} after its body",
                "a carried value keeps type and axes: start from one like the result, "
                "e.g. tz.zeros(i, d)",
            )
