"""The pipes of a group of cores in time: one core, or a cube core and its vector cores.

Pipes are in-order queues. The scalar unit hands out a core's instructions in program order and
stalls when a queue is full; what stands at the head of a queue starts when the pipe is free and the
flag it waits for is up. Nothing else orders pipes: buffers are not looked at.

A core's items are taken in program order, each at once with all its times; so a flag has to be
raised earlier in the program than it is waited for. Flags of other cores suspend the walk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from terrazzo.targets.davinci.timing import steady
from terrazzo.targets.davinci.timing.constants import Constants
from terrazzo.targets.davinci.timing.trace import (
    ALL,
    BARRIER,
    DO,
    LOOP,
    PIPES,
    RAISE,
    SET,
    TAKE,
    Item,
    Tracer,
)  # fmt: skip

CROSS = len(PIPES)  # "waited for a core of the other kind", beside the pipes' numbers


@dataclass(frozen=True)
class Costs:
    """By an instruction's number. `busy`: occupancy, a list for each stretch of time that has a
    speed of its own. `entries`: of the pipe's queue. `hbm`, `l2`: bytes."""

    busy: list[list[float]]
    tail: list[float]
    entries: list[int]
    hbm: list[float]
    l2: list[float]


class Stuck(Exception):
    """A flag is waited for that nothing before raises: (item, core's number in its group)."""


@dataclass(eq=False)
class Frame:
    """A loop that a core is in: at item `at` of trip `trip`."""

    number: int
    trips: tuple[int, ...]
    work: float  # items of a trip, inner loops multiplied out
    trip: int = 0
    at: int = 0
    seen: dict[Any, steady.Snapshot] = field(default_factory=dict)


class Core:
    """State of one core. Times are cycles since the phase began."""

    def __init__(self, group: Group, number: int, tracer: Tracer, root: int, costs: Costs) -> None:
        n = len(PIPES)
        self.group, self.number, self.tracer, self.costs = group, number, tracer, costs
        self.now = 0.0  # of the scalar unit
        self.free = [0.0] * n  # when the pipe could start another instruction
        self.left = [0.0] * n  # when its last one let go of it
        self.done = [0.0] * n  # when all it was given is complete
        self.on = [0] * n  # the pipe whose flag it waited for last
        self.busy = [0.0] * n
        self.waits = [[0.0] * (n + 1) for _ in PIPES]
        self.hbm = [0.0] * (len(group.bounds) + 1)  # bytes by the stretch they are asked for in
        self.l2 = [0.0] * (len(group.bounds) + 1)
        self.starts = [deque([0.0] * group.depth, maxlen=group.depth) for _ in PIPES]
        self.flags: dict[Any, deque[float]] = {}
        self.cross: dict[Any, deque[tuple[float, int]]] = {}  # (time, pipe that raised it)
        self.stack = [Frame(-1, (root,), 0.0)]

    def advance(self) -> bool:
        """Takes items until the walk ends, needs a flag that another core has not raised yet, or
        (the group's first core) a trip has ended. Returns whether it took any."""
        nodes, loops, weights = self.tracer.nodes, self.tracer.loops, self.group.weights
        moved = False
        while self.stack:
            frame = self.stack[-1]
            items = nodes[frame.trips[frame.trip]]
            at = frame.at
            inner = self._items(frame, items)
            moved = moved or frame.at > at
            if inner is not None:
                trips = loops[inner]
                self.stack.append(Frame(inner, trips, weights(self.tracer, trips[0])))
            elif frame.at < len(items):
                return moved
            else:
                moved = True
                frame.trip, frame.at = frame.trip + 1, 0
                if frame.trip == len(frame.trips):
                    self.stack.pop()
                elif self.number == 0 and frame.work * (len(frame.trips) - frame.trip) > 150:
                    return True
        return moved

    def _items(self, frame: Frame, items: tuple[Item, ...]) -> int | None:
        """Takes the frame's items up to a loop, whose number it returns, or as far as it gets."""
        group, costs, free, done, on = self.group, self.costs, self.free, self.done, self.on
        starts, left, flags, now = self.starts, self.left, self.flags, self.now
        issue, bounds, window = group.issue, group.bounds, group.window
        table, tail, entries = costs.busy[0], costs.tail, costs.entries
        for at in range(frame.at, len(items)):
            kind, p, what = items[at]
            if kind == LOOP:
                frame.at, self.now = at + 1, now
                return what
            if p and p != ALL:
                queue = starts[p]
                # There is room again when the entry `depth` before this one has left the queue.
                if queue[0] > now:
                    now = queue[0]
                begin = free[p]
                if begin < now:
                    begin = now
            else:
                queue, begin = starts[0], now
            if kind == DO:
                stretch = 0
                if bounds:
                    stretch = sum(begin >= b for b in bounds)
                    table = costs.busy[stretch]
                    self.hbm[stretch] += costs.hbm[what]
                    self.l2[stretch] += costs.l2[what]
                wait = begin - left[p]
                if wait > 0:
                    # Idle for want of a flag, or of anything to do.
                    why = on[p] if free[p] >= now and free[p] > left[p] else 0
                    self.waits[p][why] += wait
                free[p] = left[p] = begin + table[what]
                end = free[p] + tail[what]
                before = done[p]
                if end > before:
                    self.busy[p] += end - (begin if begin > before else before)
                    done[p] = end
                if begin < window:
                    group.spans.append((self.number, p, what, begin, end, wait, on[p]))
                # All entries but the last leave the queue one by one while the pipe works.
                for _ in range(entries[what] - 1):
                    queue.append(begin)
                    begin += table[what] / entries[what]
                    now += issue
                    if queue[0] > now:
                        now = queue[0]
            elif kind == SET:
                up = done[p] if done[p] > begin else begin
                flags.setdefault(what, deque()).append(up)
            elif kind == BARRIER:
                if p == ALL:
                    last = max(now, *done, *free)
                    for q in range(1, ALL):
                        free[q], on[q] = last, done.index(max(done))
                    now = last
                else:
                    free[p], on[p] = max(begin, done[p]), p
            elif kind == RAISE:
                group.cross_raise(self, p, what, max(done[p], begin))
            else:
                if kind == TAKE:
                    up = group.cross_take(self, p, what, begin)
                    if up is None:
                        frame.at, self.now = at, now
                        return None
                    src = CROSS
                else:
                    raised = flags.get(what)
                    if not raised:
                        raise Stuck(items[at], self.number)
                    up, src = raised.popleft(), what[0]
                    if begin < window:
                        group.arrows.append((self.number, src, p, up, max(begin, up)))
                if up > free[p]:
                    free[p], on[p] = up, src
                if p == 0 and up > now:
                    now = up
            queue.append(begin)
            now += issue
        frame.at, self.now = len(items), now
        return None

    def end(self) -> float:
        return max(self.now, *self.done, *self.free)


