"""A round: many clients at a time for a while, then silence, in which the server has to be as it
was before."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from soak import answers
from soak.client import Reply, send
from soak.process import Server
from soak.traffic import Ask, burst, draw, schema

CLIENTS, BURST = 12, 30
DEADLINE_S = 60.0  # for one request, with all that is before it in the queue
QUIET_S = 5.0  # for what was cancelled to be gone
FAULTS = 20  # of these enough have been seen


@dataclass
class Found:
    """What has come of the traffic so far. `finished` have an answer to compare; `faults` are
    sentences."""

    counts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    finished: list[tuple[Ask, dict[str, Any]]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    rss: list[dict[str, int]] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def fault(self, ask: Ask, what: str) -> None:
        body = (ask.body or b"")[:400].decode("utf-8", "replace")
        self.faults.append(f"{what}\n  {ask.kind} {ask.path} {ask.cut or ''} {body}")


WARM_UP = 48


def warm_up(server: Server, seed: str, found: Found) -> None:
    """What is kept for good is made: compiled schemas, as many as are kept, and every KV block."""

    async def all_of_them() -> None:
        r = random.Random(f"{seed} warm-up")
        asks = [schema(r) for _ in range(WARM_UP)]
        for n in range(0, WARM_UP, CLIENTS):
            await asyncio.gather(*(one(server.port, a, found, r) for a in asks[n : n + CLIENTS]))

    asyncio.run(all_of_them())


def run(server: Server, seed: str, seconds: float, found: Found) -> None:
    """A round of traffic, then the look at the idle server."""
    asyncio.run(_round(server, seed, seconds, found))
    idle(server, found)
    _note(server, found)


async def _round(server: Server, seed: str, seconds: float, found: Found) -> None:
    end = time.monotonic() + seconds

    async def client(number: int) -> None:
        r = random.Random(f"{seed} {number}")
        while time.monotonic() < end and len(found.faults) < FAULTS:
            await one(server.port, draw(r), found, r)

    async def flood() -> None:
        await asyncio.sleep(seconds / 2)
        r = random.Random(f"{seed} burst")
        await asyncio.gather(*(one(server.port, a, found, r) for a in burst(r, BURST)))

    await asyncio.gather(flood(), *(client(n) for n in range(CLIENTS)))


async def killed(server: Server, seed: str) -> dict[str, int]:
    """Kills the server while it answers; the processes it had."""
    r = random.Random(seed)
    tasks = [asyncio.create_task(send(server.port, draw(r))) for _ in range(CLIENTS)]
    await asyncio.sleep(0.5)
    processes = server.processes()
    server.kill()
    await asyncio.gather(*tasks, return_exceptions=True)
    return processes


async def one(port: int, ask: Ask, found: Found, r: random.Random) -> None:
    """One request; what has no place now tries again once, when it was told to."""
    for attempt in (0, 1):
        found.counts[ask.kind] += 1
        try:
            reply = await asyncio.wait_for(send(port, ask), DEADLINE_S)
        except TimeoutError:
            found.fault(ask, f"no end of an answer within {DEADLINE_S:g} s")
            return
        except (OSError, EOFError, ValueError) as error:
            found.fault(ask, f"{type(error).__name__}: {error}")
            return
        found.slowest_s = max(found.slowest_s, reply.seconds)
        judge(ask, reply, found)
        if reply.status != 429 or attempt:
            return
        await asyncio.sleep(int(reply.headers.get("retry-after", "1")) * r.uniform(1, 1.2))


def judge(ask: Ask, reply: Reply, found: Found) -> None:
    if not reply.status:
        found.statuses["hung up"] += 1
        return
    found.statuses[str(reply.status)] += 1
    if reply.status not in ask.right:
        found.fault(ask, f"status {reply.status}, not {sorted(ask.right)}: {reply.body[:300]!r}")
    elif reply.status == 429 and not reply.headers.get("retry-after", "").isdigit():
        found.fault(ask, f"a 429 with Retry-After {reply.headers.get('retry-after')!r}")
    elif reply.ended and reply.status != 200 and not (reply.error or {}).get("message"):
        found.fault(ask, f"a {reply.status} without an error's message: {reply.body[:300]!r}")
    elif reply.status == 200 and reply.ended and ask.answers and ask.cut is None:
        if reply.error is None:
            found.finished.append((ask, answers.of(reply)))
        elif reply.error.get("code") == "timeout" and 504 in ask.right:
            found.statuses["504 in a stream"] += 1
        else:
            found.fault(ask, f"a stream that ended with {reply.error}")


# -- silence ------------------------------------------------------------------------------------
def idle(server: Server, found: Found) -> None:
    """Nothing runs or waits, no block is held, the books agree."""
    end = time.monotonic() + QUIET_S
    while True:
        state = server.engine()
        stats = state["stats"]
        if not (stats["running"] or stats["waiting"]):
            break
        if time.monotonic() > end:
            found.faults.append(
                f"{stats['running']} run and {stats['waiting']} wait {QUIET_S:g} s after the last"
                f" client has gone: {json.dumps(stats['owners'])[:300]}"
            )
            return
        time.sleep(0.05)
    if state["books"] != "":
        found.faults.append(f"the engine's books: {state['books']}")
    if state["restarts"]:
        found.faults.append(f"the engine was started again {state['restarts']} times")
    held = [i for i, refs in enumerate(stats["block_refs"]) if refs]
    if held or stats["owners"]:
        found.faults.append(f"blocks {held[:20]} are held by nobody that runs: {stats['owners']}")
    figures = server.metrics()
    for name in ("running_sequences", "waiting_sequences", "kv_blocks_used"):
        if figures[name]:
            found.faults.append(f"/metrics: {name} {figures[name]:g} of an idle server")
    status, body = server.get("/health")
    if status != 200 or json.loads(body) != {"status": "ok"}:
        found.faults.append(f"/health: {status} {body[:200]!r}")


def _note(server: Server, found: Found) -> None:
    """What memory and files the idle server holds."""
    samples = []
    for _ in range(5):
        samples.append(server.rss())
        time.sleep(0.05)
    found.rss.append({n: int(statistics.median(s[n] for s in samples)) for n in samples[-1]
                      if all(n in s for s in samples)})  # fmt: skip
    found.files.append(server.open_files())
