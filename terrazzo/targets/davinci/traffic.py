"""Where a phase's traffic with global memory goes: what L2 has and what comes from HBM.

The first touch of a tensor misses, later reads hit unless the tensor alone is larger than L2; what
an earlier phase touched is found again as long as what came since fits beside it. Writes stay in L2
unless what a phase touches is larger than it. No order within a phase is looked at: a launch that
reads one half of a tensor often counts all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from terrazzo.targets.davinci.expr import Scalar, names
from terrazzo.targets.davinci.program import CoreFn, For, Gm, Instr, Let, View, walk


@dataclass(frozen=True)
class Shares:
    """Of each tensor's reads the share that misses L2, of its writes the share that is evicted."""

    miss: Mapping[Gm, float]
    evicted: Mapping[Gm, float]


class L2:
    """What L2 holds from phase to phase."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held: dict[Gm, float] = {}  # bytes, the one touched last at the end

    def phase(self, reads: Mapping[Gm, float], writes: Mapping[Gm, float]) -> Shares:
        """`reads`, `writes`: bytes by tensor, over all cores."""
        touched = {
            gm: min(reads.get(gm, 0.0) + writes.get(gm, 0.0), float(bytes_of(gm)))
            for gm in (*reads, *writes)
            if gm.l2 == "normal"
        }
        over = sum(touched.values()) > self.size
        miss: dict[Gm, float] = {}
        for gm, n in reads.items():
            once = min(1.0, bytes_of(gm) / n)
            fits = gm in touched and touched[gm] <= self.size
            # A workspace is written before it is read.
            found = fits and (gm in self.held or (gm.workspace and gm in writes))
            miss[gm] = 0.0 if found else once if fits else 1.0
        evicted = {
            gm: float(gm.l2 == "bypass" or over and not (gm.workspace and gm in reads))
            for gm in writes
        }
        for gm, n in touched.items():
            self.held.pop(gm, None)
            if n <= self.size:
                self.held[gm] = n
        while sum(self.held.values()) > self.size:
            self.held.pop(next(iter(self.held)))
        return Shares(miss, evicted)


def bytes_of(gm: Gm) -> int:
    n = gm.dtype.bits
    for extent in gm.shape:
        n *= extent
    return -(-n // 8)


def same_for_all(fn: CoreFn) -> frozenset[Instr]:
    """Reads of tensors whose address hangs on loops that every core runs alike: all cores ask for
    the same bytes at about the same time."""
    own = {"core", "half"}

    def hangs(*es: Scalar) -> bool:
        return any(names(e) & own for e in es)

    changed = True
    while changed:
        before = len(own)
        for s in walk(fn.body):
            if isinstance(s, For) and hangs(s.lo, s.hi, s.step):
                own.add(s.var)
            elif isinstance(s, Let) and hangs(s.value):
                own.add(s.name)
        changed = len(own) > before
    return frozenset(
        s
        for s in walk(fn.body)
        if isinstance(s, Instr)
        and any(
            isinstance(v, View) and isinstance(v.memory, Gm) and not hangs(v.offset) for v in s.ins
        )
    )
