"""A core's scalar unit: walks the program, computes every number in it, gives pipes work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from terrazzo.targets.davinci.checking.finding import Finding
from terrazzo.targets.davinci.chips import CROSS_FLAGS, EVENTS
from terrazzo.targets.davinci.expr import Scalar, compiled
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.numbers.items import Indexed, Item, Outside
from terrazzo.targets.davinci.numbers.memory import Located, Memories
from terrazzo.targets.davinci.numbers.watch import Watch
from terrazzo.targets.davinci.program import (
    CoreFn,
    CrossSet,
    CrossWait,
    For,
    If,
    Instr,
    Let,
    Pipe,
    PipeBarrier,
    SetFlag,
    Stmt,
    View,
    WaitFlag,
)


@dataclass(eq=False)
class Issuer:
    """`index`: the core's place in its group. `tensors`: what scalars are read from."""

    f: CoreFn
    index: int
    memories: Memories
    tensors: Mapping[str, Indexed]
    watch: Watch
    found: Callable[[Finding], None]

    def __post_init__(self) -> None:
        self._made: dict[int, Any] = {}  # by id: expressions live as long as the program
        self._views: dict[Instr, Any] = {}

    def start(self, env: dict[str, Any]) -> Iterator[tuple[Pipe, Item] | PipeBarrier]:
        """The function's work from the start, in order: what goes to which pipe, and the barriers
        of all pipes. The core's memories are as if never written."""
        self.memories.poison()
        self.env = env
        self._up: Counter[Any] = Counter()  # sets less waits, by event
        return self._issue(self.f.body)

    def number(self, e: Scalar) -> Any:
        f = self._made.get(id(e))
        if f is None:
            f = self._made[id(e)] = compiled(e)
        return f(self.env, self.tensors)

    def _issue(self, body: tuple[Stmt, ...]) -> Iterator[tuple[Pipe, Item] | PipeBarrier]:
        for s in body:
            try:
                match s:
                    case Instr():
                        if s.op in TABLE:
                            yield TABLE[s.op].pipe, self._operands(s)
                        else:
                            self.found(Finding("misuse", f"there is no instruction {s.op}", "see"
                                               " isa.TABLE", s.loc))  # fmt: skip
                    case Let():
                        self.env[s.name] = self.number(s.value)
                    case If():
                        if self.number(s.condition):
                            yield from self._issue(s.body)
                    case For():
                        for i in range(self.number(s.lo), self.number(s.hi), self.number(s.step)):
                            self.env[s.var] = i
                            yield from self._issue(s.body)
                    case SetFlag() | WaitFlag():
                        event = int(self.number(s.event))
                        self._within(event, EVENTS, "event", s, f"{s.src} to {s.dst}")
                        item = Item(s, (s.src, s.dst, event), known=self._seen())
                        if isinstance(s, SetFlag):
                            item.again = self._set_again(s, item.key)
                            yield s.src, item
                        else:
                            self._up[item.key] -= 1
                            yield s.dst, item
                    case CrossSet() | CrossWait():
                        flag = int(self.number(s.flag))
                        self._within(flag, CROSS_FLAGS, "flag", s, "core to core")
                        yield s.pipe, Item(s, flag, known=self._seen())
                    case PipeBarrier():
                        if s.pipe == "ALL":
                            yield s
            except Outside as error:
                self.found(Finding("bounds", str(error), "correct the index", s.loc))

    def _set_again(self, s: SetFlag, key: Any) -> bool:
        """Whether the program sets an event that it has not waited for since it set it last. (A
        pipe that runs ahead may set one again while the wait is queued: the vendor's plans do.)"""
        self._up[key] += 1
        if self._up[key] <= 1:
            return False
        self._up[key] = 1
        self.found(Finding("event", f"event {key[2]}, {s.src} to {s.dst}, is set while it is still"
                           " set: nobody has waited for it", "wait for it first, or use another"
                           " event", s.loc))  # fmt: skip
        return True

    def _within(self, n: int, limit: int, kind: Any, s: Any, way: str) -> None:
        if not 0 <= n < limit:
            self.found(Finding(kind, f"{kind} {n}, {way}: there are {limit}, from 0",
                               f"use one from 0 to {limit - 1}", s.loc))  # fmt: skip

    def _seen(self) -> Any:
        return self.watch.seen(self.index)

    def _operands(self, s: Instr) -> Item:
        made = self._views.get(s)
        if made is None:
            temp = s.attr("temp")
            made = self._views[s] = (
                self.memories.locate(s.out),
                [self.memories.locate(x) if isinstance(x, View) else compiled(x) for x in s.ins],
                self.memories.locate(temp) if isinstance(temp, View) else None,
            )
        out, ins, temp = made
        at = self.env, self.tensors
        return Item(s, None, out(*at), tuple(x(*at) for x in ins),
                    temp(*at) if isinstance(temp, Located) else None, self._seen())  # fmt: skip
