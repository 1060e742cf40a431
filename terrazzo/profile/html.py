"""A report as one page that needs nothing else: no other file, no network, no build step.

The page is `page/page.html` with its style, its script and the report's data put in. It shows at
most SPANS instructions; the rest is counted and said.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from terrazzo.profile import colours, names, picture
from terrazzo.profile.report import Report
from terrazzo.targets.davinci.program import CoreKind
from terrazzo.targets.davinci.timing.timeline import Span

SPANS = 16_000  # instructions that a page shows; with their arrows about a megabyte
FIRST = 5  # times that a slot is filled in the part of the time that is shown first
SCRIPTS = ("base.js", "timeline.js", "rooms.js", "roofline.js", "page.js")
Data = dict[str, Any]


def page(report: Report) -> str:
    """The page's text."""
    text = json.dumps(_data(report), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    parts = {
        "{title}": escape(f"{report.program.name} on {report.timeline.chip.name}"),
        "{style}": _file("page.css"),
        "{data}": text.replace("<", "\\u003c"),  # no end tag, no comment inside of the script
        "{script}": "\n".join(map(_file, SCRIPTS)),
    }
    out = _file("page.html")
    for marker, part in parts.items():
        before, after = out.split(marker, 1)
        out = before + part + after
    return out


@cache
def _file(name: str) -> str:
    return files("terrazzo.profile").joinpath("page", name).read_text(encoding="utf-8")


def _data(report: Report) -> Data:
    """What the scripts read, by the names they use. Times are cycles."""
    t, f = report.timeline, report.figures
    spans = sorted(t.spans, key=lambda s: s.start)
    left_out = max(0, len(spans) - SPANS)
    spans = spans[:SPANS]
    until = max((s.end for s in spans), default=0.0)
    return {
        "kernel": report.program.name,
        "chip": t.chip.name,
        "mhz": t.chip.mhz,
        "plan": report.plan,
        "arguments": report.arguments,
        "us": t.us,
        "launch_us": t.launch_us,
        "cycles": t.cycles,
        "tflops": t.tflops,
        "roof": {"memory": "HBM", "l2": "L2"}.get(f.roof.name, f.roof.name),
        "roof_percent": f.roof_percent,
        "roofs": [{"name": r.name, "peak": r.peak, "unit": r.unit} for r in f.roofs],
        "intensity": f.intensity,
        "l2_intensity": f.l2_intensity,
        "bound": f.bound,
        "why": f.why,
        "conflict_ratio": f.conflict_ratio,
        "advice": [a.json() for a in report.advice],
        "bars": _bars(report),
        "traffic": [
            {"path": x.path, "bytes": x.bytes, "gb_s": x.gb_s, "share": x.share} for x in f.traffic
        ],
        "first": report.listing.first,
        "lines": [
            {
                "number": x.number,
                "text": x.text,
                "cycles": x.cycles,
                "share": x.share,
                "pipes": x.pipes,
                "colour": colours.PIPE[names.of_column(x.pipe)] if x.pipe else "",
            }
            for x in report.lines
        ],
        "until": until,
        "window": min(picture.window(report.rooms, FIRST) or until, until),
        "left_out": left_out,
        **_timeline(report, spans, until),
        "rooms": _rooms(report, until),
    }


def _bars(report: Report) -> list[Data]:
    t = report.timeline
    out = []
    for kind, pipes in names.PIPES.items():
        for pipe in pipes:
            use = t.pipe(kind, pipe)
            if use is None:
                continue
            name = names.prefix(kind, pipe)
            waits = sorted(use.waits.items(), key=lambda kv: -kv[1])
            # A pipe may wait while its last transfer is under way: what is drawn is the idle rest.
            rest = max(0.0, 1 - t.ratio(kind, pipe))
            part = min(1.0, rest * t.cycles / (sum(use.waits.values()) or 1.0))
            out.append(
                {
                    "kind": kind,
                    "cores": t.cores[kind],
                    "there": t.chip.cores(kind),
                    "name": name,
                    "label": names.spoken(pipe),
                    "colour": colours.PIPE[pipe],
                    "ratio": t.ratio(kind, pipe),
                    "us": report.figures.times[f"{name}_time(us)"],
                    "waits": [
                        {
                            "label": names.spoken(on),
                            "colour": colours.PIPE[on],
                            "share": cycles / t.cycles,
                            "drawn": part * cycles / t.cycles,
                        }
                        for on, cycles in waits
                        if cycles >= 0.005 * t.cycles
                    ],
                }
            )
    return out


def _timeline(report: Report, spans: list[Span], until: float) -> Data:
    """Lanes with a list a column, which is half the size of an object an instruction."""
    lanes: dict[tuple[CoreKind, int, str], list[Span]] = defaultdict(list)
    for s in spans:
        lanes[s.kind, s.core, s.pipe].append(s)
    order: list[tuple[CoreKind, int, str]] = [
        (kind, core, pipe)
        for kind, pipes in names.PIPES.items()
        for core in sorted({c for k, c, _ in lanes if k == kind})
        for pipe in pipes
        if (kind, core, pipe) in lanes
    ]
    ops = sorted({s.op for s in spans})
    waited = sorted({s.on for s in spans if s.on})
    number = {op: i for i, op in enumerate(ops)}
    out = []
    for lane in order:
        kind, core, pipe = lane
        mine = lanes[lane]
        out.append(
            {
                "kind": kind,
                "core": core,
                "label": names.spoken(pipe),
                "colour": colours.PIPE[pipe],
                "start": [round(s.start, 1) for s in mine],
                "end": [round(s.end, 1) for s in mine],
                "op": [number[s.op] for s in mine],
                "line": [report.listing.line(s.loc) for s in mine],
                "bytes": [s.moved for s in mine],
                "waited": [round(s.waited) for s in mine],
                "on": [waited.index(s.on) if s.on else -1 for s in mine],
            }
        )
    place: dict[tuple[str, int, str], int] = {lane: i for i, lane in enumerate(order)}
    arrows = []
    for a in report.timeline.arrows:
        other = a.kind if a.to_core is None else ("vector" if a.kind == "cube" else "cube")
        core = a.core if a.to_core is None else a.to_core
        ends = place.get((a.kind, a.core, a.src)), place.get((other, core, a.dst))
        # Flags that are up from the start only fill the picture.
        if None not in ends and a.raised > 0 and a.taken <= until:
            arrows.append([ends[0], round(a.raised, 1), ends[1], round(a.taken, 1)])
    pipes = [names.spoken(p) for p in waited]
    return {"lanes": out, "ops": ops, "pipes": pipes, "arrows": arrows[:SPANS]}


def _rooms(report: Report, until: float) -> list[Data]:
    out = []
    tint = colours.tiles(report.rooms)
    for room in report.rooms:
        buffers = room.buffers
        number = {b: i for i, b in enumerate(buffers)}
        out.append(
            {
                "space": room.space,
                "top": picture.top(room),
                "summary": picture.summary(room),
                "buffers": [
                    {
                        "tile": b.tile or b.name,
                        "bytes": b.bytes,
                        "slots": b.slots,
                        "colour": tint[b.tile or b.name],
                    }
                    for b in buffers
                ],
                "held": [
                    [number[h.buffer], h.slot, h.address, round(h.start, 1), round(h.end, 1)]
                    for h in room.held
                    if h.start < until
                ],
            }
        )
    return out
