"""An engine for tests of what is around it: tokens come from the prompt, faults on command.

Each step gives every choice the prompt's next token, round and round, up to max_tokens. Prompts
that begin with one of COMMANDS do what it says.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from terrazzo.engine.request import Event, Failure, Logprob, Request, Usage
from terrazzo.errors import ModelFileError, QueueFull
from terrazzo.serve.worker import Phase

DIE, FULL, FAULT, SLOW = 11, 12, 13, 14
"""First tokens: the process dies; QueueFull; a fault after two tokens; 20 ms a step."""


class Scripted:
    def __init__(self) -> None:
        self.open: dict[str, list[Any]] = {}
        self.events: list[Event] = []
        self.aborted = 0

    @property
    def busy(self) -> bool:
        return bool(self.open or self.events)

    def add(self, request: Request) -> None:
        if request.prompt[0] == FULL:
            raise QueueFull("0 may wait", "try again later", retry_after_s=7.0)
        if request.prompt[0] == DIE:
            os.kill(os.getpid(), signal.SIGSEGV)
        self.open[request.id] = [request, set(range(request.choices)), 0]

    def abort(self, id: str, choice: int | None = None) -> None:
        if id in self.open:
            self.aborted += 1
            for one in sorted(self.open[id][1]):
                if choice is None or one == choice:
                    self._end(id, one, "cancelled", ())

    def _end(self, id: str, choice: int, finish: Any, tokens: tuple[int, ...]) -> None:
        request, left, made = self.open[id]
        left.discard(choice)
        usage = None
        if not left:
            del self.open[id]
            usage = Usage(len(request.prompt), 0, made * request.choices)
        failure = Failure("KernelFault", "not finite") if finish == "error" else None
        self.events.append(Event(id, choice, tokens, (), finish, failure, usage))

    def step(self) -> list[Event]:
        for id, job in list(self.open.items()):
            request, left, made = job
            token = request.prompt[made % len(request.prompt)]
            job[2] += 1
            if request.prompt[0] == SLOW:
                time.sleep(0.02)
            for choice in sorted(left):
                if request.prompt[0] == FAULT and made == 2:
                    self._end(id, choice, "error", ())
                elif made + 1 >= request.max_tokens:
                    self._end(id, choice, "length", (token,))
                else:
                    values = () if request.logprobs is None else (Logprob(token, -0.5),)
                    self.events.append(Event(id, choice, (token,), values))
        out, self.events = self.events, []
        return out

    def check(self) -> None:
        assert not self.aborted, f"{self.aborted} aborted"

    def stats(self) -> dict[str, int]:
        return {"running": len(self.open), "aborted": self.aborted}


def engine(options: dict[str, Any], phase: Phase) -> tuple[Scripted, dict[str, Any]]:
    phase("nothing")
    match options.get("fail"):
        case "typed":
            raise ModelFileError("no such model", "pull it")
        case "untyped":
            raise ValueError("a defect")
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
    return Scripted(), {"context": 64, "parallel": 4, "pid": os.getpid()}
