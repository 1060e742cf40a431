"""Starts the engine's process, watches it, and passes requests and events to and fro.

`start` needs no event loop, so that the engine loads while the server imports. If the process
dies, the requests it held end with a Failure of kind EngineDied and it is started again; RETRIES
starts in a row that fail make `over` a ServeError with the root cause.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from terrazzo import errors
from terrazzo.engine.request import Event, Failure, Request
from terrazzo.errors import EngineDied, TerrazzoError
from terrazzo.serve import link

RETRIES = 3
PAUSE_S = 0.5
FACTORY = "terrazzo.serve.build:engine"


class Answer:
    """The events of one request or several, in order. `take` waits for some and gives all there
    are."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: Event) -> None:
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[Event]:
        if not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        out, self._events = self._events, []
        return out


class Supervisor:
    """`log` gets a line for every phase of a start and for what goes wrong."""

    def __init__(
        self, options: dict[str, Any], log: Callable[[str], None], factory: str = FACTORY
    ) -> None:
        self._options, self._log, self._factory = options, log, factory
        self._answers: dict[str, Answer] = {}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._writer: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._failed: TerrazzoError | None = None
        self._stopping = False
        self.facts: dict[str, Any] = {}
        self.ready = False
        self.restarts = 0
        self.load_s = 0.0

    # -- the process ----------------------------------------------------------------------------
    def start(self) -> None:
        """Starts the process; `run` looks after it."""
        self._began = time.perf_counter()
        ours, theirs = socket.socketpair()
        with theirs:
            for sock in (ours, theirs):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "terrazzo.serve.worker", str(theirs.fileno()),
                 self._factory, str(os.getpid())],
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
            )  # fmt: skip
        ours.sendall(link.frame(("options", self._options)))
        self._sock = ours

    async def run(self) -> None:
        """Reads events until `stop`. Raises the TerrazzoError of a start that failed for good."""
        failures = 0
        while True:
            assert self._sock is not None and self._process is not None
            reader, self._writer = await asyncio.open_connection(sock=self._sock)
            await self._read(reader)
            was_ready, self.ready = self.ready, False
            self._writer.close()
            cause = self._failed or EngineDied(f"the engine's process {await self._ended()}")
            self._failed = None
            self._drop(cause)
            if self._stopping:
                return
            failures = 0 if was_ready else failures + 1
            if failures >= RETRIES or (failures and not isinstance(cause, EngineDied)):
                raise cause
            self.restarts += 1
            self._log(f"{cause}; starting it again")
            await asyncio.sleep(PAUSE_S if failures else 0)
            self.start()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Until the process is gone."""
        while True:
            try:
                message = await link.read(reader)
            except (EOFError, pickle.UnpicklingError):
                return
            match message:
                case ("events", events):
                    for event in events:
                        if (answer := self._answers.get(event.request)) is not None:
                            answer.put(event)
                case ("stats" | "check", number, value):
                    if (future := self._asked.pop(number, None)) and not future.done():
                        future.set_result(value)
                case ("phase", name, seconds):
                    self._log(f"engine: {name} {seconds:.2f} s")
                case ("ready", facts):
                    self.facts, self.ready = facts, True
                    self.load_s = time.perf_counter() - self._began
                    self._log(f"engine: ready after {self.load_s:.2f} s, process {self.pid}")
                case ("failed", kind, what, remedy):
                    known = getattr(errors, kind, None)
                    self._failed = (
                        known(what, remedy)
                        if isinstance(known, type) and issubclass(known, TerrazzoError)
                        else TerrazzoError(f"the engine did not start: {what}", remedy)
                    )
                case _:
                    raise AssertionError(message)

    async def _ended(self) -> str:
        """How the process ended, as words."""
        assert self._process is not None
        code = await asyncio.to_thread(self._wait, 5.0)
        if code is None:
            self._process.kill()
            code = self._process.wait()
        return (
            f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )

    def _wait(self, seconds: float) -> int | None:
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _drop(self, cause: TerrazzoError) -> None:
        """Ends what the process held."""
        failure = Failure(type(cause).__name__, str(cause))
        for id, answer in self._answers.items():
            answer.put(Event(id, finish="error", failure=failure))
        self._answers.clear()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(cause)
        self._asked.clear()

    def stop(self, seconds: float = 2.0) -> None:
        """Ends the process, by force if it takes longer. No process is left."""
        self._stopping = True
        if self._writer is not None:
            self._writer.close()
        elif self._sock is not None:
            self._sock.close()
        if self._process is not None and self._wait(seconds) is None:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    # -- requests -------------------------------------------------------------------------------
    def _send(self, message: link.Message) -> None:
        if not self.ready or self._writer is None:
            raise EngineDied("the engine is not ready", "try again in a moment")
        self._writer.write(link.frame(message))

    def add(self, request: Request, answer: Answer) -> None:
        """The request's events go to `answer`. Raises EngineDied while there is no engine."""
        self._send(("add", request))
        self._answers[request.id] = answer

    def abort(self, id: str, choice: int | None = None) -> None:
        """No effect on a request that has ended."""
        if id in self._answers and self.ready:
            self._send(("abort", id, choice))

    def forget(self, id: str) -> None:
        """The caller has seen the end of the request, or wants no more of it."""
        self._answers.pop(id, None)

    async def stats(self) -> Any:
        """The engine's figures. Raises EngineDied."""
        return await self._ask("stats")

    async def check(self) -> str:
        """What is wrong with the engine's books, between two steps; "" if they agree. Raises
        EngineDied."""
        return await self._ask("check")

    async def _ask(self, what: str) -> Any:
        self._count += 1
        future = asyncio.get_running_loop().create_future()
        self._send((what, self._count))
        self._asked[self._count] = future
        return await future

    @property
    def held(self) -> int:
        """Requests in the engine."""
        return len(self._answers)
