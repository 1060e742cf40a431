"""What one core is given to do, without numbers and without time: its trace.

A trace is a tree of interned nodes. A `Node` is a straight list of items, among them loops; a
`Loop` lists the node of each trip. What does the same is the same object: trips of a loop, and the
whole traces of cores with the same work, which are simulated once. A loop body is walked once for
every different value of its key (`keys.py`), which is computed for all trips at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from terrazzo.targets.davinci import keys
from terrazzo.targets.davinci.cost import LINE, Shape
from terrazzo.targets.davinci.expr import Expr, Scalar, add, compiled_all, names
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import (
    Buffer, CoreFn, CrossSet, CrossWait, For, Gm, If, Instr, Let, PipeBarrier, SetFlag, Stmt, View,
    WaitFlag, views, walk,
)  # fmt: skip

Env = dict[str, Any]
# An item: ("do", instruction's number) · ("set" | "wait", (src, dst, event)) · ("barrier", pipe) ·
# ("raise" | "take", pipe, cross flag) · ("loop", Loop); and the statement, for messages.
Item = tuple[str, Any, Any]


@dataclass(eq=False)
class Node:
    items: tuple[Item, ...]


@dataclass(eq=False)
class Loop:
    """The node of each trip. `repeats(j, d)`: how many trips from `j` on equal those `d` before."""

    trips: list[Node]
    runs: dict[int, list[int]] = field(default_factory=dict)

    def repeats(self, j: int, d: int) -> int:
        if d not in self.runs:
            run, count = [0] * (len(self.trips) + 1), 0
            for i in range(len(self.trips) - 1, d - 1, -1):
                count = count + 1 if self.trips[i] is self.trips[i - d] else 0
                run[i] = count
            self.runs[d] = run
        return self.runs[d][j]


@dataclass(eq=False)
class Step:
    """A statement with its expressions compiled. `key`: expressions its trace hangs on."""

    stmt: Stmt
    read: Callable[..., Any]
    exprs: tuple[Scalar, ...]
    offsets: tuple[Scalar, ...] = ()  # of an instruction's views, in elements
    body: tuple[Step, ...] = ()
    sets: frozenset[str] = frozenset()  # counters set inside
    key: Callable[..., tuple[Any, ...]] | None = None
    key_arrays: Callable[..., tuple[Any, ...]] | None = None
    known: dict[tuple[Any, ...], Node] = field(default_factory=dict)


class Tracer:
    """Traces of all cores of one function. `tensors`: index tensors that expressions load."""

    def __init__(self, fn: CoreFn, tensors: Mapping[str, np.ndarray]) -> None:
        self.fn = fn
        self.gm = tensors
        self.works: list[tuple[Instr, tuple[Shape, ...]]] = []  # by an instruction's number
        self._numbers: dict[tuple[int, Any], int] = {}
        self._nodes: dict[tuple[Any, ...], Node] = {}
        self._loops: dict[tuple[Node, ...], Loop] = {}
        inlined, self.counters = _settled(fn.body)
        self.steps = _steps(fn.body, inlined, self.counters)

    def trace(self, env: Mapping[str, Any]) -> Node:
        """`env`: values of "core", "half" and the scalar parameters."""
        return self._node(self.steps, dict(env))

    def _node(self, steps: tuple[Step, ...], env: Env) -> Node:
        items: list[Item] = []
        self._visit(steps, env, items)
        content = tuple((kind, what) for kind, what, _ in items)
        node = self._nodes.get(content)
        if node is None:
            node = self._nodes[content] = Node(tuple(items))
        return node

    def _visit(self, steps: tuple[Step, ...], env: Env, items: list[Item]) -> None:
        for step in steps:
            s = step.stmt
            match s:
                case Instr():
                    items.append(("do", self._number(step, env), s))
                case SetFlag() | WaitFlag():
                    (event,) = step.read(env, self.gm)
                    kind = "set" if isinstance(s, SetFlag) else "wait"
                    items.append((kind, (s.src, s.dst, event), s))
                case PipeBarrier():
                    items.append(("barrier", s.pipe, s))
                case CrossSet() | CrossWait():
                    (flag,) = step.read(env, self.gm)
                    kind = "raise" if isinstance(s, CrossSet) else "take"
                    items.append((kind, (s.pipe, flag), s))
                case Let():
                    (env[s.name],) = step.read(env, self.gm)
                case If():
                    (condition,) = step.read(env, self.gm)
                    if condition:
                        self._visit(step.body, env, items)
                case For():
                    trips = self._trips(step, s, env)
                    if trips:
                        loop = self._loops.setdefault(trips, Loop(list(trips)))
                        items.append(("loop", loop, s))

    def _number(self, step: Step, env: Env) -> int:
        values = step.read(env, self.gm)
        at = (id(step), values)
        number = self._numbers.get(at)
        if number is None:
            assert isinstance(step.stmt, Instr)
            number = self._numbers[at] = len(self.works)
            self.works.append((step.stmt, _shapes(step.stmt, values)))
        return number

    def _trips(self, step: Step, s: For, env: Env) -> tuple[Node, ...]:
        lo, hi, stride = step.read(env, self.gm)
        values = range(lo, hi, stride)
        assert step.key is not None and step.key_arrays is not None
        if step.sets or len(values) < 8:
            return tuple(self._trip(step, s, env, value) for value in values)
        count = len(values)
        columns = [
            np.broadcast_to(column, (count,))
            for column in step.key_arrays(env | {s.var: np.arange(lo, hi, stride)}, self.gm)
        ]
        if not columns:
            return (self._trip(step, s, env, lo),) * count
        _, first, which = np.unique(
            np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True
        )
        nodes = [self._trip(step, s, env, values[int(i)]) for i in first]
        return tuple(nodes[i] for i in which.reshape(-1).tolist())

    def _trip(self, step: Step, s: For, env: Env, value: int) -> Node:
        env[s.var] = value
        assert step.key is not None
        key = step.key(env, self.gm)
        node = step.known.get(key)
        if node is None:
            node = step.known[key] = self._node(step.body, env)
        elif step.sets:
            self._count(step.body, env)
        return node

    def _count(self, steps: tuple[Step, ...], env: Env) -> None:
        """Only what the counters become."""
        for step in steps:
            s = step.stmt
            if isinstance(s, Let):
                (env[s.name],) = step.read(env, self.gm)
            elif step.sets and isinstance(s, If):
                (condition,) = step.read(env, self.gm)
                if condition:
                    self._count(step.body, env)
            elif step.sets and isinstance(s, For):
                for env[s.var] in range(*step.read(env, self.gm)):
                    self._count(step.body, env)


def _shapes(instr: Instr, values: tuple[Any, ...]) -> tuple[Shape, ...]:
    found, at = [], 0
    for v in views(instr):
        n = len(v.sizes)
        found.append(Shape(values[at : at + n], values[at + n : at + 2 * n], values[at + 2 * n]))
        at += 2 * n + 1
    return tuple(found)


def _settled(body: tuple[Stmt, ...]) -> tuple[dict[str, Scalar], frozenset[str]]:
    """Variables set once, before they are read and from settled ones only, with their values; and
    the other ones that are set, the counters."""
    times: dict[str, int] = {}
    for s in walk(body):
        if isinstance(s, Let):
            times[s.name] = times.get(s.name, 0) + 1
    inlined: dict[str, Scalar] = {}
    counters: set[str] = {name for name, n in times.items() if n > 1}
    seen: set[str] = set()
    for s in walk(body):
        read = set().union(*map(names, _scalars(s)))
        if isinstance(s, Let) and s.name not in counters:
            if s.name in seen | read or read & counters:
                counters.add(s.name)
            else:
                inlined[s.name] = keys.substitute(s.value, inlined)
        seen |= read
    return inlined, frozenset(counters)


def _scalars(s: Stmt) -> tuple[Scalar, ...]:
    """What a trace hangs on in one statement, in the order that `Tracer` reads it."""
    match s:
        case Instr():
            return tuple(e for v in views(s) for e in (*v.sizes, *v.strides, _place(v, s)))
        case SetFlag() | WaitFlag():
            return (s.event,)
        case CrossSet() | CrossWait():
            return (s.flag,)
        case Let():
            return (s.value,)
        case For():
            return (s.lo, s.hi, s.step)
        case If():
            return (s.condition,)
        case _:
            return ()


def _place(v: View, s: Instr) -> Scalar:
    """The address as far as time hangs on it."""
    at = keys.bytes_of(v.offset, v.dtype.bits)
    if isinstance(v.memory, Gm):
        return keys.remainder(at, LINE)
    if TABLE[s.op].pipe != "V":
        return 0
    return add(slot_address(v.memory, v.slot), at)


def slot_address(buffer: Buffer, slot: Scalar) -> Scalar:
    """First byte of `slot`, counted modulo the buffer's slots."""
    addresses = buffer.addresses or (0,)
    if len(addresses) == 1:
        return addresses[0]
    which = keys.remainder(slot, len(addresses))
    if not isinstance(which, Expr):
        return addresses[int(which)]
    stride = addresses[1] - addresses[0]
    if all(a == addresses[0] + i * stride for i, a in enumerate(addresses)):
        return add(addresses[0], keys.mul(which, stride))
    chosen: Scalar = addresses[-1]
    for i, a in reversed(list(enumerate(addresses[:-1]))):
        chosen = Expr("select", (Expr("eq", (which, i)), a, chosen))
    return chosen


