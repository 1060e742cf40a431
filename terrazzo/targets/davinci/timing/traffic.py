"""Where a phase's traffic with global memory goes: what L2 has and what comes from HBM.

The unit is what one instruction transfers in one trip of a core's outermost loop (a block of the
grid): a *chunk*, known by its first address. Cores are taken to work through their trips abreast, a
*round* at a time. A chunk is found in L2 if another core asks for it in the same round, or if it
is among the chunks used last that L2 has room for. Writes stay in L2 unless what the launch
touches is larger.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.targets.davinci.expr import Scalar, compiled_all, names
from terrazzo.targets.davinci.program import CoreFn, For, Gm, If, Instr, Stmt, View, walk
from terrazzo.targets.davinci.timing import terms
from terrazzo.targets.davinci.timing.steps import settled

Env = Mapping[str, Any]


@dataclass(frozen=True)
class Shares:
    """Of each tensor's reads the share that misses L2, of its writes the share that is evicted."""

    miss: Mapping[Gm, float]
    evicted: Mapping[Gm, float]


@dataclass(eq=False)
class Chunks:
    """What one instruction transfers: the first bytes of each core's chunks, in its order."""

    instr: Instr
    gm: Gm
    write: bool
    of_cores: tuple[np.ndarray, ...]

    @property
    def count(self) -> int:
        return sum(map(len, self.of_cores))


def chunks(fn: CoreFn, envs: Sequence[Env], tensors: Mapping[str, np.ndarray]) -> Iterator[Chunks]:
    """The chunks of every transfer with global memory. `envs`: of each core, its own variables and
    the scalar parameters."""
    values = settled(fn.body)
    for top in fn.body:
        inner = walk(top.body) if isinstance(top, (For, If)) else iter((top,))
        loops: dict[str, Scalar] = {}
        for s in inner:
            if isinstance(s, For):
                loops[s.var] = terms.substitute(s.lo, values)
            view = _transferred(s)
            if view is not None and isinstance(s, Instr):
                assert isinstance(view.memory, Gm)
                offset = terms.substitute(terms.bytes_of(view.offset, view.dtype.bits), values)
                where = tuple(_places(top, offset, loops, values, env, tensors) for env in envs)
                if any(map(len, where)):
                    yield Chunks(s, view.memory, view is s.out, where)


def _transferred(s: Stmt) -> View | None:
    """An instruction's side in global memory."""
    if not isinstance(s, Instr):
        return None
    sides = (v for v in (s.out, *s.ins) if isinstance(v, View) and isinstance(v.memory, Gm))
    return next(sides, None)


def _places(
    top: Stmt, offset: Scalar, loops: Mapping[str, Scalar], values: dict[str, Scalar], env: Env,
    tensors: Mapping[str, np.ndarray],
) -> np.ndarray:  # fmt: skip
    """First bytes of one core's chunks, in its order. Inner loops are at their beginning, counters
    count as 0."""
    known: dict[str, Any] = dict(env)
    count = 1
    if isinstance(top, For):
        bounds = [terms.substitute(e, values) for e in (top.lo, top.hi, top.step)]
        known[top.var] = np.arange(*compiled_all(bounds)(known, tensors), dtype=np.int64)
        count = len(known[top.var])
    for name in [n for e in (*loops.values(), offset) for n in names(e)]:
        if name not in loops:
            known.setdefault(name, 0)
    for var, lo in loops.items():
        (known[var],) = compiled_all([lo], arrays=True)(known, tensors)
    (at,) = compiled_all([offset], arrays=True)(known, tensors)
    return np.broadcast_to(np.asarray(at, np.int64), (count,))


