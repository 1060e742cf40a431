"""Loops that repeat themselves are multiplied out instead of replayed.

At the end of a trip of any loop of the first core the state of all pipes, relative to that core's
scalar unit, is compared with that after earlier trips. Where it was the same `d` trips ago, and the
trips to come equal those `d` before them, the time from then to now comes again: it is added as
often as it fits, and the rest of the loop is replayed. Times in the past of a core's scalar unit
start nothing any more and count as its present.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from terrazzo.targets.davinci.replay import Core, Frame, Group

_LEAST = 3  # trips left that are worth a look
_DIGITS = 3  # of a cycle, in comparisons


@dataclass(frozen=True)
class Snapshot:
    """After a trip: where every core stands, its times and sums."""

    trips: list[tuple[int, ...]]
    now: float
    times: list[tuple[list[float], list[float], list[float]]]  # free, left, done of each core
    sums: list[tuple[list[float], list[list[float]], float, float]]


def boundary(group: Group, frame: Frame) -> None:
    """Called when the first core is about to begin a trip of `frame`'s loop."""
    lead = group.cores[0]
    left = len(frame.loop.trips) - frame.trip
    if not group.skip or left < _LEAST or lead.now < group.window:
        return
    state = tuple(_state(core, lead.now) for core in group.cores)
    before = frame.seen.get(state)
    here = _snapshot(group)
    frame.seen[state] = here
    if before is None:
        return
    jumps = []
    periods = 1 << 60
    for core, then in zip(group.cores, before.trips, strict=True):
        level = _moved(core, then)
        if level is None:
            return
        if level >= 0:
            moving = core.stack[level]
            d = moving.trip - then[level]
            periods = min(periods, (moving.loop.repeats(moving.trip, d) - 1) // d)
            jumps.append((moving, d))
    period = lead.now - before.now
    limit = min([group.stop, *(b for b in group.bounds if b > before.now)])
    if limit < float("inf"):
        # Pipes run ahead of the scalar unit by less than what is in their queues.
        ahead = max(core.end() for core in group.cores) - lead.now
        periods = min(periods, int((limit - lead.now - ahead) // period) if period > 0 else 0)
    if periods < 1:
        return
    for moving, d in jumps:
        moving.trip += periods * d
    for core, times, sums in zip(group.cores, before.times, before.sums, strict=True):
        _shift(core, periods * period, times)
        _add(core, periods, sums)
    frame.seen.clear()


def _moved(core: Core, then: tuple[int, ...]) -> int | None:
    """The one level of its loops at which a core stands elsewhere than then, -1 if at none, None if
    at several, or backwards."""
    if len(then) != len(core.stack):
        return None
    levels = [i for i, f in enumerate(core.stack) if f.trip != then[i]]
    if len(levels) > 1 or any(core.stack[i].trip < then[i] for i in levels):
        return None
    return levels[0] if levels else -1


def _state(core: Core, lead: float) -> Any:
    now = core.now

    def since(times: Any) -> tuple[float, ...]:
        return tuple([round(t - now, _DIGITS) if t > now else 0.0 for t in times])

    return (
        round(now - lead, _DIGITS),
        since(core.free), since(core.done), since(core.left), tuple(core.on),
        tuple(tuple([round(t - now, _DIGITS) for t in q if t > now]) for q in core.starts),
        tuple([(name, since(q)) for name, q in core.flags.items() if q]),
        tuple([(name, since(q)) for name, q in core.cross.items() if q]),
        tuple(core.blocked),
        tuple(tuple([(i[0], i[1], max(round(t - now, _DIGITS), 0.0)) for i, t in q])
              for q in core.pending if q),
        tuple([(id(f.loop), f.at) for f in core.stack]),
    )  # fmt: skip


def _snapshot(group: Group) -> Snapshot:
    return Snapshot(
        [tuple(f.trip for f in core.stack) for core in group.cores],
        group.cores[0].now,
        [(core.free[:], core.left[:], core.done[:]) for core in group.cores],
        [(core.busy[:], [w[:] for w in core.waits], core.hbm, core.l2) for core in group.cores],
    )


def _shift(core: Core, by: float, before: tuple[list[float], list[float], list[float]]) -> None:
    """Moves a core's times on; those of pipes that did not run since stay."""
    core.now += by
    for times, old in zip((core.free, core.left, core.done), before, strict=True):
        times[:] = [t + by if t != o else t for t, o in zip(times, old, strict=True)]
    core.starts = [deque([t + by for t in q], maxlen=q.maxlen) for q in core.starts]
    for flags in (core.flags, core.cross):
        for name in flags:
            flags[name] = deque(t + by for t in flags[name])
    core.pending = [deque((item, t + by) for item, t in q) for q in core.pending]


def _add(core: Core, times: int, before: tuple[list[float], list[list[float]], float, float]) -> None:
    busy, waits, hbm, l2 = before
    core.busy = [b + times * (b - a) for a, b in zip(busy, core.busy, strict=True)]
    core.waits = [
        [b + times * (b - a) for a, b in zip(old, new, strict=True)]
        for old, new in zip(waits, core.waits, strict=True)
    ]
    core.hbm += times * (core.hbm - hbm)
    core.l2 += times * (core.l2 - l2)