def _steps(
    body: Iterable[Stmt], inlined: dict[str, Scalar], counters: frozenset[str]
) -> tuple[Step, ...]:
    made = []
    for s in body:
        if isinstance(s, Let) and s.name in inlined:
            continue
        exprs = tuple(keys.substitute(e, inlined) for e in _scalars(s))
        step = Step(s, compiled_all(exprs), exprs)
        if isinstance(s, Instr):
            step.offsets = tuple(keys.substitute(v.offset, inlined) for v in views(s))
        if isinstance(s, Let):
            step.sets = frozenset((s.name,))
        if isinstance(s, (For, If)):
            step.body = _steps(s.body, inlined, counters)
            step.sets = frozenset().union(*(b.sets for b in step.body))
        if isinstance(s, For):
            key = list(dict.fromkeys(_hangs_on(step.body, frozenset(), counters)))
            step.key, step.key_arrays = compiled_all(key), compiled_all(key, arrays=True)
        made.append(step)
    return tuple(made)


def _hangs_on(
    steps: tuple[Step, ...], local: frozenset[str], counters: frozenset[str]
) -> list[Expr]:
    found: list[Expr] = []
    for step in steps:
        s = step.stmt
        for e in step.exprs:
            # A counter's own step matters, its value only where it is read.
            terms = [t for t in keys.terms(e) if t != Expr("var", (s.name,))] \
                if isinstance(s, Let) else [e]
            for term in terms:
                found += keys.parts(term, local, counters)
        inner = local | {s.var} if isinstance(s, For) else local
        found += _hangs_on(step.body, inner, counters)
    return found
