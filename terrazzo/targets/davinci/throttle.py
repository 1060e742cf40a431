"""How fast global memory answers: the one factor by which all reads of a phase are slowed down so
that HBM, L2 and shared addresses keep within their rates.

A phase is cut where classes of cores end: when most are done, the others get more. In each stretch
the factor is the largest for which the bytes that all cores moved in it, over its length, stay
below the caps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.constants import Constants
from terrazzo.targets.davinci.cost import Work, work
from terrazzo.targets.davinci.phases import Class, Prepared
from terrazzo.targets.davinci.replay import NUMBER, Costs, Group

_TOGETHER = 1.1  # classes that end within this factor of the first one share a stretch
_STRETCHES = 6
_CLOSE = 3e-4  # relative, of a cap


@dataclass(frozen=True)
class Speeds:
    """`factors` of the stretches, which end at `bounds` (one fewer)."""

    factors: tuple[float, ...]
    bounds: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Moved:
    end: float
    hbm: float
    l2: float


class PhaseTimer:
    """Runs a phase's classes at given speeds."""

    def __init__(self, prepared: Prepared, chip: Chip, k: Constants, skip: bool = True) -> None:
        self.prepared, self.chip, self.k, self.skip = prepared, chip, k, skip
        self.works: list[list[Work]] = []
        for fn, tracer in zip(prepared.phase.functions, prepared.tracers, strict=True):
            fair = k.fix_rate * chip.cube_cores / fn.cores
            self.works.append([work(i, s, k, min(k.fix_store, fair)) for i, s in tracer.works])

    def hbm(self, w: Work) -> float:
        """Bytes of one instruction that reach HBM."""
        if w.gm is None:
            return 0.0
        share = self.prepared.streams.shares[w.gm]
        return w.gm_bytes * (share.evicted if w.write else share.miss * w.spread)

    def occupancy(self, w: Work, factor: float) -> float:
        if w.gm is None:
            return w.cycles
        return w.occupancy(self.prepared.streams.shares[w.gm].miss, 1.0 if w.write else factor)

    def costs(self, fn: int, speeds: Speeds) -> Costs:
        works = self.works[fn]
        return Costs(
            [NUMBER[w.pipe] for w in works],
            [[self.occupancy(w, x) for w in works] for x in speeds.factors],
            [w.tail for w in works],
            [self.hbm(w) for w in works],
            [w.gm_bytes * w.spread for w in works],
        )

    def group(
        self, c: Class, speeds: Speeds, stop: float = float("inf"), window: float = 0.0
    ) -> tuple[Group, float]:
        """A class's cores after their run, and its cycles."""
        tables = {fn: self.costs(fn, speeds) for fn in set(c.fns)}
        group = Group(
            c.roots, [tables[fn] for fn in c.fns], self.k, speeds.bounds, stop, window, self.skip
        )
        return group, group.run()

    def _moved(self, c: Class, speeds: Speeds, stop: float = float("inf")) -> _Moved:
        group, end = self.group(c, speeds, stop)
        return _Moved(end, sum(x.hbm for x in group.cores), sum(x.l2 for x in group.cores))

    def hot_shares(self, c: Class) -> dict[int, float]:
        """Of the bytes that one group of the class moves, the share that belongs to each stream of
        addresses which other cores read as well."""
        streams: dict[int, float] = {}
        total = 0.0
        for counts, fn, hot in zip(c.counts, c.fns, c.hot, strict=True):
            for number, times in counts.items():
                w = self.works[fn][number]
                total += times * w.gm_bytes * w.spread
                if w.gm in hot and not w.write:
                    streams[hot[w.gm]] = streams.get(hot[w.gm], 0.0) + times * w.gm_bytes
        return {name: moved / total for name, moved in streams.items()}

    def settle(self) -> Speeds:
        """The factors that keep to the caps."""
        classes, chip, k = self.prepared.classes, self.chip, self.k
        hbm_cap = k.hbm_share * chip.hbm_tb_s * 1e6 / chip.mhz
        l2_cap = k.l2_rate * chip.cube_cores
        hot = [self.hot_shares(c) for c in classes]
        sizes = [len(c.members) for c in classes]
        factors: list[float] = []
        bounds: list[float] = []
        begin = 0.0
        before = [_Moved(0.0, 0.0, 0.0)] * len(classes)
        while True:
            last = len(bounds) + 1 >= _STRETCHES

            def load(
                x: float, begin: float = begin, last: bool = last, before: list[_Moved] = before
            ) -> tuple[float, float, bool]:
                """(the fullest cap's use, the stretch's end, whether it is the last one)."""
                speeds = Speeds((*factors, x), tuple(bounds))
                moved = [self._moved(c, speeds) for c in classes]
                ends = [m.end for m in moved if m.end > begin]
                near = begin + _TOGETHER * (min(ends) - begin)
                end = max(ends) if last else max(e for e in ends if e <= near)
                at = [
                    m if m.end <= end else self._moved(c, speeds, end)
                    for c, m in zip(classes, moved, strict=True)
                ]
                done = [(m.hbm - b.hbm, m.l2 - b.l2) for m, b in zip(at, before, strict=True)]
                together: dict[int, float] = {}
                for n, shares, d in zip(sizes, hot, done, strict=True):
                    for name, share in shares.items():
                        together[name] = together.get(name, 0.0) + n * share * d[1]
                time = end - begin
                use = max(
                    sum(n * d[0] for n, d in zip(sizes, done, strict=True)) / (hbm_cap * time),
                    sum(n * d[1] for n, d in zip(sizes, done, strict=True)) / (l2_cap * time),
                    *(moved / (k.hot_rate * time) for moved in together.values()),
                )
                return use, end, end == max(ends)

            x, end, final = _largest(load)
            factors.append(x)
            if final:
                return Speeds(tuple(factors), tuple(bounds))
            bounds.append(end)
            begin = end
            speeds = Speeds((*factors, 1.0), tuple(bounds))
            before = [self._moved(c, speeds, end) for c in classes]


def _largest(load: Callable[[float], tuple[float, float, bool]]) -> tuple[float, float, bool]:
    """The largest factor up to 1 at which `load` is at most 1, by false position in 1/factor."""
    use, end, final = load(1.0)
    if use <= 1 + _CLOSE:
        return 1.0, end, final
    low, f_low = 1.0, log(use)
    high, f_high = use, 0.0
    while True:
        use, end, final = load(1 / high)
        f_high = log(use)
        if abs(f_high) <= _CLOSE:
            return 1 / high, end, final
        if f_high < 0:
            break
        low, f_low, high = high, f_high, high * max(use * 1.2, 1.02)
    best = (1 / high, end, final)
    side = 0
    for _ in range(24):
        middle = (low * f_high - high * f_low) / (f_high - f_low)
        use, end, final = load(1 / middle)
        f = log(use)
        if f <= _CLOSE:
            best = (1 / middle, end, final)
        if abs(f) <= _CLOSE or high - low < 1e-5 * low:
            break
        if f > 0:
            low, f_low, f_high = middle, f, f_high / 2 if side == 1 else f_high
            side = 1
        else:
            high, f_high, f_low = middle, f, f_low / 2 if side == -1 else f_low
            side = -1
    return best
