"""Running an engine to the end of its requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from terrazzo.engine.engine import Engine
from terrazzo.engine.request import Event, Request


def run(engine: Engine, requests: Sequence[Request] = ()) -> dict[str, list[Event]]:
    """All events of each request, until there is nothing to do; the books agree after each step."""
    for r in requests:
        engine.add(r)
    out: dict[str, list[Event]] = defaultdict(list)
    while engine.busy:
        for event in engine.step():
            out[event.request].append(event)
        engine.check()
    return out


def tokens(events: Sequence[Event], choice: int = 0) -> list[int]:
    return [t for e in events if e.choice == choice for t in e.tokens]
