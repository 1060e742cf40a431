"""What the executor and the checker have to say about a core program, in its author's terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from terrazzo.errors import KernelFault
from terrazzo.ir.ops import Loc
from terrazzo.ir.place import mark

# capacity: a memory space is too small · alignment: of an address, a row, an NZ layout · bounds:
# outside a tensor or a tile's slot · uninitialised: read before written · overlap: a tile read
# where another one was written over it · race: pipes of one core (or of a cube core and its vector
# cores) without an order · cores: the same between groups of cores · event: flags between pipes ·
# flag: flags between cores · deadlock: a wait that nothing ends · space: an operand where the core
# or the instruction cannot reach it · dtype: that an instruction does not take · narrow: a sum or
# a product kept in 16 bits · misuse: operands that do not fit together.
Kind = Literal["capacity", "alignment", "bounds", "uninitialised", "overlap", "race", "cores",
               "event", "flag", "deadlock", "space", "dtype", "narrow", "misuse"]  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One mistake. `message` says what and the numbers, `remedy` what to do; `loc` is where,
    `other` the second place where there is one (the other access of a race); None for a program
    without source. `table`: lines of figures to show below. `count`: how often it was seen."""

    kind: Kind
    message: str
    remedy: str
    loc: Loc | None
    other: Loc | None = None
    table: tuple[str, ...] = ()
    count: int = 1

    @property
    def error(self) -> KernelFault:
        """The same as an exception."""
        return mark(KernelFault(self.message, self.remedy), self.loc)


class Findings:
    """Findings in the order in which they were first seen. One of a kind that was seen at the same
    line already is counted only."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Finding] = {}

    def __call__(self, f: Finding) -> None:
        place = (f.loc.file, f.loc.line) if f.loc else (f.message,)
        key = (f.kind, *place)
        old = self._known.get(key)
        self._known[key] = f if old is None else replace(old, count=old.count + f.count)

    def all(self) -> list[Finding]:
        return list(self._known.values())


def report(findings: Iterable[Finding]) -> str:
    """The findings as plain text: place, what, remedy, the marked line, figures, the second place.
    "" if there are none."""
    return "\n\n".join(map(_text, findings))


def _text(f: Finding) -> str:
    times = f" ({f.count} times)" if f.count > 1 else ""
    error = mark(KernelFault(f"{f.kind}: {f.message}{times}", f.remedy), f.loc)
    lines = [str(error), *(f"    {line}" for line in f.table)]
    if f.other is not None and f.other != f.loc:
        lines.append(str(mark(KernelFault("the other place"), f.other)))
    return "\n".join(lines)
