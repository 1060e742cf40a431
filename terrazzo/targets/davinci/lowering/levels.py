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
from terrazzo.ir.ops import Load, Loop, Op, Stmt, Store
from terrazzo.ir.types import Value
from terrazzo.targets.davinci.lowering.split import Split
from terrazzo.targets.davinci.program import CoreKind


@dataclass(frozen=True)
class Group:
    """Statements of one level. They run `shift` trips behind the first group. slots: by id, of
    values that later groups read: how many trips' worth are alive."""

    statements: tuple[Stmt, ...]
    shift: int
    slots: Mapping[int, int]


def groups(graph: Graph, parts: Split, loop: Loop, kind: CoreKind, ahead: int) -> list[Group]:
    """The loop's body for one kind of core. One group if nothing goes to and fro in it.

    Work that hangs on a crossing or a carried value, or is handed over, is done once, in the group
    of its level. A value received goes to the first group that reads it. Everything else (indices,
    scalars, loads) is cheap, and is done in every group that reads it, for that group's trip."""
    body = loop.body
    made = _made(body)
    if ahead < 1 or not (
        made.keys() & parts.to_vector.keys() and made.keys() & parts.to_cube.keys()
    ):
        return [Group(body, 0, {})]
    level = _levels(parts, loop, made)
    if level is None:
        return [Group(body, 0, {})]
    once = {id(s) for s in body if _once(parts, loop, s, kind, level)}
    own = sorted({level[id(s)] for s in body if id(s) in once})
    if len(own) < 2:
        return [Group(body, 0, {})]
    each = ahead if kind == "cube" else max(1, ahead - 1)
    chosen: list[tuple[Stmt, ...]] = []
    received: set[int] = set()
    for lv in own:
        wanted = [s for s in body if id(s) in once and level[id(s)] == lv]
        mine = {id(s) for s in wanted}
        while wanted:
            for v in _reads(wanted.pop()):
                source = made.get(v.id)
                if source is None or id(source) in mine | once | received:
                    continue
                mine.add(id(source))
                if _kind(parts, source) == kind or not _works(parts, source):
                    wanted.append(source)
                else:
                    received.add(id(source))
        chosen.append(tuple(s for s in body if id(s) in mine))
    shifts = [n * each for n in range(len(own))]
    at: dict[int, int] = {}
    for statements, shift in zip(chosen, shifts, strict=True):
        for s in statements:
            if id(s) in once or id(s) in received:
                at.update(dict.fromkeys(_made((s,)), shift))
    slots: dict[int, int] = {}
    for statements, shift in zip(chosen, shifts, strict=True):
        for v in (v for s in walk(statements) for v in _reads(s)):
            if at.get(v.id, shift) < shift:
                slots[v.id] = max(slots.get(v.id, 1), shift - at[v.id] + 1)
    return [Group(b, shift, slots) for b, shift in zip(chosen, shifts, strict=True)]


def _once(parts: Split, loop: Loop, s: Stmt, kind: CoreKind, level: Mapping[int, int]) -> bool:
    """Whether `s` is work of this kind of core that must not be done in two groups."""
    if isinstance(s, Store):
        return kind == ("cube" if id(s) in parts.direct else "vector")
    if not _works(parts, s) or _kind(parts, s) != kind:
        return False
    if kind == "cube" or level[id(s)] > 0 or isinstance(s, Loop):
        return True
    tied = {c.next.id for c in loop.carries}
    carried = {c.var.id for c in loop.carries}
    out = _made((s,)).keys()
    return bool(out & (parts.to_cube.keys() | tied)) or any(v.id in carried for v in _reads(s))


def _works(parts: Split, s: Stmt) -> bool:
    """Whether the statement is work, not a scalar, a load that goes wherever it is used, or an
    index that only addresses one."""
    if not isinstance(s, Op):
        return isinstance(s, Loop)
    return bool(s.result.axes) and (s.result.id in parts.needed or s.result.id in parts.cube)


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


def _levels(parts: Split, loop: Loop, made: Mapping[int, Stmt]) -> dict[int, int] | None:
    """By id of the statement. Readers and the maker of a carried value have one level; None if what
    a trip hands to the next crosses on its way, since then trips cannot overlap."""
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
        if max(level.values()) > len(loop.body):
            return None
    return level
