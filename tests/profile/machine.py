"""A toy of a timing simulation: in-order pipes, flags, one cost a byte. It makes timelines of a
realistic form out of hand-written programs, for the reports' tests; it predicts nothing."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from terrazzo.ir.ops import Loc
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.expr import Scalar, compiled
from terrazzo.targets.davinci.isa import MACS, TABLE
from terrazzo.targets.davinci.program import (
    CoreFn,
    CoreKind,
    CrossSet,
    CrossWait,
    For,
    If,
    Instr,
    Let,
    PipeBarrier,
    Program,
    SetFlag,
    Stmt,
    View,
    WaitFlag,
)
from terrazzo.targets.davinci.timing.timeline import Arrow, LineUse, PipeUse, Span, Timeline

RATE = {"MTE1": 128.0, "MTE2": 80.0, "MTE3": 60.0, "FIX": 60.0}  # bytes a cycle


class _Core:
    """Core 0 of its kind. `flags`: when the cross-core flags it waits for were raised."""

    def __init__(self, fn: CoreFn, flags: deque[float]) -> None:
        self.kind: CoreKind = fn.kind
        self.free: dict[str, float] = defaultdict(float)
        self.gate: dict[str, tuple[float, str]] = {}
        self.raised: dict[tuple[str, str, int], deque[float]] = defaultdict(deque)
        self.env: dict[str, Any] = {"core": 0, "half": 0}
        self.spans: list[Span] = []
        self.arrows: list[Arrow] = []
        self.crossed: deque[float] = deque()
        self.flags = flags
        self.macs = self.elements = 0.0
        self.traffic: dict[str, float] = defaultdict(float)

    def value(self, e: Scalar) -> int:
        return int(compiled(e)(self.env, {}))

    def run(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            self.step(s)

    def step(self, s: Stmt) -> None:
        match s:
            case Let():
                self.env[s.name] = self.value(s.value)
            case For():
                for at in range(self.value(s.lo), self.value(s.hi), self.value(s.step)):
                    self.env[s.var] = at
                    self.run(s.body)
            case If():
                if self.value(s.condition):
                    self.run(s.body)
            case SetFlag():
                self.raised[s.src, s.dst, self.value(s.event)].append(self.free[s.src])
            case WaitFlag():
                at = self.raised[s.src, s.dst, self.value(s.event)].popleft()
                taken = max(at, self.free[s.dst])
                if at > 0:
                    self.arrows.append(Arrow(self.kind, 0, s.src, s.dst, at, taken))
                if at > self.gate.get(s.dst, (0.0, ""))[0]:
                    self.gate[s.dst] = (at, s.src)
            case CrossSet():
                self.crossed.append(self.free[s.pipe])
            case CrossWait():
                at = self.flags.popleft()
                other = "vector" if self.kind == "cube" else "cube"
                self.gate[s.pipe] = max(self.gate.get(s.pipe, (0.0, "")), (at, other))
            case PipeBarrier():
                pass
            case Instr():
                self.issue(s)

    def issue(self, s: Instr) -> None:
        pipe = TABLE[s.op].pipe
        count = 1
        for size in s.out.sizes:
            count *= self.value(size)
        moved = count * s.out.dtype.bits // 8
        if pipe == "M":
            a = s.ins[0]
            assert isinstance(a, View)
            macs = count * self.value(a.sizes[-1])
            self.macs += macs
            cost, moved = macs / MACS[a.dtype.bits] + 2, 0
        elif pipe == "V":
            self.elements += count
            cost, moved = moved / 256 * 2 + 24, 0
        else:
            cost = moved / RATE[pipe] + 20
            source = s.ins[0]
            assert isinstance(source, View)
            self.traffic[f"{source.space}->{s.out.space}"] += moved
        at, on = self.gate.pop(pipe, (0.0, ""))
        start = max(self.free[pipe], at)
        waited = start - self.free[pipe]
        self.spans.append(
            Span(0, self.kind, pipe, s.op, start, start + cost, waited, on if waited else "",
                 moved, s.loc)
        )  # fmt: skip
        self.free[pipe] = start + cost


def simulate(program: Program, chip: Chip, window: int = 400) -> Timeline:
    cores: list[_Core] = []
    fns = [fn for phase in program.phases for fn in phase.functions]
    for fn in fns:
        cores.append(_Core(fn, cores[-1].crossed if cores else deque()))
        cores[-1].run(fn.body)
    cycles = max(max(c.free.values()) for c in cores)
    pipes, lines, spans, arrows = [], [], [], []
    traffic: dict[str, float] = defaultdict(float)
    flops = elements = conflicts = 0.0
    for fn, core in zip(fns, cores, strict=True):
        by_pipe: dict[str, list[Span]] = defaultdict(list)
        by_line: dict[Loc, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for span in core.spans:
            by_pipe[span.pipe].append(span)
            if span.loc:
                by_line[span.loc][span.pipe] += span.end - span.start
        for pipe, of in by_pipe.items():
            waits: dict[str, float] = defaultdict(float)
            for span in of:
                if span.on:
                    waits[span.on] += span.waited
            busy = sum(x.end - x.start for x in of)
            pipes.append(
                PipeUse(fn.kind, of[0].pipe, busy, len(of), sum(x.moved for x in of), dict(waits))
            )
            if pipe == "V":
                conflicts = busy / 2
        lines += [LineUse(at, fn.kind, dict(use)) for at, use in by_line.items()]
        spans += core.spans[:window]
        last = max(x.end for x in core.spans[:window])
        arrows += [a for a in core.arrows if a.taken <= last]
        for path, moved in core.traffic.items():
            traffic[path] += moved * fn.cores
        flops += 2 * core.macs * fn.cores
        elements += core.elements * fn.cores
    gm = sum(moved for path, moved in traffic.items() if "GM" in path)
    return Timeline(
        chip, program.name, cycles, 5.0, {fn.kind: fn.cores for fn in fns}, tuple(pipes),
        tuple(lines), tuple(spans), tuple(arrows), dict(traffic), gm / 2, flops, elements,
        16 if flops else 0, 1.0, conflicts,
    )  # fmt: skip
