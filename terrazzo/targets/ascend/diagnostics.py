"""What the vendor's compiler says, as errors at the kernel's lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from terrazzo.errors import CapacityError, KernelError
from terrazzo.ir.ops import Loc
from terrazzo.ir.place import mark
from terrazzo.targets.davinci.program import Buffer, Phase, Program, Space, walk

_MESSAGE = re.compile(r"^(.+?):(\d+):(\d+): (error|warning): (.*)$", re.MULTILINE)
_OVERFLOW = re.compile(r"(\w+) overflow, requires (\d+) bits while (\d+) bits available")
_SPACES: dict[str, Space] = {"ub": "UB", "cbuf": "L1", "cc": "L0C"}
# Of passes that infer what we write down (Cube tiles are printed with their layout).
_IDLE = ("Unsupported user for propagating data layout",)
_SHOWN = 5  # tiles listed
_KIB = 1024


@dataclass(frozen=True)
class Diagnostic:
    """`loc`: the kernel's line, None where the message is about text of ours."""

    kind: str  # error, warning
    text: str
    loc: Loc | None

    def __str__(self) -> str:
        return str(mark(KernelError(f"{self.kind}: {self.text}"), self.loc))


def places(phase: Phase) -> dict[tuple[str, int, int], Loc]:
    """The kernel's places in a phase, by file, line and 1-based column, as MLIR has them."""
    found: dict[tuple[str, int, int], Loc] = {}
    for f in phase.functions:
        for x in (*(s.loc for s in walk(f.body)), *(b.loc for b in f.buffers)):
            if x is not None:
                found.setdefault((x.file, x.line, x.col + 1), x)
    return found


def read(messages: str, phase: Phase) -> list[Diagnostic]:
    """All errors and warnings, each once."""
    known = places(phase)
    found = [
        Diagnostic(m[4], m[5], known.get((m[1], int(m[2]), int(m[3]))))
        for m in _MESSAGE.finditer(messages)
        if not m[5].startswith(_IDLE)
    ]
    return list(dict.fromkeys(found))


def failure(program: Program, number: int, diagnostics: list[Diagnostic], messages: str,
            code: int) -> KernelError | None:  # fmt: skip
    """The error of a compilation: one about capacity shows the tiles. None if there is none."""
    for d in diagnostics:
        if d.kind == "error":
            over = _OVERFLOW.search(d.text)
            if over is not None:
                return _overflow(program, number, over)
            return mark(
                KernelError(
                    f"the AscendNPU-IR compiler refuses {program.name}: {d.text}",
                    "see docs/design/ascend-ops.md for what it takes",
                ),
                d.loc,
            )
    if code:
        last = messages.strip().splitlines()[-1:] or ["no message"]
        return KernelError(
            f"the AscendNPU-IR compiler failed on {program.name} (status {code}): {last[0]}",
            "this is a defect of the compiler or of the text we gave it: please report it",
        )
    return None


def _overflow(program: Program, number: int, over: re.Match[str]) -> CapacityError:
    space = _SPACES.get(over[1], over[1])
    need, room = int(over[2]) / 8, int(over[3]) / 8
    held = sorted(_buffers(program.phases[number], space), key=lambda b: -b.bytes * b.slots)
    error = CapacityError(
        f"kernel `{program.name}` needs at least {need / _KIB:.1f} KiB of {space}"
        " as AscendNPU-IR plans it,"
        f" a core has {room / _KIB:.0f} KiB",
        "lower the tile sizes or the stages of the largest tiles",
    )
    rows = [
        (f"{b.tile or b.name} ({b.elements:,} × {b.dtype})",
         f"{b.slots} × {b.bytes / _KIB:.1f} KiB", f"line {b.loc.line}" if b.loc else "")
        for b in held[:_SHOWN]
    ]  # fmt: skip
    first, second = (max((len(r[i]) for r in rows), default=0) for i in (0, 1))
    error.tiles = tuple(f"{a:<{first}}  {b:>{second}}  {c}".rstrip() for a, b, c in rows)
    if len(held) > _SHOWN:
        rest = sum(b.bytes * b.slots for b in held[_SHOWN:])
        error.tiles += (f"and {len(held) - _SHOWN} more, together {rest / _KIB:.1f} KiB",)
    return mark(error, held[0].loc if held else None)


def _buffers(phase: Phase, space: str) -> Iterator[Buffer]:
    for f in phase.functions:
        yield from (b for b in f.buffers if b.space == space)
