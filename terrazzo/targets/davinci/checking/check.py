"""The checker: runs a scheduled core program with numbers and says every mistake it sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from terrazzo.targets.davinci.checking.clocks import Clocks
from terrazzo.targets.davinci.checking.finding import Finding, Findings
from terrazzo.targets.davinci.checking.narrow import Narrow
from terrazzo.targets.davinci.checking.plan import inspect
from terrazzo.targets.davinci.checking.shadow import NEVER, Clash, Shadow
from terrazzo.targets.davinci.chips import ALIGNMENT, BLOCK, Chip
from terrazzo.targets.davinci.numbers.execute import Machine
from terrazzo.targets.davinci.numbers.memory import Memory, Piece, Region
from terrazzo.targets.davinci.numbers.unit import PIPES
from terrazzo.targets.davinci.numbers.watch import Watch
from terrazzo.targets.davinci.program import Buffer, Instr, Program, views, walk


def check(program: Program, chip: Chip, args: Mapping[str, Any]) -> list[Finding]:
    """Every mistake of a scheduled program that shows in a launch with these arguments (tensors and
    scalars by name; tensors stay as they are), in the order in which they came up. Raises
    ValueError for a program without a schedule, ArgumentError for a tensor that does not fit."""
    if not program.scheduled:
        raise ValueError(f"`{program.name}` is not scheduled")
    found = Findings()
    skip = inspect(program, chip, found)
    Machine(program, chip, args, args, found, Checker(program, found), skip).run()
    return found.all()


class Checker(Watch):
    """Keeps shadows of all memories, and clocks; looks at each access before it happens. What it
    has told once it takes as settled, so that one mistake is not told at every later line."""

    def __init__(self, program: Program, found: Findings) -> None:
        self.found = found
        most = max((p.ratio + 1 if p.mixed else 1) for p in program.phases)
        self.clocks = Clocks(most)
        self.written = {
            v.memory for p in program.phases for f in p.functions for s in walk(f.body)
            if isinstance(s, Instr) for v in list(views(s))[:1]
        }  # fmt: skip
        self.shadows: dict[Memory, Shadow] = {}
        self.owners: dict[tuple[str, int], int] = {}
        self.names: list[str] = []
        self.history: dict[int, list[Instr]] = {}
        self.narrow = Narrow(program, found)
        self.groups = 0

    # -- order ---------------------------------------------------------------------------------

    def phase(self, shared: Sequence[Memory]) -> None:
        self.shared = [m for m in shared if m.gm in self.written or m.gm and m.gm.workspace]
        for m in self.shared:
            assert m.gm is not None
            if m not in self.shadows:
                self.shadows[m] = Shadow(m, True, not m.gm.workspace)
            self.shadows[m].phase(self.groups + 1)

    def group(self, cores: Sequence[Sequence[Memory]], number: int) -> None:
        self.groups += 1
        self.clocks.begin()
        self.history = {}
        self.narrow.forget()
        for m in self.shared:
            self.shadows[m].now = self.groups
        for m in (m for c in cores for m in c):
            if m in self.shadows:
                self.shadows[m].forget()
            else:
                self.shadows[m] = Shadow(m)

    def seen(self, core: int) -> Any:
        return self.clocks.seen(core)

    def issued(self, core: int, pipe: str, known: Any) -> None:
        self.clocks.issued(self.clocks.number(core, pipe), known)

    def raised(self, core: int, pipe: str) -> Any:
        return self.clocks.rows[self.clocks.number(core, pipe)].copy()

    def taken(self, core: int, pipe: str, token: Any) -> None:
        self.clocks.learn(self.clocks.number(core, pipe), token)

    def joined(self, core: int) -> None:
        self.clocks.joined(core)

    def forced(self, core: int, pipe: str) -> None:
        self.clocks.forced(self.clocks.number(core, pipe))

    # -- accesses ------------------------------------------------------------------------------

    def instr(self, core: int, pipe: str, s: Instr, out: Region, ins: Sequence[Any],
              temp: Region | None, tail: Piece | None) -> None:  # fmt: skip
        number, clock = self._begin(core, pipe, s)
        sources = [x for x in ins if isinstance(x, Region)]
        if s.op in ("mmad", "mmad_l1") and not ins[2]:
            sources.append(out)
        for r in (out, *sources):
            if not r.looked_at:
                r.looked_at = True
                self._aligned(s, r)
        for r in sources:
            self._read(s, r, number, clock)
            if pipe == "V" and _spoilt(out, r):
                self.found(Finding(
                    "overlap", f"{s.op} writes `{_name(out)}` from byte {out.start} of UB on over"
                    f" `{_name(r)}` from {r.start} on, which it still reads", "place the two apart,"
                    " or at the same byte", s.loc))  # fmt: skip
        for r in (out, temp) if temp is not None else (out,):
            self._write(s, r, r.runs, number, clock)
        if temp is not None:
            for piece in temp.runs:
                self.shadows[temp.memory].spoil(piece)
        if tail is not None:
            self._write(s, out, (tail,), number, clock)
            self.shadows[out.memory].spoil(tail)
        self.narrow.instr(s, out, sources)

    def refused(self, core: int, pipe: str, s: Instr, out: Region) -> None:
        number = self.clocks.number(core, pipe)
        low, high = out.limits
        if out.view.space == "GM":
            low, high = max(low, out.low), min(high, out.high)
        if low < high and out.memory in self.shadows:
            piece = Piece(low, (high - low,), (1,))
            self.shadows[out.memory].write(piece, number, self.clocks.base, self._owner(out))

    def _begin(self, core: int, pipe: str, s: Instr) -> tuple[int, int]:
        number = self.clocks.number(core, pipe)
        self.history.setdefault(number, []).append(s)
        return number, self.clocks.tick(number)

    def _owner(self, r: Region) -> int:
        key = r.view.memory.name, r.base
        if key not in self.owners:
            self.owners[key] = len(self.names)
            self.names.append(_name(r))
        return self.owners[key]

    def _read(self, s: Instr, r: Region, number: int, clock: int) -> None:
        shadow = self.shadows.get(r.memory)
        if shadow is None:
            return  # a tensor that is only read
        for piece in r.runs:
            missing, first = shadow.unwritten(piece)
            if missing:
                self.found(Finding(
                    "uninitialised", f"{s.op} reads `{_name(r)}`, of which {missing} bytes, from"
                    f" byte {first - r.base} on, nobody has written", "fill it before, or read less"
                    " of it", s.loc))  # fmt: skip
            if not shadow.shared:
                self._foreign(s, r, piece, shadow)
            for clash in shadow.before_read(piece, self.clocks.rows[number]):
                self._clash(s, r, number, clash, "reads")
            shadow.read(piece, number, clock)
            if missing:
                shadow.write(piece, number, clock, 0 if shadow.shared else self._owner(r))

    def _foreign(self, s: Instr, r: Region, piece: Piece, shadow: Shadow) -> None:
        count, first, whose = shadow.foreign(piece, self._owner(r))
        if count:
            other = self.names[whose]
            self.found(Finding(
                "overlap", f"{s.op} reads `{_name(r)}`, of which {count} bytes, from byte"
                f" {first} of {r.view.space} on, hold `{other}` by now", "place the two apart: both"
                " are in use", s.loc))  # fmt: skip
            shadow.cells(shadow.owner, piece)[...] = self._owner(r)

    def _write(self, s: Instr, r: Region, runs: Sequence[Piece], number: int, clock: int) -> None:
        shadow = self.shadows[r.memory]
        for piece in runs:
            for clash in shadow.before_write(piece, self.clocks.rows[number]):
                self._clash(s, r, number, clash, "writes")
            shadow.write(piece, number, clock, self._owner(r))

    def _clash(self, s: Instr, r: Region, number: int, clash: Clash, does: str) -> None:
        what = f"{s.op} {does} `{_name(r)}` at byte {clash.byte - r.base}"
        did = "writes" if clash.wrote else "reads"
        if clash.number == NEVER:
            self.found(Finding(
                "cores", f"{what}, which another core {did} in the same phase", "give the cores"
                " parts of their own, or cut the kernel in two", s.loc))  # fmt: skip
            return
        other = self.history[clash.number][clash.clock - self.clocks.base - 1]
        self.clocks.learn_one(number, clash.number, clash.clock)
        a, b = PIPES[clash.number % len(PIPES)], PIPES[number % len(PIPES)]
        if clash.number // len(PIPES) != number // len(PIPES):
            text, remedy = f"{what} on {b} while a core beside it {did} it on {a}", "a flag"
        else:
            text, remedy = f"{what} on {b} while {other.op} on {a} still {did} it", "an event"
        self.found(Finding("race", f"{text}: nothing orders the two", f"set {remedy} on {a} behind"
                           f" the one and wait for it on {b}", s.loc, other.loc))  # fmt: skip

    # -- alignment -----------------------------------------------------------------------------

    def _aligned(self, s: Instr, r: Region) -> None:
        """Where a view begins in its tile, and its rows."""
        v = r.view
        if not isinstance(v.memory, Buffer):
            return
        at, unit = r.start - r.base, ALIGNMENT[v.space]
        text = ""
        if at % unit:
            text = f"{s.op} begins at byte {at} of `{_name(r)}`: {v.space} is addressed in {unit}"
        elif v.space == "UB" and v.dtype.kind != "bool" and r.runs:
            run = r.runs[0]
            step = next((t for n, t in zip(run.shape[:-1], run.strides, strict=False)
                         if t % BLOCK and n > 1), 0)  # fmt: skip
            if step and run.shape[-1] > v.dtype.bytes:
                text = f"the rows of `{_name(r)}` are {step} bytes apart: UB has blocks of {BLOCK}"
        if text:
            self.found(Finding("alignment", text, f"pad to a multiple of {unit} bytes",
                               s.loc))  # fmt: skip


def _spoilt(out: Region, r: Region) -> bool:
    """Whether an instruction writes over what it has yet to read: elsewhere than element by
    element, in wider elements, or over a row that it repeats."""
    if r.memory is not out.memory or r.low >= out.high or out.low >= r.high:
        return False
    if r.start == out.start:
        repeats = any(a < b for a, b in zip(r.shape, out.shape, strict=False))
        return repeats or r.view.dtype.bytes < out.view.dtype.bytes
    return np.shares_memory(out.arrays[0], r.arrays[0])


def _name(r: Region) -> str:
    m = r.view.memory
    return m.tile or m.name if isinstance(m, Buffer) else m.name
