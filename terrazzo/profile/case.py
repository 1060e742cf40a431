"""What a rule of the advice looks at, and what it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from terrazzo.ir.ops import Loc
from terrazzo.profile.figures import Figures
from terrazzo.profile.listing import Listing
from terrazzo.profile.replay import Inputs, Use, uses
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    CoreKind,
    Gm,
    Phase,
    Pipe,
    Program,
    Space,
    View,
)
from terrazzo.targets.davinci.timing.timeline import PipeUse, Timeline


@dataclass(frozen=True)
class Advice:
    """`rule`: its name. `line`: of the kernel, 0 if none. `share`: of the launch's time that the
    text is about, by which advice is sorted; it is no promise of a gain."""

    rule: str
    line: int
    text: str
    share: float

    def json(self) -> dict[str, Any]:
        return {"rule": self.rule, "line": self.line, "text": self.text, "share": self.share}


@dataclass(frozen=True)
class Case:
    """One launch."""

    timeline: Timeline
    program: Program
    figures: Figures
    listing: Listing
    inputs: Inputs

    @cached_property
    def functions(self) -> list[tuple[Phase, CoreFn]]:
        return [(p, f) for p in self.program.phases for f in p.functions]

    @cached_property
    def uses(self) -> list[Use]:
        """The instructions of all core functions."""
        return [u for phase, fn in self.functions for u in uses(phase, fn, self.inputs)]

    def pipe(self, kind: CoreKind, pipe: Pipe) -> PipeUse:
        return self.timeline.pipe(kind, pipe) or PipeUse(kind, pipe, 0.0, 0, 0, {})

    def waits(self, kind: CoreKind, pipe: Pipe, on: Iterable[str]) -> float:
        """The share of the time that `pipe` waits for the pipes `on`."""
        waits = self.pipe(kind, pipe).waits
        return sum(waits.get(p, 0.0) for p in on) / self.timeline.cycles

    def peak(self, space: Space) -> int:
        """Bytes of `space` that the plan takes."""
        ends = (
            max(b.addresses) + b.bytes
            for _, fn in self.functions
            for b in fn.buffers
            if b.space == space and b.addresses
        )
        return max(ends, default=0)

    def free(self, space: Space) -> int:
        return self.timeline.chip.capacity[space] - self.peak(space)

    def line(self, loc: Loc | None) -> int:
        return self.listing.line(loc)

    def at(self, loc: Loc | None) -> str:
        """ " (line 12)", or nothing where the place is unknown."""
        line = self.line(loc)
        return f" (line {line})" if line else ""


def tile(memory: Buffer | Gm) -> str:
    """A buffer as its author calls it."""
    return f"`{(memory.tile if isinstance(memory, Buffer) else '') or memory.name}`"


def listed(items: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"; each once."""
    once = list(dict.fromkeys(items))
    return " and ".join([", ".join(once[:-1]), once[-1]]) if len(once) > 1 else once[0]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def view_bytes(v: View, sizes: tuple[int, ...]) -> int:
    """Bytes of a view whose sizes are known."""
    count = 1
    for size in sizes:
        count *= size
    return count * v.dtype.bits // 8
