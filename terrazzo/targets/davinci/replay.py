"""The pipes of a group of cores in time: one core, or a cube core and its vector cores.

Pipes are in-order queues. The scalar unit hands out a core's instructions in program order and
stalls when a queue is full; what stands at the head of a queue starts when the pipe is free and the
flag it waits for is up. Nothing else orders pipes: buffers are not looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Loc
from terrazzo.targets.davinci import steady
from terrazzo.targets.davinci.constants import Constants
from terrazzo.targets.davinci.trace import Item, Loop, Node

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
NUMBER = {p: i for i, p in enumerate(PIPES)}
CROSS = len(PIPES)  # "waited for a core of the other kind", beside the pipes' numbers


@dataclass(frozen=True)
class Costs:
    """By an instruction's number: pipe, occupancy (one table for each stretch of time that has a
    speed of its own), latency after it, bytes of HBM and of L2."""

    pipe: list[int]
    busy: list[list[float]]
    tail: list[float]
    hbm: list[float]
    l2: list[float]


@dataclass(eq=False)
class Frame:
    loop: Loop
    trip: int = 0
    at: int = 0
    seen: dict[Any, steady.Snapshot] = field(default_factory=dict)


class Core:
    """State of one core. Times are cycles since the phase began."""

    def __init__(self, group: Group, number: int, root: Node, costs: Costs) -> None:
        n = len(PIPES)
        self.group, self.number, self.costs = group, number, costs
        self.now = 0.0  # of the scalar unit
        self.free = [0.0] * n  # when the pipe could start another instruction
        self.left = [0.0] * n  # when its last one let go of it
        self.done = [0.0] * n  # when all it was given is complete
        self.on = [0] * n  # the pipe whose flag it waited for last
        self.busy = [0.0] * n
        self.waits = [[0.0] * (n + 1) for _ in PIPES]
        self.hbm = 0.0
        self.l2 = 0.0
        self.starts = [deque([0.0] * group.depth, maxlen=group.depth) for _ in PIPES]
        self.flags: dict[Any, deque[float]] = {}
        self.cross: dict[Any, deque[float]] = {}
        self.blocked: list[Any] = [None] * n  # the flag that the head of its queue waits for
        self.pending: list[deque[tuple[Item, float]]] = [deque() for _ in PIPES]
        self.stack = [Frame(Loop([root]))]

    def advance(self) -> bool:
        """Hands out instructions until there are none, a queue is full or time is up. Returns
        whether it handed out any."""
        group, costs, moved = self.group, self.costs, False
        free, starts, blocked, issue = self.free, self.starts, self.blocked, group.issue
        while self.stack and blocked[0] is None:
            frame = self.stack[-1]
            items = frame.loop.trips[frame.trip].items
            if frame.at == len(items):
                frame.trip, frame.at = frame.trip + 1, 0
                if frame.trip == len(frame.loop.trips):
                    self.stack.pop()
                elif self.number == 0:
                    if self.now > group.stop:
                        return moved
                    steady.boundary(group, frame)
                continue
            kind, what, _ = item = items[frame.at]
            if kind == "do":
                pipe = costs.pipe[what]
            elif kind == "loop":
                frame.at += 1
                moved = True
                self.stack.append(Frame(what))
                continue
            elif kind == "set":
                pipe = NUMBER[what[0]]
            elif kind == "wait":
                pipe = NUMBER[what[1]]
            elif kind == "barrier":
                if what == "ALL":
                    if any(b is not None for b in blocked):
                        return moved
                    last = max(self.now, max(self.done), max(free))
                    for p in range(len(PIPES)):
                        if free[p] < last:
                            free[p], self.on[p] = last, self.done.index(max(self.done))
                    self.now = last
                    frame.at += 1
                    moved = True
                    continue
                pipe = NUMBER[what]
            else:
                pipe = NUMBER[what[0]]
            if blocked[pipe] is not None:
                if len(self.pending[pipe]) >= group.depth:
                    return moved
                self.pending[pipe].append((item, self.now))
            else:
                # The queue has room again when the entry `depth` before this one has started.
                if pipe and starts[pipe][0] > self.now:
                    self.now = starts[pipe][0]
                self._execute(pipe, item, self.now)
            self.now += issue
            frame.at += 1
            moved = True
        return moved

    def _execute(self, pipe: int, item: Item, issued: float) -> None:
        """The head of a pipe's queue."""
        kind, what, stmt = item
        free = self.free
        if pipe == 0 and free[0] < self.now:
            free[0] = self.now
        start = max(free[pipe], issued)
        if kind == "do":
            left = self.left[pipe]
            if start > left:
                on = self.on[pipe] if free[pipe] >= issued and free[pipe] > left else 0
                self.waits[pipe][on] += start - left
            group = self.group
            tables = self.costs.busy
            table = tables[0] if len(tables) == 1 else tables[group.stretch(start)]
            self.left[pipe] = free[pipe] = start + table[what]
            end = free[pipe] + self.costs.tail[what]
            before = self.done[pipe]
            if end > before:
                self.busy[pipe] += end - max(start, before)
                self.done[pipe] = end
            self.hbm += self.costs.hbm[what]
            self.l2 += self.costs.l2[what]
            if group.window > start:
                group.spans.append(
                    (self.number, pipe, what, start, end, max(start - left, 0.0), self.on[pipe])
                )
        elif kind == "set":
            self._raise(what, max(self.done[pipe], start))
        elif kind == "wait":
            up = self.flags.get(what)
            if not up:
                self._block(pipe, item, issued, ("flag", what))
                return
            self._taken(pipe, up.popleft(), NUMBER[what[0]], what, start)
        elif kind == "barrier":
            free[pipe] = max(start, self.done[pipe])
            self.on[pipe] = pipe
        elif kind == "raise":
            self.group.cross_raise(self, what[1], max(self.done[pipe], start))
        else:
            at = self.group.cross_take(self, what[1])
            if at is None:
                self._block(pipe, item, issued, ("cross", what[1]))
                return
            self._taken(pipe, at, CROSS, None, start)
        self.starts[pipe].append(start)
        if pipe == 0:
            self.now = max(self.now, free[0])

    def _taken(self, pipe: int, up: float, src: int, what: Any, start: float) -> None:
        if up > self.free[pipe]:
            self.free[pipe], self.on[pipe] = up, src
        if self.group.window > start and what is not None:
            self.group.arrows.append((self.number, src, pipe, up, max(start, up)))

    def _block(self, pipe: int, item: Item, issued: float, flag: Any) -> None:
        self.blocked[pipe] = flag
        self.pending[pipe].appendleft((item, issued))

    def _raise(self, what: Any, at: float) -> None:
        self.flags.setdefault(what, deque()).append(at)
        self.wake(NUMBER[what[1]], ("flag", what))

    def wake(self, pipe: int, flag: Any) -> None:
        """`flag` is up: a pipe that waited for it goes on."""
        if self.blocked[pipe] != flag:
            return
        self.blocked[pipe] = None
        queue = self.pending[pipe]
        while queue and self.blocked[pipe] is None:
            item, issued = queue.popleft()
            self._execute(pipe, item, issued)

    def end(self) -> float:
        return max(self.now, max(self.done), max(self.free))


