"""Everything that is told about one launch, put together once for terminal, page, tables, JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from terrazzo.profile.advice import Advice, advice
from terrazzo.profile.figures import Figures, figures
from terrazzo.profile.listing import Line, Listing, annotated
from terrazzo.profile.occupancy import Room, occupancy
from terrazzo.profile.replay import Inputs
from terrazzo.targets.davinci.program import Program
from terrazzo.targets.davinci.timing.timeline import Timeline


@dataclass(frozen=True)
class Report:
    """`plan`: whose schedule it is, "own" or "vendor". `arguments`: the launch's, as people write
    them ("a" -> "f16[1024, 2048]")."""

    timeline: Timeline
    program: Program
    listing: Listing
    figures: Figures
    advice: tuple[Advice, ...]
    rooms: tuple[Room, ...]
    lines: tuple[Line, ...]
    plan: str
    arguments: dict[str, str]

    @property
    def headline(self) -> str:
        """The launch in a sentence."""
        f, t = self.figures, self.timeline
        rate = f"{t.tflops:.3g} TFLOP/s, " if t.tflops else ""
        return (
            f"{t.us:,.1f} µs, {rate}{f.roof_percent:.0f} % of the {f.roof.name} roof,"
            f" bound: {f.bound}"
        )

    def json(self) -> dict[str, Any]:
        """The figures under the keys that machines read."""
        return {
            "kernel": self.program.name,
            "chip": self.timeline.chip.name,
            "arguments": self.arguments,
            "plan": self.plan,
            **self.figures.json(),
            "occupancy": {r.space: r.json() for r in self.rooms},
            "advice": [a.json() for a in self.advice],
            "lines": [
                {
                    "line": x.number,
                    "text": x.text,
                    "cycles": x.cycles,
                    "percent": 100 * x.share,
                    "pipes": x.pipes,
                }
                for x in self.lines
            ],
            "notes": list(self.program.notes),
        }


def report(
    timeline: Timeline,
    program: Program,
    listing: Listing,
    *,
    inputs: Inputs | None = None,
    plan: str = "own",
    arguments: dict[str, str] | None = None,
) -> Report:
    """The report of `timeline`, which simulating the scheduled `program` gave. `inputs`: values
    that the program's scalars depend on; KeyError if one is missing."""
    given = inputs or Inputs()
    f = figures(timeline, program)
    return Report(
        timeline,
        program,
        listing,
        f,
        advice(timeline, program, f, listing, given),
        occupancy(timeline, program, given),
        annotated(listing, timeline),
        plan,
        arguments or {},
    )
