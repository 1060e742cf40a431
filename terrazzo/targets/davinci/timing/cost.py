"""What one instruction costs, from its evaluated views: cycles on its pipe, bytes by path, latency.

What is shared, how much of it L2 has and how fast global memory answers, is decided elsewhere
(`traffic.py`, `throttle.py`); here are the bytes to move and the cycles that hang on no other core.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd, inf, prod

from terrazzo.targets.davinci.chips import FRACTAL_ROWS
from terrazzo.targets.davinci.isa import MACS, TABLE
from terrazzo.targets.davinci.program import Gm, Instr, Pipe, View, views
from terrazzo.targets.davinci.timing.constants import Constants
from terrazzo.targets.davinci.timing.vector_cost import queue_entries, vector_cycles

LINE = 512  # bytes: what L2 and HBM move, and what an unaligned row straddles


@dataclass(frozen=True)
class Shape:
    """A view with its numbers: `at` is its byte address in UB, for GM its address modulo a line, 0
    elsewhere."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    at: int


@dataclass(frozen=True)
class Work:
    """One instruction's demands.

    cycles: on its pipe whatever the others do. tail: from there to completion, seen by dependents.
    floor: the least time on the pipe. gm, gm_bytes, write: what it moves to or from global memory;
    spread: lines touched by lines needed. peak_hit, peak_miss: bytes a cycle of a read that L2 has
    or has not; of a write both are its rate. moved, path: bytes as a profiler counts them. flops,
    vector_flops. conflict: cycles among `cycles` lost to bank conflicts. entries: of its pipe's
    queue that it takes.
    """

    pipe: Pipe
    op: str
    cycles: float = 0.0
    tail: float = 0.0
    floor: float = 0.0
    gm: Gm | None = None
    gm_bytes: int = 0
    write: bool = False
    spread: float = 1.0
    peak_hit: float = 1.0
    peak_miss: float = 1.0
    moved: int = 0
    path: str = ""
    flops: float = 0.0
    vector_flops: float = 0.0
    conflict: float = 0.0
    entries: int = 1
    bits: int = 0  # of the cube's input elements

    def occupancy(self, miss: float, factor: float) -> float:
        """Cycles on the pipe: a share `miss` of a read's bytes comes from HBM, and every transfer
        is slowed down to `factor` of its own speed."""
        if self.gm is None:
            return self.cycles
        each = miss / self.peak_miss + (1 - miss) / self.peak_hit
        return max(self.floor, self.cycles + self.gm_bytes * each / factor)


def work(
    instr: Instr, shapes: tuple[Shape, ...], k: Constants, fix_store: float, hot: float = inf
) -> Work:
    """`shapes`: of the instruction's views, output first. `fix_store`: a core's rate of writes from
    L0C, which depends on how many cores write. `hot`: its rate of reads that all cores make of one
    address together, for an instruction that is one of those."""
    spec = TABLE[instr.op]
    if spec.pipe == "V":
        cycles, conflict, partial, elements = vector_cycles(instr, shapes, k)
        cycles += k.vector_head + (k.vector_partial if partial else 0.0)
        return Work("V", instr.op, cycles, conflict=conflict, vector_flops=elements,
                    entries=queue_entries(instr, shapes))  # fmt: skip
    operands = list(views(instr))
    source, path = operands[1], f"{operands[1].space}->{instr.out.space}"
    if isinstance(source.memory, Gm):
        return _read(instr, source, source.memory, shapes[1], path, k, hot)
    size = prod(shapes[0].sizes) * instr.out.dtype.bits // 8
    if isinstance(instr.out.memory, Gm):
        rate = fix_store if spec.pipe == "FIX" else k.ub_store
        return Work(
            spec.pipe, instr.op, 0.0, k.write_latency, k.issue, instr.out.memory, size, True,
            peak_hit=rate, peak_miss=rate, moved=size, path=path,
        )  # fmt: skip
    if spec.pipe == "MTE1":
        size = _padded(shapes[0].sizes, instr.out.dtype.bits)
        rate = k.l0a if instr.out.space == "L0A" else k.l0b
        return Work("MTE1", instr.op, k.l0_head + size / rate, moved=size, path=path)
    bits = source.dtype.bits
    (m, depth), n = shapes[1].sizes[-2:], shapes[2].sizes[-1]
    steps = _up(m, 16) * _up(n, 16) * _up(depth, max(256 // bits, 1))
    cycles = steps / MACS[bits] + k.mmad_extra
    return Work("M", instr.op, cycles, k.mmad_tail, flops=2.0 * m * n * depth, bits=bits)


def _read(
    instr: Instr, source: View, gm: Gm, shape: Shape, path: str, k: Constants, hot: float
) -> Work:
    runs, run = _runs(shape, source.dtype.bits)
    size = prod(shape.sizes) * source.dtype.bits // 8
    to_l1 = instr.out.space == "L1"
    # Rows that follow each other in memory are read as one.
    rows = prod(size for size, _ in runs) if instr.op == "nd2nz" else 0
    return Work(
        "MTE2", instr.op, rows * k.nd2nz_row, k.read_latency, max(k.issue, size / hot), gm, size,
        spread=_spread(shape.at, runs, run),
        peak_hit=k.l1_hit if to_l1 else k.ub_hit, peak_miss=k.l1_miss if to_l1 else k.ub_miss,
        moved=size, path=path,
    )  # fmt: skip


def _runs(shape: Shape, bits: int) -> tuple[list[tuple[int, int]], int]:
    """Outer dimensions of a GM view as (size, stride in bytes), and the bytes of a contiguous
    run."""
    outer: list[tuple[int, int]] = []
    run = 1
    for size, stride in zip(reversed(shape.sizes), reversed(shape.strides), strict=True):
        if not outer and stride == run:
            run *= size
        elif size > 1:
            outer.append((size, stride * bits // 8))
    return outer, max(run * bits // 8, 1)


def _spread(at: int, outer: list[tuple[int, int]], run: int) -> float:
    """512-byte lines that the runs touch, by those that aligned ones of that length would."""
    starts = [at]
    for size, stride in outer:
        period = LINE // gcd(stride, LINE)
        starts = [s + i * stride for s in starts for i in range(min(size, period))][:LINE]
    touched = sum(ceil((s % LINE + run) / LINE) for s in starts)
    return touched / len(starts) / ceil(run / LINE)


def _padded(sizes: tuple[int, ...], bits: int) -> int:
    """Bytes of [rows, columns] in whole fractals."""
    return _up(sizes[-2], FRACTAL_ROWS) * _up(sizes[-1], FRACTAL_ROWS) * bits // 8


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
