"""A core function's statements, compiled for tracing: what each one's part of a trace hangs on.

Variables that are set once stand for their values; those that are set again are counters, kept
modulo what their uses look at, so that a slot counter returns to where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import lcm
from typing import Any

from terrazzo.targets.davinci import program as p
from terrazzo.targets.davinci.expr import Expr, Scalar, add, compiled_all, names
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.timing import terms
from terrazzo.targets.davinci.timing.cost import LINE

Env = dict[str, Any]
Read = Callable[[Env, Any], tuple[Any, ...]]


@dataclass(eq=False)
class Step:
    """A statement, compiled. `reads`: what its trace hangs on; a loop's `key` and `counters` what
    its body does. `known`: (node, counters after it) of a trip, by key and counters before."""

    stmt: p.Stmt
    reads: tuple[Scalar, ...]
    read: Read
    body: tuple[Step, ...] = ()
    key: Read | None = None
    key_arrays: Read | None = None
    counters: tuple[str, ...] = ()
    known: dict[Any, tuple[int, tuple[Any, ...]]] = field(default_factory=dict)


def compiled_steps(body: tuple[p.Stmt, ...]) -> tuple[tuple[Step, ...], dict[str, int]]:
    """A function's body, and for each counter the m modulo which it may be kept (0: as it is)."""
    values, counters = _settled(body)
    steps = tuple(_steps(body, values, counters))
    return steps, _moduli(steps, counters)


def settled(body: tuple[p.Stmt, ...]) -> dict[str, Scalar]:
    """Variables that are set once, with their values."""
    return _settled(body)[0]


def _settled(body: tuple[p.Stmt, ...]) -> tuple[dict[str, Scalar], frozenset[str]]:
    """Variables set once, before they are read and from settled ones only, with their values; and
    the other ones that are set, the counters."""
    counters = set(_reused(body))
    values: dict[str, Scalar] = {}
    seen: set[str] = set()
    for s in p.walk(body):
        read = set().union(*map(names, _reads(s)))
        if isinstance(s, p.Let) and s.name not in counters:
            if s.name in seen | read or read & counters:
                counters.add(s.name)
            else:
                values[s.name] = terms.substitute(s.value, values)
        seen |= read
    return values, frozenset(counters)


def _reused(body: tuple[p.Stmt, ...]) -> Iterator[str]:
    """Variables that are set in several places, or read outside of the body they are set in."""
    times = Counter(s.name for s in p.walk(body) if isinstance(s, p.Let))
    reads = _read_names(body)
    for inner in [body, *(s.body for s in p.walk(body) if isinstance(s, (p.For, p.If)))]:
        own = [s.name for s in inner if isinstance(s, p.Let)]
        if own:
            within = _read_names(inner)
            yield from (n for n in own if times[n] > 1 or within[n] < reads[n])


def _read_names(body: tuple[p.Stmt, ...]) -> Counter[str]:
    return Counter(n for s in p.walk(body) for e in _reads(s) for n in names(e))


def _moduli(steps: Iterable[Step], counters: frozenset[str]) -> dict[str, int]:
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
                    target = step.stmt.name if isinstance(step.stmt, p.Let) else None
                    if target is not None and terms.linear(e, c):
                        # What it is added to is kept modulo that one's m.
                        each = found[target] if c in names(e) else 1
                    else:
                        each = terms.modulus_of(e, c)
                    m = 0 if 0 in (m, each) else lcm(m, each)
            changed |= m != found[c]
            found[c] = m
    return found


def _flat(steps: Iterable[Step]) -> Iterable[Step]:
    for step in steps:
        yield step
        yield from _flat(step.body)


def _reads(s: p.Stmt) -> tuple[Scalar, ...]:
    """What a trace hangs on in one statement, in the order that `Tracer` reads it."""
    match s:
        case p.Instr():
            return tuple(e for v in p.views(s) for e in _of_view(v, s))
        case p.SetFlag() | p.WaitFlag():
            return (s.event,)
        case p.CrossSet() | p.CrossWait():
            return (s.flag,)
        case p.Let():
            return (s.value,)
        case p.For():
            return (s.lo, s.hi, s.step)
        case p.If():
            return (s.condition,)
        case p.PipeBarrier():
            return ()


def _of_view(v: p.View, s: p.Instr) -> tuple[Scalar, ...]:
    """Sizes; strides and the address as far as time hangs on them."""
    at = terms.bytes_of(v.offset, v.dtype.bits)
    if isinstance(v.memory, p.Gm):
        return (*v.sizes, *v.strides, terms.remainder(at, LINE))
    if TABLE[s.op].pipe != "V":
        return (*v.sizes, *(0 for _ in v.strides), 0)
    return (*v.sizes, *v.strides, add(slot_address(v.memory, v.slot), at))


def slot_address(buffer: p.Buffer, slot: Scalar) -> Scalar:
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
    body: Iterable[p.Stmt], values: dict[str, Scalar], counters: frozenset[str]
) -> Iterable[Step]:
    for s in body:
        if isinstance(s, p.Let) and s.name in values:
            continue
        reads = tuple(terms.substitute(e, values) for e in _reads(s))
        step = Step(s, reads, compiled_all(reads))
        if isinstance(s, (p.For, p.If)):
            step.body = tuple(_steps(s.body, values, counters))
        if isinstance(s, p.For):
            inner = list(_flat(step.body))
            bound = counters.union(i.stmt.var for i in inner if isinstance(i.stmt, p.For))
            read = [e for i in inner for e in i.reads]
            key = list(dict.fromkeys(p for e in read for p in terms.outer_parts(e, bound)))
            step.key, step.key_arrays = compiled_all(key), compiled_all(key, arrays=True)
            used = set().union(*map(names, read), (i.stmt.name for i in inner
                                                   if isinstance(i.stmt, p.Let)))  # fmt: skip
            step.counters = tuple(sorted(used & counters))
        yield step
