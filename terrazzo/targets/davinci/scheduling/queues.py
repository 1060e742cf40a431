"""Queues: a buffer that several pipes use, and the events that hand it from one to the next.

As Ascend C's TQue: each stage of a buffer's life (accesses.py) waits for the stages before it whose
work it needs, by an event that the earlier pipe raises. The first stage also waits for the last
ones of the slot's previous round, whose events are raised once at the function's start and taken
back at its end. A queue of n slots has n events for each hand-over, and turns through both. The
tiles of all products in L0A are one queue, and so are those in L0B (and in L0C, if need be).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from terrazzo.errors import KernelError
from terrazzo.ir.place import mark
from terrazzo.targets.davinci.chips import EVENTS
from terrazzo.targets.davinci.expr import Scalar, add, make, var
from terrazzo.targets.davinci.program import (
    Buffer,
    For,
    If,
    Let,
    Pipe,
    PipeBarrier,
    SetFlag,
    Stmt,
    WaitFlag,
)
from terrazzo.targets.davinci.scheduling.accesses import Stage, Uses

Pair = tuple[Pipe, Pipe]


@dataclass(frozen=True, eq=False)
class Queue:
    """`hops`: (i, j): stage j waits for stage i of its round. `back`: stages that the first one of
    the slot's next round waits for. `shared`: queues of one name are one, with the same slots and
    events, which they use in turns; "" is alone."""

    uses: Uses
    stages: list[Stage]
    hops: list[tuple[int, int]]
    back: list[int]
    slots: int
    shared: str = ""

    @property
    def buffer(self) -> Buffer:
        return self.uses.buffer

    def pairs(self) -> list[Pair]:
        """The pipes of each hand-over, hops first."""
        hands = [*self.hops, *((i, 0) for i in self.back)]
        return [(self.stages[i].pipe, self.stages[j].pipe) for i, j in hands]


def queue(u: Uses, slots: int, shared: str = "") -> Queue:
    """The queue of a buffer that several pipes use."""
    stages = u.stages()
    hops: list[tuple[int, int]] = []
    before: list[set[int]] = []  # stages known to be done when stage j starts
    for j, s in enumerate(stages):
        known: set[int] = set()
        for i in range(j):
            if stages[i].pipe == s.pipe:
                known |= {i} | before[i]
        for i in reversed(range(j)):
            conflict = stages[i].writes or s.writes
            if stages[i].pipe != s.pipe and conflict and i not in known:
                hops.append((i, j))
                known |= {i} | before[i]
        before.append(known)
    back: list[int] = []
    if u.looped:
        same = [i for i, s in enumerate(stages) if s.pipe == stages[0].pipe]
        done = set[int]().union(*(before[i] for i in same))
        for i in reversed(range(len(stages))):
            if i not in done and stages[i].pipe != stages[0].pipe:
                back.append(i)
                done |= {i} | before[i]
    return Queue(u, stages, hops, back, slots if u.looped else 1, shared)


@dataclass
class Inserted:
    """Statements to add to a function: before and after others (last of all: `turns`), at the end
    of the bodies of loops and conditions, at the function's start and end. Keys are the statements'
    ids."""

    before: dict[int, list[Stmt]] = field(default_factory=lambda: defaultdict(list))
    after: dict[int, list[Stmt]] = field(default_factory=lambda: defaultdict(list))
    turns: dict[int, list[Stmt]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[int, list[Stmt]] = field(default_factory=lambda: defaultdict(list))
    start: list[Stmt] = field(default_factory=list)
    end: list[Stmt] = field(default_factory=list)

    def rebuilt(self, body: tuple[Stmt, ...], of: Stmt | None = None) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in body:
            out += self.before[id(s)]
            if isinstance(s, For):
                inner = self.rebuilt(s.body, s)
                out.append(For(s.var, s.lo, s.hi, s.step, inner, s.loc))
            elif isinstance(s, If):
                out.append(If(s.condition, self.rebuilt(s.body, s), s.loc))
            else:
                out.append(s)
            out += self.after[id(s)]
            out += self.turns[id(s)]
        if of is None:
            return (*self.start, *out, *self.end)
        return (*out, *self.ends[id(of)])


def events_needed(queues: list[Queue]) -> dict[Pair, int]:
    """Events by pair of pipes."""
    count: dict[Pair, int] = defaultdict(int)
    known: set[str] = set()
    for q in queues:
        if q.shared not in known:
            for pair in q.pairs():
                count[pair] += q.slots
        known |= {q.shared} - {""}
    return count


def connect(queues: list[Queue]) -> tuple[Inserted, dict[Buffer, Scalar]]:
    """The events of all queues, and the slot that each buffer's uses take. Raises KernelError where
    a pair of pipes has not enough events."""
    add_to = Inserted()
    counters = _Counters(add_to)
    slots: dict[Buffer, Scalar] = {}
    next_event: dict[Pair, int] = defaultdict(int)
    bases: dict[tuple[str, int], int] = {}
    for q in queues:
        slot = slots[q.buffer] = counters.slot(q)
        loc = q.buffer.loc
        for n, (src, dst) in enumerate(q.pairs()):
            base = bases.get((q.shared, n))
            fresh = base is None
            if base is None:
                base = next_event[src, dst]
                next_event[src, dst] += q.slots
                if q.shared:
                    bases[q.shared, n] = base
            i, j = q.hops[n] if n < len(q.hops) else (q.back[n - len(q.hops)], 0)
            if fresh and n >= len(q.hops):
                events = range(base, base + q.slots)
                add_to.start += [SetFlag(src, dst, e, loc) for e in events]
                add_to.end += [WaitFlag(src, dst, e, loc) for e in events]
            first, last, event = q.stages[j].first, q.stages[i].last, add(base, slot)
            add_to.before[id(first)].append(WaitFlag(src, dst, event, loc))
            add_to.after[id(last)].append(SetFlag(src, dst, event, loc))
    for (src, dst), n in next_event.items():
        if n > EVENTS:
            used = [q for q in queues if (src, dst) in q.pairs()]
            raise mark(KernelError(
                f"{len(used)} tiles go from pipe {src} to {dst} and want {n} events, the core has"
                f" {EVENTS}", "keep fewer tiles of loads and stores in one kernel"),
                used[-1].buffer.loc)  # fmt: skip
    return add_to, slots


class _Counters:
    """A counter for every home and number of slots: which slot's turn it is. Shared queues take
    turns one after the other."""

    def __init__(self, add_to: Inserted) -> None:
        self.add_to = add_to
        self.known: dict[tuple[str | int, int], str] = {}

    def slot(self, q: Queue) -> Scalar:
        if q.slots == 1:
            return 0
        home = q.uses.home[-1]
        key = (q.shared or id(home), q.slots)
        name = self.known.get(key)
        fresh = name is None
        if name is None:
            name = f"turn_{q.shared}" if q.shared else f"slot{len(self.known)}"
            self.known[key] = name
            self.add_to.start.insert(0, Let(name, 0, home.loc))
        turn = Let(name, make("mod", add(var(name), 1), q.slots), home.loc)
        if q.shared:
            self.add_to.turns[id(q.stages[-1].last)].append(turn)
        elif fresh:
            self.add_to.ends[id(home)].append(turn)
        return var(name)


def fence(u: Uses, add_to: Inserted) -> None:
    """For a buffer that two pipes use within a statement of its home: every pipe waits for all
    others around each of those statements' parts."""
    for use in u.uses:
        add_to.before[id(use.instr)].insert(0, PipeBarrier("ALL", use.instr.loc))
        add_to.after[id(use.instr)].append(PipeBarrier("ALL", use.instr.loc))
