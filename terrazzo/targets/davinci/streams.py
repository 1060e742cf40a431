"""Where a phase's reads and writes of global memory go: which bytes come from HBM, which from L2,
and which addresses many cores ask for at the same time.

The transfers' addresses of all cores are computed, cut into slices of equal progress, and each
slice's distinct cells (pieces of a tensor no longer than a contiguous run) are looked up in a cache
of the chip's L2 size. The cache forgets a cell when more bytes than its size were brought in since
the cell was last used, which is close to least recently used. It starts empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from terrazzo.targets.davinci.expr import compiled_all
from terrazzo.targets.davinci.program import For, Gm, If, Instr, Let, View, views
from terrazzo.targets.davinci.trace import Step

_SLICES = 128
_CELL = 512  # bytes, the least


@dataclass
class Transfers:
    """Of one instruction of one core: `at` first bytes, `places` when (numbers in the core's
    order)."""

    gm: Gm
    write: bool
    size: list[np.ndarray]  # of each dimension, one a transfer
    stride: tuple[int, ...]  # bytes
    at: np.ndarray
    places: np.ndarray


class Addresses:
    """Transfers of the cores of one function, one call a core."""

    def __init__(self, steps: tuple[Step, ...], tensors: Mapping[str, np.ndarray]) -> None:
        self.gm = tensors
        self.steps = tuple(filter(None, map(_pruned, steps)))

    def of(self, env: Mapping[str, Any]) -> list[Transfers]:
        """`env`: values of "core", "half" and the scalar parameters."""
        self._found: dict[tuple[Gm, bool, tuple[int, ...]], list[Any]] = {}
        self._place = 0
        self._visit(self.steps, dict(env))
        return [
            Transfers(
                gm, write, [np.concatenate(c) for c in zip(*(f[0] for f in found), strict=True)],
                stride, np.concatenate([f[1] for f in found]),
                np.concatenate([f[2] for f in found]),
            )
            for (gm, write, stride), found in self._found.items()
        ]  # fmt: skip

    def _visit(self, steps: tuple[_Step, ...], env: dict[str, Any]) -> None:
        for step in steps:
            s = step.stmt
            if step.view is not None:
                self._record(step, step.read(env, self.gm), 1, 0)
                self._place += 1
            elif isinstance(s, Let):
                (env[s.name],) = step.read(env, self.gm)
            elif isinstance(s, If):
                (condition,) = step.read(env, self.gm)
                if condition:
                    self._visit(step.body, env)
            elif isinstance(s, For):
                trips = range(*step.read(env, self.gm))
                if len(trips) < 4 or not step.flat:
                    for env[s.var] in trips:
                        self._visit(step.body, env)
                    continue
                env[s.var] = np.arange(trips.start, trips.stop, trips.step)
                for inner in step.body:
                    self._record(inner, inner.arrays(env, self.gm), len(trips), len(step.body))
                    self._place += 1
                self._place += len(step.body) * (len(trips) - 1)

    def _record(self, step: _Step, values: tuple[Any, ...], count: int, pace: int) -> None:
        assert step.view is not None
        at, sizes, strides = values[0], values[1 : 1 + step.rank], values[1 + step.rank :]
        gm = step.view.memory
        assert isinstance(gm, Gm)
        bits = gm.dtype.bits
        stride = tuple(int(s) * bits // 8 for s in strides)
        columns = [np.broadcast_to(np.asarray(s, np.int64), (count,)) for s in sizes]
        at = np.broadcast_to(np.asarray(at, np.int64) * bits // 8, (count,))
        places = self._place + pace * np.arange(count)
        self._found.setdefault((gm, step.write, stride), []).append((columns, at, places))


@dataclass(eq=False)
class _Step:
    """Of a `Step`, what addresses hang on: transfers, loops, conditions, counters."""

    stmt: Any
    read: Any
    arrays: Any = None
    body: tuple[_Step, ...] = ()
    view: View | None = None
    rank: int = 0
    write: bool = False
    flat: bool = False  # a loop over transfers alone


def _pruned(step: Step) -> _Step | None:
    s = step.stmt
    if isinstance(s, Instr):
        at = 0
        for view, offset in zip(views(s), step.offsets, strict=True):
            rank = len(view.sizes)
            if isinstance(view.memory, Gm):
                exprs = (offset, *step.exprs[at : at + 2 * rank])
                return _Step(
                    s, compiled_all(exprs), compiled_all(exprs, arrays=True), (), view, rank,
                    view is s.out,
                )  # fmt: skip
            at += 2 * rank + 1
        return None
    if isinstance(s, (For, If)):
        body = tuple(filter(None, map(_pruned, step.body)))
        flat = all(b.view is not None for b in body)
        return _Step(s, step.read, None, body, flat=flat) if body else None
    return _Step(s, step.read) if isinstance(s, Let) else None


@dataclass
class Share:
    """What becomes of a tensor's bytes in a phase, as shares of the bytes moved."""

    miss: float = 1.0  # reads that come from HBM
    evicted: float = 0.0  # writes that reach HBM


