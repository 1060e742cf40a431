"""Levels: how far apart the parts of a loop may run that go back and forth between cube and vector.

In attention a trip's scores (cube) become weights (vector), which become values (cube), which are
merged (vector). Run trip after trip, each core would wait for the other. A statement's level is the
number of times that data has crossed on the way to it within a trip; on one core, the statements of
a later level work on an earlier trip than those of the first one (software pipelining).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from terrazzo.ir.graph import Graph, operands, walk
from terrazzo.ir.ops import Load, Loop, Op, Stmt
from terrazzo.ir.types import Value
from terrazzo.targets.davinci.program import CoreKind
from terrazzo.targets.davinci.split import Split


@dataclass(frozen=True)
class Group:
    """Statements of one level. They run `shift` trips behind the first group. slots: by id, of
    values that later groups read: how many trips' worth are alive."""

    statements: tuple[Stmt, ...]
    shift: int
    slots: Mapping[int, int]


def groups(graph: Graph, parts: Split, loop: Loop, kind: CoreKind, ahead: int) -> list[Group]:
    """The loop's body for one kind of core. One group if nothing goes to and fro in it."""
    body = loop.body
    made = _made(body)
    inner = set(made)
    if not (inner & parts.to_vector.keys() and inner & parts.to_cube.keys()) or ahead < 1:
        return [Group(body, 0, {})]
    level = _levels(graph, parts, loop, made)
    own = sorted({level[id(s)] for s in body if _kind(parts, s) == kind and _works(parts, s)})
    if len(own) < 2:
        return [Group(body, 0, {})]
    each = ahead if kind == "cube" else max(1, ahead - 1)
    shift = {lv: n * each for n, lv in enumerate(own)}
    out: list[Group] = []
    for n, lv in enumerate(own):
        low = own[n - 1] if n else -1
        mine = tuple(s for s in body if low < level[id(s)] <= lv or (lv == own[-1]
                     and level[id(s)] > lv))  # fmt: skip
        out.append(Group(mine, shift[lv], {}))
    at = {i: g.shift for g in out for i in _made(g.statements)}
    slots: dict[int, int] = {}
    for g in out:
        for s in walk(g.statements):
            for v in _reads(s):
                if v.id in at and at[v.id] < g.shift:
                    slots[v.id] = max(slots.get(v.id, 1), g.shift - at[v.id] + 1)
    return [Group(g.statements, g.shift, slots) for g in out]


def _works(parts: Split, s: Stmt) -> bool:
    """Whether the statement is work, not a scalar or a load that goes wherever it is used."""
    return (isinstance(s, Op) and bool(s.result.axes)) or isinstance(s, Loop)


def _kind(parts: Split, s: Stmt) -> CoreKind:
    if isinstance(s, Op) and s.op in ("dot", "dot_acc"):
        return "cube"
    if isinstance(s, Loop) and any(
        isinstance(x, Op) and x.op in ("dot", "dot_acc") for x in walk(s.body)
    ):
        return "cube"
    return "vector"


def _made(body: tuple[Stmt, ...]) -> dict[int, Stmt]:
    """Value id -> the statement of `body` that makes it."""
    out: dict[int, Stmt] = {}
    for s in body:
        if isinstance(s, (Op, Load)):
            out[s.result.id] = s
        elif isinstance(s, Loop):
            for c in s.carries:
                out[c.result.id] = s
    return out


def _reads(s: Stmt) -> tuple[Value, ...]:
    if isinstance(s, Loop):
        return tuple(c.init for c in s.carries) + tuple(v for x in s.body for v in _reads(x))
    return operands(s)


def _levels(graph: Graph, parts: Split, loop: Loop, made: Mapping[int, Stmt]) -> dict[int, int]:
    """By id of the statement. Readers and the maker of a carried value have one level."""
    level = {id(s): 0 for s in loop.body}
    changed = True
    while changed:
        changed = False
        for s in loop.body:
            least = level[id(s)]
            for v in _reads(s):
                source = made.get(v.id)
                if source is not None and source is not s:
                    crossed = _works(parts, source) and _kind(parts, source) != _kind(parts, s)
                    least = max(least, level[id(source)] + crossed)
            if least > level[id(s)]:
                level[id(s)], changed = least, True
        for c in loop.carries:
            maker = made.get(c.next.id)
            tied = [s for s in loop.body if any(v.id == c.var.id for v in _reads(s))]
            if maker is not None:
                tied.append(maker)
            top = max((level[id(s)] for s in tied), default=0)
            for s in tied:
                if level[id(s)] < top:
                    level[id(s)], changed = top, True
    return level
