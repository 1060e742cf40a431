"""The kernel's source, and what each of its lines costs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from terrazzo.ir.ops import Loc
from terrazzo.profile.names import prefix
from terrazzo.targets.davinci.timing.timeline import Timeline


@dataclass(frozen=True)
class Listing:
    """The lines of a kernel. `first`: the number of the first one in `file`."""

    file: str
    first: int
    lines: tuple[str, ...]

    def line(self, loc: Loc | None) -> int:
        """The line of this listing that `loc` belongs to: its own, or for code of an inlined
        function the one that calls it; 0 if there is none."""
        while loc is not None:
            if loc.file == self.file and self.first <= loc.line < self.first + len(self.lines):
                return loc.line
            loc = loc.call
        return 0

    def text(self, line: int) -> str:
        return self.lines[line - self.first] if line else ""


@dataclass(frozen=True)
class Line:
    """A source line. `pipes`: cycles it keeps each pipe busy ("aic_mte2"), mean over the cores;
    `cycles`: those of the pipe it uses most; `share` of the launch's cycles that this is."""

    number: int
    text: str
    pipes: dict[str, float]
    cycles: float
    share: float

    @property
    def pipe(self) -> str:
        """The pipe it uses most, "" if it uses none."""
        return max(self.pipes, key=lambda p: self.pipes[p], default="")


def annotated(listing: Listing, timeline: Timeline) -> tuple[Line, ...]:
    """Every line of the listing with its cycles."""
    used: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for use in timeline.lines:
        at = listing.line(use.loc)
        for pipe, cycles in use.pipes.items():
            used[at][prefix(use.kind, pipe)] += cycles
    out = []
    for number, text in enumerate(listing.lines, listing.first):
        pipes = dict(sorted(used[number].items(), key=lambda kv: -kv[1]))
        most = max(pipes.values(), default=0.0)
        out.append(Line(number, text, pipes, most, most / timeline.cycles))
    return tuple(out)