@dataclass
class Streams:
    """Of one phase. `shares`: by tensor. `hot`: for a core (kind, number), tensors that other cores
    of its kind read in the very same order, with the name of the group."""

    shares: dict[Gm, Share]
    hot: dict[tuple[str, int], dict[Gm, int]] = field(default_factory=dict)


class Cache:
    """L2 over the phases of a launch."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.clock = 0.0  # bytes brought in so far
        self.cells: dict[Gm, _Cells] = {}
        self.phases: list[Streams] = []

    def phase(self, cores: dict[tuple[str, int], list[Transfers]]) -> Streams:
        """Looks up all transfers of a phase's cores. Shares of writes are known after `close`."""
        every = [t for found in cores.values() for t in found]
        for gm in dict.fromkeys(t.gm for t in every):
            run = min(_run(t) for t in every if t.gm is gm)
            if gm not in self.cells:
                self.cells[gm] = _Cells(gm, run)
        read: dict[Gm, float] = {}
        missed: dict[Gm, float] = {}
        sliced = [(t, _slices(t, found)) for found in cores.values() for t in found]
        for number in range(_SLICES):
            marks: dict[Gm, list[tuple[np.ndarray, bool]]] = {}
            for t, bounds in sliced:
                lo, hi = bounds[number], bounds[number + 1]
                if lo < hi:
                    marks.setdefault(t.gm, []).append((self.cells[t.gm].of(t, lo, hi), t.write))
            for gm, found in marks.items():
                misses = self.cells[gm].touch(self, found)
                missed[gm] = missed.get(gm, 0.0) + misses
        for t in every:
            if not t.write:
                read[t.gm] = read.get(t.gm, 0.0) + _bytes(t)
        shares = {
            gm: Share(min(1.0, missed.get(gm, 0.0) / read[gm]) if read.get(gm) else 0.0)
            for gm in dict.fromkeys(t.gm for t in every)
        }
        for gm, share in shares.items():
            if gm.l2 == "bypass":
                share.miss = 1.0
        streams = Streams(shares, _hot(cores))
        self.phases.append(streams)
        for t in every:
            if t.write:
                self.cells[t.gm].written += _bytes(t)
        return streams

    def close(self) -> None:
        """Which writes were evicted, in the end too: a launch is followed by another like it."""
        for gm, cells in self.cells.items():
            evicted = cells.evicted(self)
            for streams in self.phases:
                if gm in streams.shares and cells.written:
                    streams.shares[gm].evicted = min(1.0, evicted / cells.written)


