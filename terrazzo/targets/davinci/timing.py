"""The timing simulator: a scheduled program and a chip -> a timeline. No numbers are computed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from terrazzo.ir.ops import Loc
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.constants import DEFAULT, Constants
from terrazzo.targets.davinci.phases import Class, Number, Prepared, prepare
from terrazzo.targets.davinci.program import CoreKind, Pipe, Program
from terrazzo.targets.davinci.replay import CROSS, PIPES, Group
from terrazzo.targets.davinci.throttle import PhaseTimer, Speeds
from terrazzo.targets.davinci.timeline import Arrow, LineUse, PipeUse, Span, Timeline


def simulate(
    program: Program,
    chip: Chip,
    scalars: Mapping[str, Number] = {},
    tensors: Mapping[str, np.ndarray] = {},
    constants: Constants = DEFAULT,
    window_cycles: float = 100_000,
) -> Timeline:
    """Times one launch. `scalars`: values of the scalar parameters that expressions use; `tensors`:
    contents of the index tensors that they load. Spans and arrows of the first `window_cycles` at
    least are kept. Raises KernelError for a program that is not scheduled, wants more cores than
    there are, or waits for a flag that is never raised."""
    prepared = prepare(program, chip, scalars, tensors)
    return timed(program, prepared, chip, constants, window_cycles)


def timed(
    program: Program,
    prepared: tuple[Prepared, ...],
    chip: Chip,
    constants: Constants = DEFAULT,
    window_cycles: float = 100_000,
    skip: bool = True,
) -> Timeline:
    """`simulate` with what `prepare` returned, which serves any constants. `skip`: multiply out
    loops that repeat themselves."""
    sums = _Sums()
    begin = 0.0
    slowest = 1.0
    for number, phase in enumerate(prepared):
        timer = PhaseTimer(phase, chip, constants, skip)
        speeds = timer.settle()
        slowest = min(slowest, *speeds.factors)
        begin += constants.hand_over if number else 0.0
        cycles = 0.0
        for c in phase.classes:
            group, end = timer.group(c, speeds, window=max(window_cycles - begin, 0.0))
            cycles = max(cycles, end)
            sums.add(timer, c, group, speeds, begin)
        begin += cycles
    return sums.timeline(program, prepared, chip, begin, constants, slowest)


class _Sums:
    """Everything a timeline reports, over classes and phases."""

    def __init__(self) -> None:
        self.busy: dict[tuple[CoreKind, Pipe], float] = defaultdict(float)
        self.count: dict[tuple[CoreKind, Pipe], float] = defaultdict(float)
        self.moved: dict[tuple[CoreKind, Pipe], float] = defaultdict(float)
        self.waits: dict[tuple[CoreKind, Pipe, str], float] = defaultdict(float)
        self.lines: dict[tuple[Loc, CoreKind], dict[str, float]] = {}
        self.traffic: dict[str, float] = defaultdict(float)
        self.hbm = self.flops = self.vector_flops = self.conflict = 0.0
        self.bits = 0
        self.spans: list[Span] = []
        self.arrows: list[Arrow] = []

    def add(
        self, timer: PhaseTimer, c: Class, group: Group, speeds: Speeds, begin: float
    ) -> None:  # fmt: skip
        times = len(c.members)
        kinds: list[CoreKind] = [timer.prepared.phase.functions[fn].kind for fn in c.fns]
        speed = speeds.factors[0]
        for i, (fn, kind) in enumerate(zip(c.fns, kinds, strict=True)):
            core = group.cores[i]
            for p, pipe in enumerate(PIPES):
                self.busy[kind, pipe] += times * core.busy[p]
                for src, wait in enumerate(core.waits[p]):
                    if wait:
                        name = PIPES[src] if src != CROSS else _other(kind)
                        self.waits[kind, pipe, name] += times * wait
            for number, n in c.counts[i].items():
                w, instr = timer.works[fn][number], timer.prepared.tracers[fn].works[number][0]
                n *= times
                self.count[kind, w.pipe] += n
                self.moved[kind, w.pipe] += n * w.moved
                if w.path:
                    self.traffic[w.path] += n * w.moved
                self.hbm += n * timer.hbm(w)
                self.flops += n * w.flops
                self.vector_flops += n * w.vector_flops
                self.conflict += n * w.conflict
                self.bits = w.bits or self.bits
                if instr.loc is not None:
                    line = self.lines.setdefault((instr.loc, kind), defaultdict(float))
                    line[w.pipe] += n * timer.occupancy(w, speed)
        self._record(timer, c, group, kinds, begin)

    def _record(
        self, timer: PhaseTimer, c: Class, group: Group, kinds: list[CoreKind], begin: float
    ) -> None:
        first = c.members[0]
        for core, pipe, number, start, end, waited, on in group.spans:
            w = timer.works[c.fns[core]][number]
            loc = timer.prepared.tracers[c.fns[core]].works[number][0].loc
            why = (PIPES[on] if on != CROSS else _other(kinds[core])) if waited else ""
            self.spans.append(
                Span(first[core], kinds[core], PIPES[pipe], w.op, begin + start, begin + end,
                     waited, why, w.moved, loc)
            )  # fmt: skip
        for core, src, dst, up, taken in group.arrows:
            self.arrows.append(
                Arrow(kinds[core], first[core], PIPES[src], PIPES[dst], begin + up, begin + taken)
            )
        for core, to, src, dst, up, taken in group.crossings:
            self.arrows.append(
                Arrow(kinds[core], first[core], PIPES[src], PIPES[dst], begin + up, begin + taken,
                      first[to])
            )  # fmt: skip

    def timeline(
        self, program: Program, prepared: tuple[Prepared, ...], chip: Chip, cycles: float,
        k: Constants, slowest: float,
    ) -> Timeline:  # fmt: skip
        cores: dict[CoreKind, int] = {}
        for phase in prepared:
            for fn in phase.phase.functions:
                cores[fn.kind] = max(cores.get(fn.kind, 0), fn.cores)
        pipes = tuple(
            PipeUse(
                kind, pipe, busy / cores[kind], self.count[kind, pipe] / cores[kind],
                self.moved[kind, pipe] / cores[kind],
                {src: t / cores[kind] for (a, b, src), t in self.waits.items()
                 if (a, b) == (kind, pipe)},
            )
            for (kind, pipe), busy in self.busy.items() if self.count[kind, pipe]
        )  # fmt: skip
        lines = tuple(
            LineUse(loc, kind, {p: t / cores[kind] for p, t in used.items()})
            for (loc, kind), used in self.lines.items()
        )
        return Timeline(
            chip, program.name, cycles, k.launch_us, cores, pipes, lines, tuple(self.spans),
            tuple(self.arrows), dict(self.traffic), self.hbm, self.flops, self.vector_flops,
            self.bits, slowest, self.conflict / max(cores.get("vector", 0), 1),
        )  # fmt: skip


def _other(kind: CoreKind) -> str:
    return "vector" if kind == "cube" else "cube"
