"""The engine's process: events, aborts, its death, starts that fail, and that none is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serve_tools import FACTORY, alive

from terrazzo.engine.request import Event, Request
from terrazzo.errors import EngineDied, ModelFileError, TerrazzoError
from terrazzo.serve.supervisor import Answer, Supervisor

DIE, FULL, FAULT, SLOW = 11, 12, 13, 14


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", f"{here}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[Supervisor, list[str]]]:
    lines: list[str] = []
    supervisor = Supervisor(options, lines.append, FACTORY)
    supervisor.start()
    task = asyncio.create_task(supervisor.run())
    try:
        while not supervisor.ready and not task.done():
            await asyncio.sleep(0.01)
        if task.done():
            await task
        yield supervisor, lines
    finally:
        supervisor.stop()
        await asyncio.gather(task, return_exceptions=True)


def within(seconds: float, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), seconds))


async def answers(supervisor: Supervisor, request: Request) -> list[Event]:
    answer, out = Answer(), []
    supervisor.add(request, answer)
    while not out or (out[-1].usage is None and out[-1].failure is None):
        out += await answer.take()
    return out


def test_events_come_in_order_and_many_requests_share_the_engine() -> None:
    async def test() -> None:
        async with running() as (supervisor, lines):
            made = await asyncio.gather(
                *(answers(supervisor, Request(str(n), (n, 7), max_tokens=5)) for n in range(1, 9))
            )
            for n, events in enumerate(made, 1):
                assert [t for e in events for t in e.tokens] == [n, 7, n, 7, n]
                assert events[-1].finish == "length"
            assert any("ready after" in line for line in lines)

    within(20, test)


def test_the_books_are_checked_in_the_engine_and_a_fault_is_told_not_died_of() -> None:
    async def test() -> None:
        async with running() as (supervisor, _):
            assert await supervisor.check() == ""
            answer = Answer()
            supervisor.add(Request("a", (SLOW,), max_tokens=10_000), answer)
            await answer.take()
            supervisor.abort("a")
            assert await supervisor.check() == "1 aborted"  # this engine's idea of a fault
            assert await supervisor.stats() and not supervisor.restarts

    within(20, test)


def test_an_abort_ends_the_request_at_once() -> None:
    async def test() -> None:
        async with running() as (supervisor, _):
            answer = Answer()
            supervisor.add(Request("a", (SLOW,), max_tokens=10_000, choices=2), answer)
            await answer.take()
            supervisor.abort("a", 1)
            ends = []
            while not ends:
                ends = [e for e in await answer.take() if e.finish]
            assert (ends[0].choice, ends[0].finish, ends[0].usage) == (1, "cancelled", None)
            supervisor.abort("a")
            while not (ends := [e for e in await answer.take() if e.usage]):
                pass
            assert (await supervisor.stats())["running"] == 0

    within(20, test)


def test_refusals_and_faults_are_one_requests() -> None:
    async def test() -> None:
        async with running() as (supervisor, _):
            other = asyncio.create_task(answers(supervisor, Request("o", (5,), max_tokens=400)))
            [full] = await answers(supervisor, Request("f", (FULL,)))
            assert full.failure and full.failure.kind == "QueueFull"
            assert full.failure.retry_after_s == 7
            *_, fault = await answers(supervisor, Request("g", (FAULT,), max_tokens=9))
            assert fault.failure and fault.failure.kind == "KernelFault"
            assert len([t for e in await other for t in e.tokens]) == 400

    within(20, test)


def test_a_death_ends_what_it_held_with_an_error_and_the_engine_comes_back() -> None:
    async def test() -> None:
        async with running() as (supervisor, lines):
            held = asyncio.create_task(answers(supervisor, Request("h", (SLOW,), max_tokens=9999)))
            await asyncio.sleep(0.1)
            [died] = await answers(supervisor, Request("d", (DIE,)))
            assert died.failure and died.failure.kind == "EngineDied"
            assert "SIGSEGV" in died.failure.text
            assert (await held)[-1].failure == died.failure
            with pytest.raises(EngineDied):
                supervisor.add(Request("early", (1,)), Answer())
            while not supervisor.ready:
                await asyncio.sleep(0.01)
            assert len(await answers(supervisor, Request("again", (1,), max_tokens=3))) == 3
            assert supervisor.restarts == 1
            assert any("SIGSEGV" in line for line in lines)

    within(30, test)


@pytest.mark.parametrize(
    ("fail", "kind", "words"),
    [
        ("typed", ModelFileError, "no such model; pull it"),
        ("untyped", TerrazzoError, "a defect"),
        ("dies", EngineDied, "SIGKILL"),
    ],
)
def test_a_failed_start_says_why(fail: str, kind: type[TerrazzoError], words: str) -> None:
    async def test() -> None:
        with pytest.raises(kind, match=words):
            async with running(fail=fail):
                raise AssertionError

    within(30, test)


def test_stop_leaves_no_process() -> None:
    async def test() -> None:
        async with running() as (supervisor, _):
            pid = supervisor.pid
            supervisor.add(Request("a", (SLOW,), max_tokens=10_000), Answer())
        assert not alive(pid)

    within(20, test)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_engine_ends_with_its_server_however_that_ends(how: signal.Signals) -> None:
    code = (
        "import asyncio\nfrom terrazzo.serve.supervisor import Supervisor\n"
        f"s = Supervisor({{}}, print, {FACTORY!r})\ns.start()\n"
        "async def main():\n t = asyncio.create_task(s.run())\n"
        " while not s.ready: await asyncio.sleep(0.01)\n"
        " print('PID', s.pid, flush=True)\n await t\nasyncio.run(main())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        pid = int(next(line for line in server.stdout if line.startswith("PID")).split()[1])
        assert alive(pid)
        server.send_signal(how)
        server.wait(10)
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pid)
