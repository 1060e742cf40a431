"""The timeline in the Trace Event Format that Perfetto and chrome://tracing open.

A process for each core, a thread for each of its pipes, a slice for each instruction with its
bytes, line and wait, a flow arrow for each flag, and counters of the bytes that UB, L1 and L0 hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import count, zip_longest
from typing import Any

from terrazzo.profile import names
from terrazzo.profile.report import Report
from terrazzo.targets.davinci.program import CoreKind
from terrazzo.targets.davinci.timing.timeline import Span

Event = dict[str, Any]
Lane = tuple[CoreKind, int, str]  # a core's pipe


def trace(report: Report) -> dict[str, Any]:
    """The whole file as one JSON object; times in microseconds since the cores started."""
    t = report.timeline
    lanes: dict[Lane, list[Span]] = defaultdict(list)
    for span in sorted(t.spans, key=lambda s: s.start):
        lanes[span.kind, span.core, span.pipe].append(span)
    events = [
        *_metadata(lanes),
        *_slices(report, lanes),
        *_arrows(report, lanes),
        *_counters(report),
    ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "kernel": report.program.name,
            "chip": t.chip.name,
            "predicted_us": t.us,
            "shown_us": max((s.end for s in t.spans), default=0.0) / t.chip.mhz,
            "plan": report.plan,
        },
    }


def _process(kind: CoreKind, core: int) -> int:
    """Cube and vector cores have numbers of their own."""
    return 1 + 2 * core + (kind == "vector")


def _thread(kind: CoreKind, pipe: str) -> int:
    """In the order that reports show pipes."""
    return 1 + [str(p) for p in names.PIPES[kind]].index(pipe)


def _metadata(lanes: dict[Lane, list[Span]]) -> list[Event]:
    out: list[Event] = []
    cores: dict[tuple[CoreKind, int], None] = {(kind, core): None for kind, core, _ in lanes}
    for kind, core in cores:
        pid = _process(kind, core)
        out.append(_about("process_name", pid, 0, name=f"{kind} core {core}"))
        out.append(_about("process_sort_index", pid, 0, sort_index=pid))
    for kind, core, pipe in lanes:
        pid, tid = _process(kind, core), _thread(kind, pipe)
        out.append(_about("thread_name", pid, tid, name=names.spoken(pipe)))
        out.append(_about("thread_sort_index", pid, tid, sort_index=tid))
    return out


def _about(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _slices(report: Report, lanes: dict[Lane, list[Span]]) -> list[Event]:
    """A read frees its pipe before its data has arrived, and slices of a thread must not overlap:
    they end where the next one starts; `cycles` has the whole time."""
    mhz = report.timeline.chip.mhz
    out: list[Event] = []
    for s, end in ((s, end) for spans in lanes.values() for s, end in _apart(spans)):
        args: dict[str, Any] = {"cycles": s.end - s.start}
        if s.moved:
            args["bytes"] = s.moved
            args["bytes_per_cycle"] = s.moved / (s.end - s.start) if s.end > s.start else 0.0
        if line := report.listing.line(s.loc):
            args["line"] = line
            args["source"] = report.listing.text(line).strip()
        if s.on:
            args["waited_cycles"], args["waited_for"] = s.waited, names.spoken(s.on)
        out.append(
            {
                "ph": "X",
                "name": s.op,
                "cat": names.prefix(s.kind, s.pipe),
                "pid": _process(s.kind, s.core),
                "tid": _thread(s.kind, s.pipe),
                "ts": s.start / mhz,
                "dur": (end - s.start) / mhz,
                "args": args,
            }
        )
    return out


def _apart(spans: list[Span]) -> Iterator[tuple[Span, float]]:
    for s, after in zip_longest(spans, spans[1:]):
        yield s, min(s.end, after.start) if after else s.end


def _end(spans: list[Span], at: int) -> float:
    """Where the slice of spans[at] ends."""
    return next(end for _, end in _apart(spans[at : at + 2]))


def _arrows(report: Report, lanes: dict[Lane, list[Span]]) -> list[Event]:
    """Flows bind to slices: they leave the one during which the flag was raised and arrive at the
    first one that starts after it was taken. Arrows without either are left out."""
    mhz = report.timeline.chip.mhz
    numbers = count(1)
    out: list[Event] = []
    starts = {lane: [s.start for s in spans] for lane, spans in lanes.items()}
    for a in report.timeline.arrows:
        other: CoreKind = a.kind
        core = a.core
        if a.to_core is not None:
            other, core = ("vector" if a.kind == "cube" else "cube"), a.to_core
        here: Lane = (a.kind, a.core, a.src)
        there: Lane = (other, core, a.dst)
        if here not in lanes or there not in lanes:
            continue
        at = bisect_right(starts[here], a.raised) - 1
        to = bisect_right(starts[there], a.taken - 1e-6)
        if at < 0 or to >= len(lanes[there]):
            continue
        source, target = lanes[here][at], lanes[there][to]
        number = next(numbers)
        ends: list[tuple[str, Lane, float]] = [
            ("s", here, min(max(a.raised, source.start), _end(lanes[here], at))),
            ("f", there, target.start),
        ]
        for ph, lane, ts in ends:
            event: Event = {
                "ph": ph, "name": "flag", "cat": "flag", "id": number,
                "pid": _process(lane[0], lane[1]), "tid": _thread(lane[0], lane[2]), "ts": ts / mhz,
            }  # fmt: skip
            out.append(event | {"bp": "e"} if ph == "f" else event)
    return out


def _counters(report: Report) -> list[Event]:
    mhz = report.timeline.chip.mhz
    out: list[Event] = []
    for room in report.rooms:
        core = min((s.core for s in report.timeline.spans if s.kind == room.kind), default=0)
        changes: dict[float, int] = defaultdict(int)
        for h in room.held:
            changes[h.start] += h.buffer.bytes
            changes[h.end] -= h.buffer.bytes
        held = 0
        for at in sorted(changes):
            held += changes[at]
            out.append(
                {
                    "ph": "C",
                    "name": f"{room.space} bytes held",
                    "pid": _process(room.kind, core),
                    "ts": at / mhz,
                    "args": {"bytes": held},
                }
            )
    return out
