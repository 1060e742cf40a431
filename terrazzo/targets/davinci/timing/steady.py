"""Loops that repeat themselves are multiplied out instead of replayed.

At the end of a trip of any loop of a group's first core the state of all pipes, relative to their
core's scalar unit, is compared with that after earlier trips. Where it was the same some trips ago,
and the trips to come equal those since, the time from then to now comes again: it is added as often
as it fits, and the rest of the loop is replayed. Times in the past of a core's scalar unit start
nothing any more and count as its present.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from terrazzo.targets.davinci.timing.replay import Core, Frame, Group

_DIGITS = 3  # of a cycle, in comparisons
_KEPT = 24  # states of a loop that are remembered


@dataclass(frozen=True)
class Snapshot:
    """After a trip: where every core stands, its times and sums."""

    trips: list[tuple[int, ...]]
    now: float  # of the first core's scalar unit
    scalar: list[float]  # of every core's
    times: list[tuple[list[float], list[float], list[float]]]  # free, left, done of each core
    sums: list[list[float]]


def boundary(group: Group, frame: Frame) -> None:
    """Called when the first core is about to begin a trip of `frame`'s loop."""
    lead = group.cores[0]
    state = tuple(_state(core, lead.now) for core in group.cores)
    before = frame.seen.get(state)
    if len(frame.seen) > _KEPT:
        frame.seen.clear()
    frame.seen[state] = Snapshot(
        [tuple(f.trip for f in core.stack) for core in group.cores],
        lead.now,
        [core.now for core in group.cores],
        [(core.free[:], core.left[:], core.done[:]) for core in group.cores],
        [_sums(core) for core in group.cores],
    )
    if before is None:
        return
    for core, (_, left, _), now in zip(group.cores, before.times, before.scalar, strict=True):
        # A pipe that ran since has to stand as long as then; `_state` does not look at the past.
        if any(a != b and abs((a - core.now) - (b - now)) > 10**-_DIGITS
               for a, b in zip(core.left, left, strict=True)):  # fmt: skip
            return
    jumps: list[tuple[Frame, int]] = []
    for core, then in zip(group.cores, before.trips, strict=True):
        moved = [(f, f.trip - t) for f, t in zip(core.stack, then, strict=True) if f.trip != t]
        if len(moved) > 1 or any(d < 0 for _, d in moved):
            return  # from one trip of an outer loop to another
        jumps += moved
    times = min(_repeats(f.trips, f.trip, d) // d for f, d in jumps)
    period = lead.now - before.now
    # A stretch that has a speed of its own is not left by a jump; pipes run ahead of the scalar
    # unit by no more than what is in their queues.
    limit = min((b for b in group.bounds if b > before.now), default=None)
    if limit is not None:
        ahead = max(core.end() for core in group.cores) - lead.now
        times = min(times, int((limit - lead.now - ahead) // period) if period > 0 else 0)
    if times < 1:
        return
    for moving, d in jumps:
        moving.trip += times * d
    for core, then, sums in zip(group.cores, before.times, before.sums, strict=True):
        _shift(core, times * period, then)
        _add(core, [times * (b - a) for a, b in zip(sums, _sums(core), strict=True)])
    frame.seen.clear()


def _repeats(trips: tuple[int, ...], at: int, d: int) -> int:
    """How many trips from `at` on equal those `d` before. The last trip is left to the replay."""
    n = 0
    while at + n < len(trips) - 1 and trips[at + n] == trips[at + n - d]:
        n += 1
    return n


def _state(core: Core, lead: float) -> Any:
    now = core.now

    def since(times: Any) -> tuple[float, ...]:
        return tuple([round(t - now, _DIGITS) if t > now else 0.0 for t in times])

    return (
        round(now - lead, _DIGITS),
        since(core.free), since(core.done), tuple(core.on),
        tuple([tuple([round(t - now, _DIGITS) for t in q if t > now]) if q[-1] > now else ()
               for q in core.starts]),
        tuple([(name, since(q)) for name, q in core.flags.items() if q]),
        tuple([(name, since([t for t, _ in q])) for name, q in core.cross.items() if q]),
        tuple([(f.number, f.at) for f in core.stack]),
    )  # fmt: skip


def _shift(core: Core, by: float, before: tuple[list[float], list[float], list[float]]) -> None:
    """Moves a core's times on; those of pipes that did not run since stay."""
    core.now += by
    for times, old in zip((core.free, core.left, core.done), before, strict=True):
        times[:] = [t + by if t != o else t for t, o in zip(times, old, strict=True)]
    core.starts = [deque([t + by for t in q], maxlen=q.maxlen) for q in core.starts]
    core.flags = {name: deque(t + by for t in q) for name, q in core.flags.items()}
    core.cross = {name: deque((t + by, p) for t, p in q) for name, q in core.cross.items()}


def _sums(core: Core) -> list[float]:
    return [*core.busy, *core.hbm, *core.l2, *(w for waits in core.waits for w in waits)]


def _add(core: Core, more: list[float]) -> None:
    it = iter(more)
    for sums in (core.busy, core.hbm, core.l2, *core.waits):
        for i in range(len(sums)):
            sums[i] += next(it)