class Group:
    """Cores that run together: `roots` and `costs` a core; core 0 is the cube core, if there are
    several. `bounds`: where the stretches of `Costs.busy` end. `stop`: simulate no further than
    about here. `window`: record spans and arrows that start before."""

    def __init__(
        self, roots: Sequence[Node], costs: Sequence[Costs], k: Constants,
        bounds: Sequence[float] = (), stop: float = float("inf"), window: float = 0.0,
        skip: bool = True,
    ) -> None:  # fmt: skip
        self.depth, self.issue, self.hand_over = k.queue_depth, k.scalar_issue, k.hand_over
        self.bounds, self.stop, self.window, self.skip = tuple(bounds), stop, window, skip
        self.spans: list[tuple[int, int, int, float, float, float, int]] = []
        self.arrows: list[tuple[int, int, int, float, float]] = []
        self.crossings: list[tuple[int, int, float, float]] = []
        self.cores = [Core(self, i, r, c) for i, (r, c) in enumerate(zip(roots, costs, strict=True))]

    def stretch(self, time: float) -> int:
        for i, bound in enumerate(self.bounds):
            if time < bound:
                return i
        return len(self.bounds)

    def run(self) -> float:
        """The group's cycles. Raises KernelError when it waits for a flag that nobody raises."""
        while any(core.stack for core in self.cores):
            moved = any([core.advance() for core in self.cores])
            if self.cores[0].now > self.stop:
                return self.stop
            if not moved:
                break
        for core in self.cores:
            if core.stack or any(b is not None for b in core.blocked):
                raise _deadlock(core)
        return max(core.end() for core in self.cores)

    def cross_raise(self, core: Core, flag: int, at: float) -> None:
        at += self.hand_over
        if core.number == 0:
            for other in self.cores[1:]:
                other.cross.setdefault(flag, deque()).append(at)
                self._wake(other, flag)
        else:
            cube = self.cores[0]
            cube.cross.setdefault((flag, core.number), deque()).append(at)
            self._wake(cube, flag)

    def cross_take(self, core: Core, flag: int) -> float | None:
        """When the flag is up for `core`, taking it; None if it is not yet raised."""
        if core.number or len(self.cores) == 1:
            names: list[Any] = [flag]
        else:
            names = [(flag, other.number) for other in self.cores[1:]]
        if not all(core.cross.get(name) for name in names):
            return None
        return max(core.cross[name].popleft() for name in names)

    def _wake(self, core: Core, flag: int) -> None:
        for pipe in range(len(PIPES)):
            core.wake(pipe, ("cross", flag))


def _deadlock(core: Core) -> KernelError:
    for pipe, flag in enumerate(core.blocked):
        if flag is None:
            continue
        (_, _, stmt), _ = core.pending[pipe][0]
        kind, what = flag
        if kind == "flag":
            text = f"pipe {what[1]} waits for event {what[2]} of pipe {what[0]}"
        else:
            text = f"pipe {PIPES[pipe]} waits for the other cores' flag {what}"
        return _error(
            f"the kernel never ends: {text}, which nothing raises",
            "raise it on every way that leads to the wait, as often as it is waited for", stmt.loc,
        )  # fmt: skip
    return _error(
        "the kernel never ends: its scalar unit is stuck behind full queues",
        "raise the flags that the pipes wait for earlier in the program", None,
    )  # fmt: skip


def _error(what: str, remedy: str, loc: Loc | None) -> KernelError:
    if loc is None:
        return KernelError(what, remedy)
    caret = " " * loc.col + "^" * max(loc.end_col - loc.col, 1)
    where = f"{loc.file}:{loc.line}:{loc.col + 1}"
    return KernelError(what, remedy, where=where, source=loc.text, caret=caret if loc.text else "")
