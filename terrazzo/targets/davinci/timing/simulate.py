"""The timing simulator: a scheduled program and a chip -> a timeline. No numbers are computed."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np

from terrazzo.errors import KernelError
from terrazzo.ir.place import mark
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.program import CoreKind, Instr, Program
from terrazzo.targets.davinci.timing.classes import Class, Number, TracedFn, trace
from terrazzo.targets.davinci.timing.constants import DEFAULT, Constants
from terrazzo.targets.davinci.timing.cost import Work, work
from terrazzo.targets.davinci.timing.replay import Costs, Group, Stuck
from terrazzo.targets.davinci.timing.sums import Sums
from terrazzo.targets.davinci.timing.throttle import Speeds, settle
from terrazzo.targets.davinci.timing.timeline import Timeline
from terrazzo.targets.davinci.timing.trace import PIPES, TAKE
from terrazzo.targets.davinci.timing.traffic import L2, Chunks, together


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
    traced = trace(program, chip, scalars, tensors)
    return timed(program, traced, chip, constants, window_cycles)


def timed(
    program: Program, traced: tuple[tuple[Class, ...], ...], chip: Chip,
    constants: Constants = DEFAULT, window_cycles: float = 100_000, skip: bool = True,
) -> Timeline:  # fmt: skip
    """`simulate` with what `trace` returned. `skip`: multiply out loops that repeat themselves."""
    sums = Sums()
    l2 = L2(chip.l2_bytes)
    begin = 0.0
    for number, classes in enumerate(traced):
        begin += constants.hand_over if number else 0.0
        timer = PhaseTimer(classes, chip, constants, l2, classes is traced[-1], skip)
        begin += timer.report(sums, begin, window_cycles)
    cores: dict[CoreKind, int] = {}
    for phase in program.phases:
        for fn in phase.functions:
            cores[fn.kind] = max(cores.get(fn.kind, 0), fn.cores)
    return sums.timeline(program.name, chip, cores, begin, constants.launch_us)


class PhaseTimer:
    """Times one phase under given constants."""

    def __init__(
        self, classes: tuple[Class, ...], chip: Chip, k: Constants, l2: L2, final: bool, skip: bool
    ) -> None:
        self.chip, self.k, self.skip = chip, k, skip
        counts = [[f.tracer.counts(r) for f, r in zip(c.fns, c.roots, strict=True)]
                  for c in classes]  # fmt: skip
        fns = dict.fromkeys(f for c in classes for f in c.fns)
        bytes_ = {f: [w.gm_bytes for w in self._works(f, 1, frozenset(), inf)] for f in fns}
        total: dict[Instr, float] = {}
        for c, of_cores in zip(classes, counts, strict=True):
            for f, count in zip(c.fns, of_cores, strict=True):
                for number, n in count.items():
                    instr = f.tracer.instrs[number][0]
                    total[instr] = total.get(instr, 0.0) + n * bytes_[f][number] * c.size
        self.works: dict[TracedFn, list[Work]] = {}
        moves: list[tuple[Chunks, float]] = []
        for f in fns:
            own = [(c, total[c.instr]) for c in f.chunks if c.instr in total]
            streams, cores = together(own)
            hot = k.hot_tb_s * 1e6 / chip.mhz / cores
            self.works[f] = self._works(f, self._active(f, classes, counts), streams, hot)
            moves += own
        self.shares = l2.phase(moves, final)
        self.classes = [_Timed(self, c, n) for c, n in zip(classes, counts, strict=True)]
        self._costs: dict[tuple[TracedFn, tuple[float, ...]], Costs] = {}

    @staticmethod
    def _active(f: TracedFn, classes: tuple[Class, ...], counts: list[list[dict[int, int]]]) -> int:
        """Cores of the function that have anything to do."""
        return sum(
            c.size
            for c, of_cores in zip(classes, counts, strict=True)
            for g, count in zip(c.fns, of_cores, strict=True)
            if g is f and count
        )

    def _works(self, f: TracedFn, active: int, streams: frozenset[Instr], hot: float) -> list[Work]:
        """`active`: cores at work. `hot`: a core's rate of `streams`."""
        fix_store = self.k.fix_rate * self.chip.cube_cores / max(active, 1)
        return [
            work(i, shapes, self.k, min(self.k.fix_store, fix_store), hot if i in streams else inf)
            for i, shapes in f.tracer.instrs
        ]

    def costs(self, f: TracedFn, factors: tuple[float, ...]) -> Costs:
        key = (f, factors)
        if key not in self._costs:
            works = self.works[f]
            self._costs[key] = Costs(
                [[w.occupancy(self.miss(w), x) for w in works] for x in factors],
                [w.tail for w in works], [w.entries for w in works], [self.hbm(w) for w in works],
                [float(w.gm_bytes) for w in works],
            )  # fmt: skip
        return self._costs[key]

    def miss(self, w: Work) -> float:
        return self.shares.miss[w.gm] if w.gm is not None and not w.write else 0.0

    def hbm(self, w: Work) -> float:
        """Bytes of device memory that an instruction costs."""
        if w.gm is None:
            return 0.0
        if w.write:
            return w.gm_bytes * self.shares.evicted[w.gm]
        return w.gm_bytes * self.shares.miss[w.gm] * w.spread

    def report(self, sums: Sums, begin: float, window: float) -> float:
        """Times the phase, which starts at `begin`, into `sums`; returns its cycles."""
        mhz = self.chip.mhz
        hbm_cap = self.k.hbm_share * self.chip.hbm_tb_s * 1e6 / mhz
        speeds = settle(self.classes, hbm_cap, self.k.l2_rate * self.chip.cube_cores)
        cycles = 0.0
        for c in self.classes:
            group, end = c.replay(speeds, max(window - begin, 0.0))
            cycles = max(cycles, end)
            for i, f in enumerate(c.cls.fns):
                costs = self.costs(f, speeds.factors)
                sums.add(f.fn.kind, c.size, group.cores[i], c.counts[i], self.works[f],
                         f.tracer.instrs, costs)  # fmt: skip
            sums.record(group, [f.fn.kind for f in c.cls.fns], c.cls.members[0],
                        [self.works[f] for f in c.cls.fns],
                        [f.tracer.instrs for f in c.cls.fns], begin)  # fmt: skip
        sums.throttle = min(sums.throttle, *speeds.factors)
        return cycles


