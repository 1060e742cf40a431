"""A load client for any OpenAI server: the same traffic for the same seed, timed at the client.

A request is a conversation with a system message that all share, a question of its own, and an
answer of a length that is fixed before. Plain HTTP over asyncio's streams: its own CPU time is
measured, as it shares the machine with the server.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from terrazzo.errors import OptionError

# Common words, each a token behind a space in most vocabularies.
_TEXT = (
    "the of and to in is that for it was on are as with his they at be this from have or by "
    "one had not but what all were when we there can an your which their said if do will "
    "each about how up out them then she many some so these would other into has more her "
    "two like him see time could no make than first been its who now people my made over "
    "did down only way find use may water long little very after words called just where "
    "most know "
)
WORDS = _TEXT.split()


@dataclass(frozen=True)
class Traffic:
    """`requests` questions of `prompt` tokens (about; least, most) behind `shared` ones, answers of
    `answer` tokens, drawn from `seed`. `streams` run at a time, or requests come `rate` a second,
    at random times."""

    requests: int
    streams: int = 1
    rate: float | None = None
    shared: int = 500
    prompt: tuple[int, int] = (50, 800)
    answer: tuple[int, int] = (32, 256)
    seed: int = 0


@dataclass
class Timed:
    """One request: seconds from its start to the first text, between pieces of text, to its end."""

    first_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    whole_s: float = 0.0
    prompt_tokens: int = 0
    tokens: int = 0
    error: str = ""


@dataclass(frozen=True)
class Run:
    """What came of a traffic. Percentiles 50, 90, 99 in seconds, `longest_gap_s` of all gaps;
    `client_cpu`: the client's CPU time as a share of one core."""

    traffic: Traffic
    wall_s: float
    tokens: int
    prompt_tokens: int
    failed: int
    first_s: tuple[float, float, float]
    gap_s: tuple[float, float, float]
    longest_gap_s: float
    client_cpu: float
    errors: tuple[str, ...]

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.wall_s if self.wall_s else 0.0


def bodies(t: Traffic, model: str) -> list[dict[str, Any]]:
    """The requests' JSON, the same for the same traffic."""
    draw = random.Random(t.seed)

    def text(tokens: int) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(tokens))

    system = {"role": "system", "content": text(t.shared)}
    return [
        {
            "model": model,
            "messages": [system, {"role": "user", "content": text(draw.randint(*t.prompt))}],
            "max_tokens": draw.randint(*t.answer), "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True},
        }
        for _ in range(t.requests)
    ]  # fmt: skip


def run(url: str, model: str, t: Traffic, key: str = "") -> Run:
    """Raises OptionError if nothing listens at `url`."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise OptionError(f"url is {url!r}", "give one such as http://127.0.0.1:8000")
    host, port = parts.hostname, parts.port or 80
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    done = asyncio.run(_all(host, port, bodies(t, model), t, key))
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    good = [d for d in done if not d.error]
    gaps = [g for d in good for g in d.gaps_s]
    return Run(
        t, wall, sum(d.tokens for d in good), sum(d.prompt_tokens for d in good),
        len(done) - len(good), percentiles([d.first_s for d in good]),
        percentiles(gaps), max(gaps, default=0.0), cpu / wall,
        tuple(sorted({d.error for d in done if d.error})),
    )  # fmt: skip


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The 50th, 90th and 99th; zeros if there is nothing."""
    v = sorted(values)
    if not v:
        return 0.0, 0.0, 0.0
    a, b, c = (v[min(len(v) - 1, int(len(v) * p))] for p in (0.5, 0.9, 0.99))
    return a, b, c


async def _all(
    host: str, port: int, given: Sequence[dict[str, Any]], t: Traffic, key: str
) -> list[Timed]:
    if t.rate is not None:
        draw, tasks = random.Random(t.seed + 1), []
        for body in given:
            tasks.append(asyncio.create_task(_one(host, port, body, key)))
            await asyncio.sleep(draw.expovariate(t.rate))
        return await asyncio.gather(*tasks)
    left, done = list(reversed(given)), []

    async def stream() -> None:
        while left:
            done.append(await _one(host, port, left.pop(), key))

    await asyncio.gather(*(stream() for _ in range(t.streams)))
    return done


async def _one(host: str, port: int, body: dict[str, Any], key: str) -> Timed:
    out, data = Timed(), json.dumps(body).encode()
    start = last = time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    except OSError as error:
        raise OptionError(f"nothing answers at {host}:{port}: {error.strerror}") from None
    try:
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %b\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % (host.encode(), key.encode() or b"none", len(data)) + data
        )  # fmt: skip
        status = (await reader.readline()).split()[1:2]
        while (await reader.readline()).strip():
            pass
        if status != [b"200"]:
            out.error = f"{status}: {(await reader.read(2000)).decode('utf-8', 'replace')}"
            return out
        while line := await reader.readline():
            if not line.startswith(b"data: {"):
                continue
            now, part = time.perf_counter(), json.loads(line[6:])
            if part.get("error"):
                out.error = part["error"].get("message", "an error")
                return out
            if part.get("usage"):
                out.tokens = part["usage"]["completion_tokens"]
                out.prompt_tokens = part["usage"]["prompt_tokens"]
            if any(c["delta"].get("content") for c in part["choices"]):
                if out.first_s:
                    out.gaps_s.append(now - last)
                else:
                    out.first_s = now - start
                last = now
    except (OSError, ValueError, IndexError, KeyError) as error:
        out.error = f"{type(error).__name__}: {error}"
    finally:
        writer.close()
        out.whole_s = time.perf_counter() - start
    if not out.tokens and not out.error:
        out.error = "the answer has no usage"
    return out
