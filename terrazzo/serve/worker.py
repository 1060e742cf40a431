"""The engine's process: `python -m terrazzo.serve.worker FD FACTORY PARENT`, which the supervisor
starts.

FD is its end of a socket pair; FACTORY is module:function, which makes the engine; PARENT is the
process that it belongs to. It ends when
the server does: the kernel kills it with its parent, and the end of the pair ends its loop.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from terrazzo.engine.request import Event, Failure, Request
from terrazzo.errors import TerrazzoError
from terrazzo.serve.link import Link

PR_SET_PDEATHSIG = 1
Phase = Callable[[str], None]
"""Called with the name of a phase of the start when it is over."""


class Engine(Protocol):
    """What the loop needs of an engine (engine/engine.py has it)."""

    @property
    def busy(self) -> bool: ...
    def add(self, request: Request) -> None: ...
    def abort(self, request: str, choice: int | None = None) -> None: ...
    def step(self) -> list[Event]: ...
    def stats(self) -> Any: ...
    def check(self) -> None: ...


Factory = Callable[[dict[str, Any], Phase], tuple[Engine, dict[str, Any]]]
"""(options, phase) -> (engine, facts about it that the server is to know)."""


def end_with_parent() -> None:
    """The kernel kills this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[3]):
        os._exit(1)  # it had ended before we asked


def books(engine: Engine) -> str:
    """What is wrong with the engine's books; "" if they agree."""
    try:
        engine.check()
    except AssertionError as error:
        return str(error) or "they do not agree"
    return ""


def loop(link: Link, engine: Engine) -> None:
    """Steps the engine while it is busy and sleeps on the link otherwise; until the server is
    gone, which raises EOFError or OSError."""
    while True:
        for message in link.receive(wait=not engine.busy):
            match message:
                case ("add", request):
                    try:
                        engine.add(request)
                    except TerrazzoError as error:
                        wait = getattr(error, "retry_after_s", 0.0)
                        failure = Failure(type(error).__name__, str(error), wait)
                        event = Event(request.id, finish="error", failure=failure)
                        link.send(("events", [event]))
                case ("abort", id, choice):
                    engine.abort(id, choice)
                case ("stats", number):
                    link.send(("stats", number, engine.stats()))
                case ("check", number):
                    link.send(("check", number, books(engine)))
                case _:
                    raise AssertionError(message)
        if engine.busy and (events := engine.step()):
            link.send(("events", events))


def main() -> None:
    end_with_parent()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    link = Link(socket.socket(fileno=int(sys.argv[1])))
    try:
        [(_, options)] = link.receive(wait=True)
        last = time.perf_counter()

        def phase(name: str) -> None:
            nonlocal last
            now = time.perf_counter()
            try:
                link.send(("phase", name, now - last))
            except OSError:
                os._exit(0)  # the server is gone
            last = now

        try:
            module, _, function = sys.argv[2].partition(":")
            factory: Factory = getattr(importlib.import_module(module), function)
            engine, facts = factory(options, phase)
        except Exception as error:
            own = isinstance(error, TerrazzoError)
            if not own:
                traceback.print_exc()
            what, remedy = (error.what, error.remedy) if own else (repr(error), "")
            link.send(("failed", type(error).__name__, what, remedy))
            sys.exit(1)
        link.send(("ready", facts))
        loop(link, engine)
    except (EOFError, OSError):
        os._exit(0)  # the server is gone: nobody is left to tell


if __name__ == "__main__":
    main()