class L2:
    """What L2 holds from phase to phase: the chunks used last."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held: OrderedDict[int, float] = OrderedDict()  # bytes by chunk
        self.bytes = 0.0
        self.gms: dict[Gm, int] = {}

    def phase(self, moved: Sequence[tuple[Chunks, float]], final: bool) -> Shares:
        """`moved`: what each instruction transfers, with its bytes over all cores. `final`: no
        phase comes after this one."""
        reads: dict[Gm, float] = {}
        writes: dict[Gm, float] = {}
        missed: dict[Gm, float] = {}
        for c, total in moved:
            to = writes if c.write else reads
            to[c.gm] = to.get(c.gm, 0.0) + total
            if c.gm.l2 == "bypass":
                missed[c.gm] = reads.get(c.gm, 0.0)
        normal = [(c, total) for c, total in moved if c.gm.l2 == "normal"]
        over = False
        if normal:
            found, over = self._touch(normal, final)
            for gm, n in found.items():
                missed[gm] = missed.get(gm, 0.0) + n
        miss = {gm: min(1.0, missed.get(gm, 0.0) / n) for gm, n in reads.items()}
        # A workspace is written before it is read, again and again.
        evicted = {gm: float(gm.l2 == "bypass" or over and gm not in reads) for gm in writes}
        return Shares(miss, evicted)

    def _touch(
        self, moved: Sequence[tuple[Chunks, float]], final: bool
    ) -> tuple[dict[Gm, float], bool]:
        """(bytes that miss by tensor, whether more is touched than L2 holds)."""
        for c, _ in moved:
            self.gms.setdefault(c.gm, len(self.gms))
        parts = [(c, at, total / c.count) for c, total in moved for at in c.of_cores if len(at)]
        name = np.concatenate([at + (self.gms[c.gm] << 44) for c, at, _ in parts])
        size = np.concatenate([np.full(len(at), min(n, bytes_of(c.gm))) for c, at, n in parts])
        write = np.concatenate([np.full(len(at), c.write) for c, at, _ in parts])
        when = np.concatenate([np.arange(len(at)) for _, at, _ in parts])
        # One touch of a chunk in a round, in the order of rounds.
        order = np.lexsort((write, name, when))
        same = (name[order][1:] == name[order][:-1]) & (when[order][1:] == when[order][:-1])
        first = order[np.concatenate(([True], ~same))]
        name, size, write = name[first], size[first], write[first]
        once = np.unique(name, return_index=True)[1]
        if len(once) == len(name) and not self.held and final:
            fails = ~write  # nothing is used twice
        else:
            fails = self._use(name, size) & ~write
        missed: dict[Gm, float] = {}
        for gm, number in self.gms.items():
            missed[gm] = float(size[fails & (name >> 44 == number)].sum())
            if gm.workspace and any(c.gm is gm and c.write for c, _ in moved):
                missed[gm] = 0.0
        return missed, float(size[once].sum()) > self.size

    def _use(self, names: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Chunks in the order they are used: which of them L2 does not have."""
        missing = np.ones(len(names), bool)
        for i, (name, size) in enumerate(zip(names.tolist(), sizes.tolist(), strict=True)):
            if name in self.held:
                missing[i] = False
                self.held.move_to_end(name)
                continue
            self.held[name] = size
            self.bytes += size
            while self.bytes > self.size:
                self.bytes -= self.held.popitem(last=False)[1]
        return missing


def bytes_of(gm: Gm) -> int:
    n = gm.dtype.bits
    for extent in gm.shape:
        n *= extent
    return -(-n // 8)


def together(moved: Sequence[tuple[Chunks, float]]) -> tuple[frozenset[Instr], float]:
    """The reads that nine tenths of a function's bytes from tensors come by, and how many cores
    (the mean) get all of these from the same addresses at the same time. `moved`: as for `L2`."""
    reads = [(c, n) for c, n in moved if not c.write and not c.gm.workspace]
    reads.sort(key=lambda r: -r[1])
    wanted = 0.9 * sum(n for _, n in reads)
    streams: list[Chunks] = []
    for c, n in reads:
        if wanted > 0:
            streams.append(c)
            wanted -= n
    if not streams:
        return frozenset(), 1.0
    seen = [tuple(at.tobytes() for at in core)
            for core in zip(*(c.of_cores for c in streams), strict=True)]  # fmt: skip
    groups = Counter(s for s in seen if any(s))
    return frozenset(c.instr for c in streams), (
        sum(n * n for n in groups.values()) / sum(groups.values())
    )
