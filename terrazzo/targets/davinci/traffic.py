"""Where a phase's traffic with global memory goes: what L2 has and what comes from HBM.

The unit is what one instruction transfers in one trip of a core's outermost loop (a block of the
grid): a *chunk*, known by its first address. Cores are taken to work through their trips abreast, a
*round* at a time. A chunk is found in L2 if another core asks for it in the same round, or if it
is among the chunks used last that L2 has room for. Writes stay in L2 unless what the launch
touches is larger.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.targets.davinci import terms
from terrazzo.targets.davinci.expr import Scalar, compiled_all, names
from terrazzo.targets.davinci.program import CoreFn, For, Gm, If, Instr, Let, Stmt, View, walk
from terrazzo.targets.davinci.steps import settled

Env = Mapping[str, Any]


@dataclass(frozen=True)
class Shares:
    """Of each tensor's reads the share that misses L2, of its writes the share that is evicted."""

    miss: Mapping[Gm, float]
    evicted: Mapping[Gm, float]


@dataclass(eq=False)
class Chunks:
    """What one instruction transfers on all cores: `at`, first bytes; `round`, trips' numbers."""

    gm: Gm
    write: bool
    at: np.ndarray
    round: np.ndarray


def chunks(
    fn: CoreFn, envs: Sequence[Env], tensors: Mapping[str, np.ndarray]
) -> Iterator[tuple[Instr, Chunks]]:
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
                parts = [_places(top, offset, loops, values, env, tensors) for env in envs]
                where = [at for at in parts if len(at)]
                if where:
                    yield s, Chunks(
                        view.memory, view is s.out, np.concatenate(where),
                        np.concatenate([np.arange(len(at)) for at in where]),
                    )  # fmt: skip


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
        tensor = np.concatenate([np.full(len(c.at), self.gms[c.gm]) for c, _ in moved])
        name = np.concatenate([c.at for c, _ in moved]) + (tensor << 44)
        size = np.concatenate([
            np.full(len(c.at), min(total / len(c.at), bytes_of(c.gm))) for c, total in moved
        ])  # fmt: skip
        write = np.concatenate([np.full(len(c.at), c.write) for c, _ in moved])
        when = np.concatenate([c.round for c, _ in moved])
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
        and (view := _transferred(s)) is not None
        and view is not s.out
        and not hangs(view.offset)
    )
