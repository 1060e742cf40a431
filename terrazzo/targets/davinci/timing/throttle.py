"""Shared bandwidth: all transfers with global memory are slowed down by one factor, the largest for
which the bytes that cross HBM and L2 over the time they take stay below what those can do.

A launch whose cores end at different times is cut into stretches with a factor each: the last cores
at work have more bandwidth to themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from typing import Protocol

_STRETCHES = 3
_TOGETHER = 1.15  # ends that lie so close count as one
_LEAST = 0.1  # of what is left: a stretch is not shorter
_CLOSE = 2e-3  # of a cap
_SLOWEST = 7.0  # the log of the largest slowing down


@dataclass(frozen=True)
class Speeds:
    """The factor of each stretch, and where all but the last one end, in cycles."""

    factors: tuple[float, ...] = (1.0,)
    bounds: tuple[float, ...] = ()


class Runs(Protocol):
    """A class of cores that do the same: `size` of them; `run` says when they end and, for each
    stretch, the bytes (HBM, L2) one of them moves."""

    size: int

    def run(self, speeds: Speeds) -> tuple[float, Sequence[tuple[float, float]]]: ...


def settle(classes: Sequence[Runs], hbm_cap: float, l2_cap: float) -> Speeds:
    """The speeds at which `classes`, which run at the same time, keep both caps (bytes a cycle)."""
    speeds = Speeds((), ())
    while True:
        x, end, final = _largest(partial(_load, classes, (hbm_cap, l2_cap), speeds))
        if final:
            return Speeds((*speeds.factors, x), speeds.bounds)
        speeds = Speeds((*speeds.factors, x), (*speeds.bounds, end))


def _load(
    classes: Sequence[Runs], caps: tuple[float, float], before: Speeds, x: float
) -> tuple[float, float, bool]:
    """Of the stretch after those of `before`, at factor x: (the fuller cap's use, its end, whether
    it is the last one)."""
    factors, bounds = (*before.factors, x), before.bounds
    found = [c.run(Speeds(factors, bounds)) for c in classes]
    # Cores without a block end at once; no speed would keep the caps in so short a stretch.
    ends = [end for end, bytes_ in found if any(map(any, bytes_))] or [end for end, _ in found]
    begin = bounds[-1] if bounds else 0.0
    end = max(ends)
    if len(factors) < _STRETCHES:
        first = min(e for e in ends if e - begin >= _LEAST * (end - begin))
        end = max(e for e in ends if e - begin <= _TOGETHER * (first - begin))
    if end < max(ends):
        cut = Speeds((*factors, x), (*bounds, end))
        found = [c.run(cut) if f[0] > end else f for c, f in zip(classes, found, strict=True)]
    moved = [0.0, 0.0]
    for c, (_, bytes_) in zip(classes, found, strict=True):
        for i in range(2):
            moved[i] += c.size * bytes_[len(bounds)][i]
    use = max(m / cap for m, cap in zip(moved, caps, strict=True)) / max(end - begin, 1.0)
    return use, end, end == max(ends)


def _largest(load: Callable[[float], tuple[float, float, bool]]) -> tuple[float, float, bool]:
    """The largest factor up to 1 at which `load` is at most 1, with the rest of what it returned:
    by false position on log(load) over log(1 / factor), which is close to a line."""
    use, end, final = load(1.0)
    if use <= 1 + _CLOSE:
        return 1.0, end, final
    low, f_low = 0.0, log(use)
    high, f_high = 0.0, f_low
    best = (1.0, end, final)
    while f_high > 0 and high < _SLOWEST:
        low, f_low, high = high, f_high, high + f_high * 1.1
        factor = exp(-high)
        use, end, final = load(factor)
        f_high, best = log(use), (factor, end, final)
        if abs(f_high) <= _CLOSE:
            return best
    if f_high > 0:  # hardly any of the time is transfers
        return best
    for _ in range(12):
        middle = low + (high - low) * f_low / (f_low - f_high)
        middle = min(max(middle, low + 0.1 * (high - low)), high - 0.1 * (high - low))
        factor = exp(-middle)
        use, end, final = load(factor)
        f = log(use)
        if f > 0:
            low, f_low = middle, f
        else:
            high, f_high, best = middle, f, (factor, end, final)
        if abs(f) <= _CLOSE:
            return factor, end, final
    return best
