"""An oracle for the replay: the least start times that satisfy every rule, found by applying the
rules to whole lists of items again and again until nothing changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from terrazzo.targets.davinci.timing.constants import Constants
from terrazzo.targets.davinci.timing.trace import (
    ALL,
    BARRIER,
    DO,
    PIPES,
    RAISE,
    SET,
    TAKE,
    WAIT,
    Item,
)


@dataclass
class Listed:
    """One core: its items in order; of a DO, (occupancy, latency, entries of the queue) instead of
    its number."""

    items: list[tuple[int, int, Any]]
    start: list[float] = field(default_factory=list)
    gone: list[float] = field(default_factory=list)  # when the pipe goes on


def times(cores: Sequence[list[Item]], k: Constants) -> list[Listed]:
    """Starts of all items of a group of cores; the first one is the cube core, if there are
    several."""
    found = [Listed(items, [0.0] * len(items), [0.0] * len(items)) for items in cores]
    while True:
        before = [(c.start[:], c.gone[:]) for c in found]
        raised = _raised(found, k)
        for number, core in enumerate(found):
            _apply(core, number, len(found), raised, k)
        if before == [(c.start, c.gone) for c in found]:
            return found


def end(cores: Sequence[Listed]) -> float:
    return max(
        core.start[i] + what[0] + what[1] if kind == DO else core.gone[i]
        for core in cores
        for i, (kind, _, what) in enumerate(core.items)
    )


def _done(core: Listed, pipe: int, before: int) -> float:
    """When all that a pipe was given before item `before` is complete."""
    return max(
        (core.start[i] + what[0] + what[1] for i, (kind, p, what) in enumerate(core.items[:before])
         if kind == DO and pipe in (p, ALL)),
        default=0.0,
    )  # fmt: skip


def _raised(cores: Sequence[Listed], k: Constants) -> dict[Any, list[float]]:
    """Times of every flag's raises, by (core that raises, flag) and (core, "own", flag)."""
    out: dict[Any, list[float]] = defaultdict(list)
    for number, core in enumerate(cores):
        for i, (kind, pipe, what) in enumerate(core.items):
            at = max(core.start[i], _done(core, pipe, i))
            if kind == SET:
                out[number, "own", what].append(at)
            elif kind == RAISE:
                out[number, what].append(at + k.hand_over)
    return out


def _apply(core: Listed, number: int, cores: int, raised: dict[Any, list[float]],
           k: Constants) -> None:  # fmt: skip
    issued = -k.scalar_issue
    taken: dict[Any, int] = defaultdict(int)
    earlier: dict[int, list[int]] = defaultdict(list)
    left: dict[int, list[float]] = defaultdict(list)  # when a queue's entries leave it
    stall = 0.0
    for i, (kind, pipe, what) in enumerate(core.items):
        issued = max(issued + k.scalar_issue, stall)
        everywhere = kind == BARRIER and pipe == ALL
        if pipe and not everywhere and len(left[pipe]) >= k.queue_depth:
            issued = max(issued, left[pipe][-k.queue_depth])
        start = issued
        for p in range(len(PIPES)) if everywhere else (pipe,):
            if earlier[p]:
                start = max(start, core.gone[earlier[p][-1]])
        gone = start
        if kind == DO:
            gone = start + what[0]
        elif kind == BARRIER:
            gone = max(start, _done(core, pipe, i))
        elif kind == WAIT:
            gone = max(start, raised[number, "own", what][taken[what]])
            taken[what] += 1
        elif kind == TAKE:
            sources = range(1, cores) if number == 0 else (0,)
            gone = max(start, *(raised[s, what][taken["cross", what]] for s in sources))
            taken["cross", what] += 1
        core.start[i], core.gone[i] = start, gone
        for p in range(1, len(PIPES)) if everywhere else (pipe,):
            earlier[p].append(i)
            left[p].append(start)
        for j in range(1, what[2] if kind == DO else 1):
            issued += k.scalar_issue
            if len(left[pipe]) >= k.queue_depth:
                issued = max(issued, left[pipe][-k.queue_depth])
            left[pipe].append(start + j * what[0] / what[2])
        if everywhere or pipe == 0:  # the scalar unit itself waits
            stall = gone + k.scalar_issue
