"""One core at work: its scalar unit hands the program's statements, in order, to the pipes' queues;
each pipe runs its own as soon as nothing it waits for is missing.

A wait that is not due yet only holds its own pipe (the scalar unit goes on until a queue is full),
as on the chip; so what order the flags give is the order in which the numbers are made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from terrazzo.targets.davinci.checking.finding import Finding
from terrazzo.targets.davinci.expr import Expr
from terrazzo.targets.davinci.numbers.issue import Issuer
from terrazzo.targets.davinci.numbers.items import Item
from terrazzo.targets.davinci.numbers.watch import Watch
from terrazzo.targets.davinci.program import (
    CoreFn,
    CrossSet,
    CrossWait,
    Instr,
    Pipe,
    PipeBarrier,
    SetFlag,
    WaitFlag,
    walk,
)

PIPES: tuple[Pipe, ...] = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
_DEPTH = 32  # entries of a pipe's queue
_LONGEST = 1 << 16  # the same, to find out why all stand still
_MOST = 15  # that a flag between cores counts to


@dataclass(eq=False)
class Core:
    """`index` within its group. `peers`: the cores of the other kind in its group. `run`: executes
    an instruction. `raised`: events, each with the watch's token and the statement that set it.
    `flags`: the same between cores, by sender and flag. `in_order`: the pipes take turns, in the
    program's order (a program without events)."""

    f: CoreFn
    index: int
    issuer: Issuer
    watch: Watch
    found: Callable[[Finding], None]
    run: Callable[[Core, Item], None]
    in_order: bool = False
    peers: list[Core] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sets = [s.flag for s in walk(self.f.body) if isinstance(s, CrossSet)]

    def start(self, number: int, half: int, scalars: Mapping[str, Any]) -> None:
        """The core forgets everything and begins its function, as this number of its kind."""
        self.queues: dict[str, deque[Item]] = {p: deque() for p in PIPES}
        self.raised: dict[Any, deque[tuple[Any, SetFlag]]] = {}
        self.flags: dict[Any, deque[tuple[Any, CrossSet]]] = {}
        self.issuing = True
        self._depth = _DEPTH
        self._queued = 0
        self._barrier: PipeBarrier | None = None
        self._items = self.issuer.start({**scalars, "core": number, "half": half})

    @property
    def done(self) -> bool:
        return not self.issuing and not any(self.queues.values())

    def advance(self) -> bool:
        """Goes on as far as possible. Whether anything happened."""
        moved = self._drain()
        while self.issuing and not self._held():
            if self._barrier is not None:
                self.watch.joined(self.index)
                self._barrier = None
            made = next(self._items, None)
            moved = True
            if made is None:
                self.issuing = False
            elif isinstance(made, PipeBarrier):
                self._barrier = made
            else:
                pipe, item = made
                queue = self.queues["S" if self.in_order else pipe]
                if queue or not self._step(pipe, item):
                    self._queued += 1
                    item.order = self._queued
                    queue.append(item)
                elif isinstance(item.s, SetFlag):
                    self._drain()
        return moved

    def _held(self) -> bool:
        """The scalar unit waits itself, or a queue is full."""
        if self._barrier is not None:
            return any(self.queues.values())
        return bool(self.queues["S"]) or any(len(q) >= self._depth for q in self.queues.values())

    def reach(self) -> bool:
        """Lets the queues get longer, to see what else would come. Whether that is any use."""
        if not self.issuing or self._barrier is not None or self.queues["S"]:
            return False
        self._depth *= 4
        return self._depth < _LONGEST

    def will_set(self, key: Any) -> bool:
        """Whether a flag is to be set by something that has been issued."""
        return any(self.holds_set(p, key) for p in self.queues)

    def holds_set(self, pipe: str, key: Any) -> bool:
        return any(isinstance(i.s, (SetFlag, CrossSet)) and i.key == key
                   for i in self.queues[pipe])  # fmt: skip

    def sets_ever(self, flag: int) -> bool:
        """Whether the function sets a flag between cores at all."""
        return any(isinstance(f, Expr) or f == flag for f in self.sets)

    def force(self, item: Item) -> None:
        """A wait that will never end is over, and all that was done before is known."""
        for pipe, queue in self.queues.items():
            if queue and queue[0] is item:
                queue.popleft()
                self.watch.forced(self.index, pipe)

    def _drain(self) -> bool:
        """Runs what the queues hold until every head waits."""
        moved = False
        again = any(self.queues.values())
        while again:
            again = False
            for pipe, queue in self.queues.items():
                while queue and self._step(pipe, queue[0]):
                    queue.popleft()
                    moved = again = True
        return moved

    def _step(self, pipe: str, item: Item) -> bool:
        """Runs one entry; False if it has to wait."""
        s = item.s
        match s:
            case Instr():
                self.watch.issued(self.index, pipe, item.known)
                self.run(self, item)
            case SetFlag():
                self.watch.issued(self.index, pipe, item.known)
                tokens = self.raised.setdefault(item.key, deque())
                if tokens and item.again:
                    tokens.pop()
                tokens.append((self.watch.raised(self.index, pipe), s))
            case WaitFlag():
                tokens = self.raised.get(item.key)
                if not tokens:
                    return False
                self.watch.issued(self.index, pipe, item.known)
                self.watch.taken(self.index, pipe, tokens.popleft()[0])
            case CrossSet():
                self.watch.issued(self.index, pipe, item.known)
                self._cross_set(s, pipe, item.key)
            case CrossWait():
                waiting = [self.flags.get((p.index, item.key)) for p in self.peers]
                if not self.peers or not all(waiting):
                    return False
                self.watch.issued(self.index, pipe, item.known)
                for tokens in waiting:
                    if tokens:
                        self.watch.taken(self.index, pipe, tokens.popleft()[0])
        return True

    def _cross_set(self, s: CrossSet, pipe: str, flag: int) -> None:
        token = self.watch.raised(self.index, pipe)
        if not self.peers:
            self.found(Finding("flag", f"flag {flag} is set, and there are no cores of the other"
                               " kind in this phase", "remove it", s.loc))  # fmt: skip
        for p in self.peers:
            tokens = p.flags.setdefault((self.index, flag), deque())
            tokens.append((token, s))
            if len(tokens) > _MOST:
                self.found(Finding("flag", f"flag {flag} is raised {len(tokens)} times and not"
                                   f" waited for: it counts to {_MOST}", "wait for it in"
                                   " between", s.loc))  # fmt: skip