class _Cells:
    """One tensor's cells: when each was used last and first, and whether it was written since it
    was brought in."""

    def __init__(self, gm: Gm, run: int) -> None:
        total = max(prod(gm.shape) * gm.dtype.bits // 8, 1)
        self.gm = gm
        self.bytes = max(_CELL, 1 << (run.bit_length() - 1))
        count = -(-total // self.bytes)
        self.last = np.full(count, -np.inf)
        self.first = np.full(count, np.inf)
        self.dirty = np.zeros(count, bool)
        self.written = 0.0
        self.lost = 0.0  # bytes of dirty cells that were forgotten before they were used again
        self._mark = np.zeros(count, bool)

    def of(self, t: Transfers, lo: int, hi: int) -> np.ndarray:
        """Numbers of the cells that transfers [lo, hi) touch."""
        rows = np.stack([t.at[lo:hi], *(s[lo:hi] for s in t.size)], axis=1)
        rows = np.unique(rows, axis=0)
        found = []
        for sizes in np.unique(rows[:, 1:], axis=0):
            if not sizes.all():
                continue
            at = rows[(rows[:, 1:] == sizes).all(axis=1), 0]
            run, outer = _contiguous(sizes.tolist(), t.stride, self.gm.dtype.bits)
            for size, stride in outer:
                at = (at[:, None] + stride * np.arange(size)).reshape(-1)
            first, last = at // self.bytes, (at + run - 1) // self.bytes
            most = int((last - first).max()) + 1
            cells = first[:, None] + np.arange(most)
            found.append(cells[cells <= last[:, None]])
        if not found:
            return np.zeros(0, np.int64)
        return np.clip(np.concatenate(found), 0, len(self.last) - 1)

    def touch(self, cache: Cache, found: list[tuple[np.ndarray, bool]]) -> float:
        """Bytes that were not there, of the reads of one slice."""
        missed = 0.0
        for write in (False, True):
            mark = self._mark
            mark[:] = False
            for cells, is_write in found:
                if is_write == write:
                    mark[cells] = True
            touched = np.flatnonzero(mark)
            if not len(touched):
                continue
            if self.gm.l2 == "bypass" and not write:
                continue
            absent = cache.clock - self.last[touched] > cache.size
            new = touched[absent]
            self.lost += float(np.count_nonzero(self.dirty[new])) * self.bytes
            self.dirty[new] = False
            size = len(new) * float(self.bytes)
            self.first[touched] = np.minimum(self.first[touched], cache.clock)
            cache.clock += size
            self.last[touched] = cache.clock
            if write:
                self.dirty[touched] = True
            else:
                missed += size
        return missed

    def evicted(self, cache: Cache) -> float:
        dirty = np.flatnonzero(self.dirty)
        away = cache.clock - self.last[dirty] + self.first[dirty]
        return self.lost + float(np.count_nonzero(away > cache.size)) * self.bytes


def _run(t: Transfers) -> int:
    sizes = [int(np.median(s)) for s in t.size]
    return max(_contiguous(sizes, t.stride, t.gm.dtype.bits)[0], 1)


def _contiguous(
    sizes: list[int], stride: tuple[int, ...], bits: int
) -> tuple[int, list[tuple[int, int]]]:
    """Bytes of a contiguous run, and the outer dimensions as (size, stride in bytes)."""
    run, outer = bits / 8, []
    for size, step in zip(reversed(sizes), reversed(stride), strict=True):
        if not outer and step == int(run):
            run *= size
        elif size > 1:
            outer.append((size, step))
    return max(int(run), 1), outer


def _bytes(t: Transfers) -> float:
    return float(np.prod(np.stack(t.size), axis=0).sum()) * t.gm.dtype.bits / 8


def _slices(t: Transfers, core: list[Transfers]) -> list[int]:
    """Bounds of each slice in `t`'s transfers: equal parts of the core's own order."""
    end = 1 + max(int(o.places[-1]) for o in core)
    edges = np.arange(_SLICES + 1) * end / _SLICES
    return np.searchsorted(t.places, edges).tolist()


def _hot(cores: dict[tuple[str, int], list[Transfers]]) -> dict[tuple[str, int], Any]:
    """Cores of a kind that read a tensor at the same addresses in the same order."""
    groups: dict[Any, list[tuple[str, int]]] = {}
    for core, found in cores.items():
        streams: dict[Gm, Any] = {}
        for t in found:
            if not t.write and not t.gm.workspace:
                at = (t.stride, t.at.tobytes(), *(s.tobytes() for s in t.size))
                streams[t.gm] = hash((streams.get(t.gm), at))
        for gm, stream in streams.items():
            groups.setdefault((core[0], gm, stream), []).append(core)
    hot: dict[tuple[str, int], dict[Gm, int]] = {}
    for (_, gm, _), members in groups.items():
        if len(members) > 1:
            for core in members:
                hot.setdefault(core, {})[gm] = hash(tuple(members))
    return hot