class Group:
    """Cores that run together: tracer, root and costs of each; core 0 is the cube core, if there
    are several. `bounds`: where the stretches of `Costs.busy` end. `window`: record spans and
    arrows that start before. `skip`: multiply loops out that repeat themselves."""

    def __init__(
        self, cores: Sequence[tuple[Tracer, int, Costs]], k: Constants,
        bounds: Sequence[float] = (), window: float = 0.0, skip: bool = True,
    ) -> None:  # fmt: skip
        self.depth, self.issue, self.hand_over = k.queue_depth, k.scalar_issue, k.hand_over
        self.bounds, self.window, self.skip = tuple(bounds), window, skip
        self.spans: list[tuple[int, int, int, float, float, float, int]] = []
        self.arrows: list[tuple[int, int, int, float, float]] = []
        # (core, pipe, other core, its pipe, raised, taken)
        self.crossings: list[tuple[int, int, int, int, float, float]] = []
        self._weights: dict[tuple[int, int], float] = {}
        self.cores = [Core(self, i, *c) for i, c in enumerate(cores)]

    def weights(self, tracer: Tracer, node: int) -> float:
        """Items of a node, its loops multiplied out."""
        key = (id(tracer), node)
        if key not in self._weights:
            self._weights[key] = sum(
                len(loop) * self.weights(tracer, loop[0]) if (loop := _loop(tracer, item)) else 1.0
                for item in tracer.nodes[node]
            )
        return self._weights[key]

    def run(self) -> float:
        """The group's cycles. Raises Stuck when it waits for a flag that nobody raises."""
        lead, others = self.cores[0], self.cores[1:]
        while any(core.stack for core in self.cores):
            moved = lead.advance()
            while sum([core.advance() for core in others]):
                moved = True
            if not moved:
                core = next(c for c in self.cores if c.stack)
                frame = core.stack[-1]
                raise Stuck(core.tracer.nodes[frame.trips[frame.trip]][frame.at], core.number)
            if self.skip and lead.stack and lead.stack[-1].at == 0 and lead.now >= self.window:
                steady.boundary(self, lead.stack[-1])
        return max(core.end() for core in self.cores)

    def cross_raise(self, core: Core, pipe: int, flag: int, at: float) -> None:
        to = self.cores[1:] if core.number == 0 else self.cores[:1]
        for other in to:
            name = (flag, core.number)
            other.cross.setdefault(name, deque()).append((at + self.hand_over, pipe))

    def cross_take(self, core: Core, pipe: int, flag: int, begin: float) -> float | None:
        """When the flag is up for `core`, taking it; None if it is not yet raised."""
        sources = range(1, len(self.cores)) if core.number == 0 else (0,)
        if not all(core.cross.get((flag, s)) for s in sources) or len(self.cores) == 1:
            return None
        last = 0.0
        for s in sources:
            up, src = core.cross[flag, s].popleft()
            last = max(last, up)
            if begin < self.window:
                self.crossings.append((s, src, core.number, pipe, up, max(begin, up)))
        return last


def _loop(tracer: Tracer, item: Item) -> tuple[int, ...] | None:
    return tracer.loops[item[2]] if item[0] == LOOP else None
