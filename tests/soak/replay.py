"""Every answer against the one its request gets alone, on a server that has one place, no drafts,
and blocks for one request, so that beginnings of others are seldom found."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from soak import answers
from soak.client import send
from soak.process import Server
from soak.traffic import Ask


@dataclass
class Compared:
    """`cached`: of how many a beginning was found in the cache all the same."""

    answers: int = 0
    choices: int = 0
    tokens: int = 0
    cached: int = 0
    different: list[str] = field(default_factory=list)


def alone(body: bytes) -> bytes:
    """The request as it is asked for again: whole, with all the time it takes."""
    left = {k: v for k, v in json.loads(body).items()
            if k not in ("stream", "stream_options", "timeout")}  # fmt: skip
    return json.dumps(left).encode()


def order(finished: list[tuple[Ask, Any]], seed: str) -> list[tuple[Ask, Any]]:
    """At random, those with one system message as far from each other as it goes."""
    r = random.Random(seed)
    groups: dict[int, list[tuple[Ask, Any]]] = defaultdict(list)
    for item in r.sample(finished, len(finished)):
        groups[item[0].shared].append(item)
    placed = [(i / len(g), item) for g in groups.values() for i, item in enumerate(g)]
    return [item for _, item in sorted(placed, key=lambda p: p[0])]


def run(
    server: Server,
    finished: list[tuple[Ask, dict[str, Any]]],
    shown: Callable[[int], None],
) -> Compared:
    """One after the other."""
    out = Compared()
    for n, (ask, first) in enumerate(finished):
        if len(out.different) >= 20:
            break
        assert ask.body is not None
        again = dataclasses.replace(ask, body=alone(ask.body), stream=False)
        reply = asyncio.run(send(server.port, again))
        what = f"status {reply.status}: {reply.body[:300]!r}"
        if reply.status == 200:
            second = answers.of(reply)
            what = answers.difference(first, second)
            details = json.loads(reply.body)["usage"]["prompt_tokens_details"]
            out.cached += details["cached_tokens"] > 0
            out.tokens += second["tokens"]["completion"]
            out.choices += len(second["choices"])
        if what:
            out.different.append(f"{what}\n  {ask.kind} {ask.path} {ask.body[:600].decode()}")
        out.answers += 1
        shown(n + 1)
    return out
