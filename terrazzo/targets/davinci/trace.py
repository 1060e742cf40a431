"""What one core is given to do, without numbers and without time: its trace.

A trace is a tree of interned parts, known by number. A *node* is a list of items, among them loops;
a *loop* is the tuple of its trips' nodes. What does the same has the same number: trips, blocks,
and the whole traces of cores with the same work. A loop body is walked once for every value of its
key: the expressions over variables from outside that decide sizes, order and costs inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import lcm
from typing import Any

import numpy as np

from terrazzo.ir.ops import Loc
from terrazzo.targets.davinci import terms
from terrazzo.targets.davinci.cost import LINE, Shape, Work
from terrazzo.targets.davinci.expr import Expr, Scalar, add, compiled_all, names
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    CrossSet,
    CrossWait,
    For,
    Gm,
    If,
    Instr,
    Let,
    Pipe,
    PipeBarrier,
    SetFlag,
    Stmt,
    View,
    WaitFlag,
    views,
    walk,
)  # fmt: skip

PIPES: tuple[Pipe, ...] = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
PIPE = {name: i for i, name in enumerate(PIPES)}
ALL = len(PIPES)  # a barrier for all pipes
DO, SET, WAIT, BARRIER, RAISE, TAKE, LOOP = range(7)
# (kind, pipe's number, what): an instruction's number · (src, dst, event) · a cross flag · a loop's
# number (pipe 0).
Item = tuple[int, int, Any]
Env = dict[str, Any]
Read = Callable[[Env, Any], tuple[Any, ...]]


@dataclass(eq=False)
class _Step:
    """A statement, compiled. `reads`: what its trace hangs on; a loop's `key` and `counters` what
    its body does. `known`: (node, counters after it) of a trip, by key and counters before."""

    stmt: Stmt
    reads: tuple[Scalar, ...]
    read: Read
    body: tuple[_Step, ...] = ()
    key: Read | None = None
    key_arrays: Read | None = None
    counters: tuple[str, ...] = ()
    known: dict[Any, tuple[int, tuple[Any, ...]]] = field(default_factory=dict)


class Tracer:
    """Traces of all cores of one function. `cost` says what an instruction demands; instructions
    that demand the same are one. `tensors`: index tensors that expressions load."""

    def __init__(
        self, fn: CoreFn, tensors: Mapping[str, np.ndarray],
        cost: Callable[[Instr, tuple[Shape, ...]], Work],
    ) -> None:  # fmt: skip
        self.gm, self.cost = tensors, cost
        self.instrs: list[tuple[Instr, tuple[Shape, ...]]] = []  # by an instruction's number
        self.nodes: list[tuple[Item, ...]] = []
        self.loops: list[tuple[int, ...]] = []
        self.locs: dict[Item, Loc | None] = {}
        self._numbers: dict[Any, int] = {}
        self._known: dict[Any, int] = {}
        settled, counters = _settled(fn.body)
        steps = tuple(_steps(fn.body, settled, counters))
        self._moduli = _moduli(steps, counters)
        self._root = steps

    def trace(self, env: Mapping[str, Any]) -> int:
        """The node of one core's whole work. `env`: values of "core", "half" and the scalar
        parameters."""
        return self._node(self._root, dict(env))

    def counts(self, root: int) -> dict[int, int]:
        """How often each instruction is done below node `root`, by its number."""
        known: dict[int, dict[int, int]] = {}

        def of(node: int) -> dict[int, int]:
            if node not in known:
                total: dict[int, int] = {}
                for kind, _, what in self.nodes[node]:
                    if kind == DO:
                        total[what] = total.get(what, 0) + 1
                    elif kind == LOOP:
                        trips, times = np.unique(self.loops[what], return_counts=True)
                        for trip, n in zip(trips.tolist(), times.tolist(), strict=True):
                            for number, each in of(trip).items():
                                total[number] = total.get(number, 0) + n * each
                known[node] = total
            return known[node]

        return of(root)

    def _node(self, steps: tuple[_Step, ...], env: Env) -> int:
        items: list[Item] = []
        self._visit(steps, env, items)
        return _intern(self._known, self.nodes, ("node", *items), tuple(items))

    def _visit(self, steps: tuple[_Step, ...], env: Env, items: list[Item]) -> None:
        for step in steps:
            s = step.stmt
            match s:
                case Instr():
                    item = (DO, PIPE[TABLE[s.op].pipe], self._number(step, s, env))
                case SetFlag():
                    item = (SET, PIPE[s.src], (PIPE[s.src], PIPE[s.dst], *step.read(env, self.gm)))
                case WaitFlag():
                    item = (WAIT, PIPE[s.dst], (PIPE[s.src], PIPE[s.dst], *step.read(env, self.gm)))
                case PipeBarrier():
                    item = (BARRIER, ALL if s.pipe == "ALL" else PIPE[s.pipe], None)
                case CrossSet():
                    item = (RAISE, PIPE[s.pipe], *step.read(env, self.gm))
                case CrossWait():
                    item = (TAKE, PIPE[s.pipe], *step.read(env, self.gm))
                case Let():
                    (value,) = step.read(env, self.gm)
                    modulus = self._moduli.get(s.name, 0)
                    env[s.name] = value % modulus if modulus else value
                    continue
                case If():
                    if step.read(env, self.gm)[0]:
                        self._visit(step.body, env, items)
                    continue
                case For():
                    trips = self._trips(step, s, env)
                    if not trips:
                        continue
                    item = (LOOP, 0, _intern(self._known, self.loops, ("loop", trips), trips))
            self.locs.setdefault(item, s.loc)
            items.append(item)

    def _number(self, step: _Step, s: Instr, env: Env) -> int:
        values = step.read(env, self.gm)
        at = (id(step), values)
        number = self._numbers.get(at)
        if number is None:
            shapes = _shapes(s, values)
            same = (id(s), self.cost(s, shapes))
            number = _intern(self._known, self.instrs, same, (s, shapes))
            self._numbers[at] = number
        return number

    def _trips(self, step: _Step, s: For, env: Env) -> tuple[int, ...]:
        values = range(*step.read(env, self.gm))
        count = len(values)
        if not count:
            return ()
        assert step.key is not None and step.key_arrays is not None
        if count < 8:
            keys = [step.key({**env, s.var: value}, self.gm) for value in values]
        else:
            # All trips' keys at a time; an instruction's loads from index tensors are arrays too.
            all_trips = {**env, s.var: np.arange(values.start, values.stop, values.step)}
            columns = step.key_arrays(all_trips, self.gm)
            keys = list(zip(*(np.broadcast_to(c, (count,)).tolist() for c in columns), strict=True))
            keys = keys or [()] * count
        trips: list[int] = []
        known, counters = step.known, step.counters
        state = tuple(env.get(c) for c in counters)
        for value, key in zip(values, keys, strict=True):
            found = known.get((key, state))
            if found is None:
                inside = {**env, s.var: value, **dict(zip(counters, state, strict=True))}
                node = self._node(step.body, inside)
                found = (node, tuple(inside.get(c) for c in counters))
                known[key, state] = found
            trips.append(found[0])
            state = found[1]
        env.update(zip(counters, state, strict=True))
        return tuple(trips)


def _intern(known: dict[Any, int], store: list[Any], name: Any, content: Any) -> int:
    number = known.get(name)
    if number is None:
        number = known[name] = len(store)
        store.append(content)
    return number


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
    settled: dict[str, Scalar] = {}
    counters = {name for name, n in times.items() if n > 1}
    seen: set[str] = set()
    for s in walk(body):
        read = set().union(*map(names, _reads(s)))
        if isinstance(s, Let) and s.name not in counters:
            if s.name in seen | read or read & counters:
                counters.add(s.name)
            else:
                settled[s.name] = terms.substitute(s.value, settled)
        seen |= read
    return settled, frozenset(counters)


def _moduli(steps: Iterable[_Step], counters: frozenset[str]) -> dict[str, int]:
    """For each counter the m modulo which it may be kept, 0 for none."""
    all_steps = list(_flat(steps))
    found = dict.fromkeys(counters, 1)
    changed = True
    while changed:
        changed = False
        for c in counters:
            m = found[c]
            for step in all_steps:
                for e in step.reads:
                    target = step.stmt.name if isinstance(step.stmt, Let) else None
                    if target is not None and terms.linear(e, c):
                        # What it is added to is kept modulo that one's m.
                        each = found[target] if c in names(e) else 1
                    else:
                        each = terms.modulus_of(e, c)
                    m = 0 if 0 in (m, each) else lcm(m, each)
            changed |= m != found[c]
            found[c] = m
    return found


def _flat(steps: Iterable[_Step]) -> Iterable[_Step]:
    for step in steps:
        yield step
        yield from _flat(step.body)


def _reads(s: Stmt) -> tuple[Scalar, ...]:
    """What a trace hangs on in one statement, in the order that `Tracer` reads it."""
    match s:
        case Instr():
            return tuple(e for v in views(s) for e in _of_view(v, s))
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
        case PipeBarrier():
            return ()


def _of_view(v: View, s: Instr) -> tuple[Scalar, ...]:
    """Sizes; strides and the address as far as time hangs on them."""
    at = terms.bytes_of(v.offset, v.dtype.bits)
    if isinstance(v.memory, Gm):
        return (*v.sizes, *v.strides, terms.remainder(at, LINE))
    if TABLE[s.op].pipe != "V":
        return (*v.sizes, *(0 for _ in v.strides), 0)
    return (*v.sizes, *v.strides, add(slot_address(v.memory, v.slot), at))


def slot_address(buffer: Buffer, slot: Scalar) -> Scalar:
    """First byte of `slot`, counted modulo the buffer's slots."""
    addresses = buffer.addresses or (0,)
    which = terms.remainder(slot, len(addresses))
    if not isinstance(which, Expr):
        return addresses[int(which)]
    chosen: Scalar = addresses[-1]
    for i, a in reversed(list(enumerate(addresses[:-1]))):
        chosen = Expr("select", (Expr("eq", (which, i)), a, chosen))
    return chosen


def _steps(
    body: Iterable[Stmt], settled: dict[str, Scalar], counters: frozenset[str]
) -> Iterable[_Step]:
    for s in body:
        if isinstance(s, Let) and s.name in settled:
            continue
        reads = tuple(terms.substitute(e, settled) for e in _reads(s))
        step = _Step(s, reads, compiled_all(reads))
        if isinstance(s, (For, If)):
            step.body = tuple(_steps(s.body, settled, counters))
        if isinstance(s, For):
            inner = list(_flat(step.body))
            bound = counters.union(i.stmt.var for i in inner if isinstance(i.stmt, For))
            read = [e for i in inner for e in i.reads]
            key = list(dict.fromkeys(p for e in read for p in terms.outer_parts(e, bound)))
            step.key, step.key_arrays = compiled_all(key), compiled_all(key, arrays=True)
            used = set().union(*map(names, read), (i.stmt.name for i in inner
                                                   if isinstance(i.stmt, Let)))  # fmt: skip
            step.counters = tuple(sorted(used & counters))
        yield step
