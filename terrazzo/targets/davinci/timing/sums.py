"""What a timeline reports, summed over classes of cores and phases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from terrazzo.ir.ops import Loc
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.program import CoreKind, Instr, Pipe
from terrazzo.targets.davinci.timing.cost import Work
from terrazzo.targets.davinci.timing.replay import CROSS, Core, Costs, Group
from terrazzo.targets.davinci.timing.timeline import Arrow, LineUse, PipeUse, Span, Timeline
from terrazzo.targets.davinci.timing.trace import PIPES

Instrs = Sequence[tuple[Instr, Any]]


class Sums:
    def __init__(self) -> None:
        self.busy: dict[tuple[CoreKind, Pipe], float] = defaultdict(float)
        self.count: dict[tuple[CoreKind, Pipe], float] = defaultdict(float)
        self.moved: dict[tuple[CoreKind, Pipe], float] = defaultdict(float)
        self.waits: dict[tuple[CoreKind, Pipe], dict[str, float]] = {}
        self.lines: dict[tuple[Loc, CoreKind], dict[str, float]] = {}
        self.traffic: dict[str, float] = defaultdict(float)
        self.hbm = self.flops = self.vector_flops = self.conflict = 0.0
        self.throttle = 1.0
        self.bits = 0
        self.spans: list[Span] = []
        self.arrows: list[Arrow] = []

    def add(
        self, kind: CoreKind, times: int, core: Core, counts: Mapping[int, int],
        works: Sequence[Work], instrs: Instrs, costs: Costs,
    ) -> None:  # fmt: skip
        """`times` cores that ran as `core` did, and did instruction number i counts[i] times."""
        for p, pipe in enumerate(PIPES):
            self.busy[kind, pipe] += times * core.busy[p]
            waits = self.waits.setdefault((kind, pipe), defaultdict(float))
            for src, wait in enumerate(core.waits[p]):
                waits[_cause(src, kind)] += times * wait
        for number, n in counts.items():
            w, instr = works[number], instrs[number][0]
            n *= times
            self.count[kind, w.pipe] += n
            self.moved[kind, w.pipe] += n * w.moved
            if w.path:
                self.traffic[w.path] += n * w.moved
            self.hbm += n * costs.hbm[number]
            self.flops += n * w.flops
            self.vector_flops += n * w.vector_flops
            self.conflict += n * w.conflict
            self.bits = w.bits or self.bits
            if instr.loc is not None:
                line = self.lines.setdefault((instr.loc, kind), defaultdict(float))
                line[w.pipe] += n * costs.busy[0][number]

    def record(
        self, group: Group, kinds: Sequence[CoreKind], members: Sequence[int],
        works: Sequence[Sequence[Work]], instrs: Sequence[Instrs], begin: float,
    ) -> None:  # fmt: skip
        """The spans and arrows of a group whose cores are `members` of `kinds`."""
        for core, pipe, number, start, end, waited, on in group.spans:
            w, instr = works[core][number], instrs[core][number][0]
            why = _cause(on, kinds[core]) if waited > 0 else ""
            self.spans.append(
                Span(members[core], kinds[core], PIPES[pipe], w.op, begin + start, begin + end,
                     max(waited, 0.0), why, w.moved, instr.loc)
            )  # fmt: skip
        for core, src, dst, up, taken in group.arrows:
            self.arrows.append(
                Arrow(kinds[core], members[core], PIPES[src], PIPES[dst], begin + up, begin + taken)
            )
        for core, src, to, dst, up, taken in group.crossings:
            self.arrows.append(
                Arrow(kinds[core], members[core], PIPES[src], PIPES[dst], begin + up,
                      begin + taken, members[to])
            )  # fmt: skip

    def timeline(
        self, name: str, chip: Chip, cores: dict[CoreKind, int], cycles: float, launch_us: float
    ) -> Timeline:
        pipes = tuple(
            PipeUse(
                kind, pipe, busy / cores[kind], self.count[kind, pipe] / cores[kind],
                self.moved[kind, pipe] / cores[kind],
                {src: t / cores[kind] for src, t in self.waits[kind, pipe].items() if t},
            )
            for (kind, pipe), busy in self.busy.items() if self.count[kind, pipe]
        )  # fmt: skip
        lines = tuple(
            LineUse(loc, kind, {p: t / cores[kind] for p, t in used.items()})
            for (loc, kind), used in self.lines.items()
        )
        return Timeline(
            chip, name, cycles, launch_us, cores, pipes, lines, tuple(self.spans),
            tuple(self.arrows), dict(self.traffic), self.hbm, self.flops, self.vector_flops,
            self.bits, self.throttle, self.conflict / max(cores.get("vector", 0), 1),
        )  # fmt: skip


def _cause(src: int, kind: CoreKind) -> str:
    if src != CROSS:
        return PIPES[src]
    return "vector" if kind == "cube" else "cube"