class _Timed:
    """A class, as `throttle.settle` runs it."""

    def __init__(self, timer: PhaseTimer, cls: Class, counts: list[dict[int, int]]) -> None:
        self.timer, self.cls, self.counts, self.size = timer, cls, counts, cls.size
        self._all: tuple[float, float] | None = None

    def replay(self, speeds: Speeds, window: float = 0.0) -> tuple[Group, float]:
        timer = self.timer
        cores = [
            (f.tracer, root, timer.costs(f, speeds.factors))
            for f, root in zip(self.cls.fns, self.cls.roots, strict=True)
        ]
        group = Group(cores, timer.k, speeds.bounds, window, timer.skip)
        try:
            return group, group.run()
        except Stuck as stuck:
            raise _never_ends(stuck, self.cls) from None

    def run(self, speeds: Speeds) -> tuple[float, list[tuple[float, float]]]:
        group, end = self.replay(speeds)
        if not speeds.bounds:
            return end, [self._everything()]
        moved = [
            (sum(core.hbm[i] for core in group.cores), sum(core.l2[i] for core in group.cores))
            for i in range(len(speeds.factors))
        ]
        return end, moved

    def _everything(self) -> tuple[float, float]:
        if self._all is None:
            hbm = l2 = 0.0
            for f, count in zip(self.cls.fns, self.counts, strict=True):
                for number, n in count.items():
                    w = self.timer.works[f][number]
                    hbm += n * self.timer.hbm(w)
                    l2 += n * w.gm_bytes
            self._all = hbm, l2
        return self._all


def _never_ends(stuck: Stuck, cls: Class) -> KernelError:
    item, core = stuck.args
    kind, pipe, what = item
    if kind == TAKE:
        text = f"pipe {PIPES[pipe]} waits for the other cores' flag {what}"
    else:
        text = f"pipe {PIPES[pipe]} waits for event {what[2]} of pipe {PIPES[what[0]]}"
    error = KernelError(
        f"the kernel never ends: {text}, which nothing before it raises",
        "raise it on every way that leads to the wait, as often as it is waited for",
    )
    return mark(error, cls.fns[core].tracer.locs[item])
