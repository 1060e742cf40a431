"""Cycles of a V instruction: repeats of 256 bytes, and the bank conflicts of its real addresses.

The unified buffer of the 2201 generation has 16 groups of 3 banks; a 32-byte block at address a
lies in group (a >> 5) & 15, bank a >> 16. In one cycle a group serves one access. So a repeat takes
longer when its two sources share a group, or when a source shares a bank with the result, which is
written one repeat later than it is read.
"""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from terrazzo.targets.davinci.chips import BLOCK, REPEAT
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import Instr, views
from terrazzo.targets.davinci.timing.constants import Constants

if TYPE_CHECKING:
    from terrazzo.targets.davinci.timing.cost import Shape

_REPEATS = 255  # the most that one instruction does
_SAMPLE = 32  # repeats whose addresses are looked at; the pattern of groups has period 16 or less
Dims = list[tuple[int, tuple[int, ...]]]  # (size, stride of each view), innermost first


def vector_cycles(
    instr: Instr, shapes: tuple[Shape, ...], k: Constants
) -> tuple[float, float, bool, int]:
    """(cycles, those lost to conflicts, whether the last repeat is partial, elements)."""
    spec, widths = TABLE[instr.op], [v.dtype.bytes for v in views(instr)]
    wide = max(widths)
    if instr.op == "vreduce":
        return _reduction(instr, shapes[1], wide, k)
    base = (spec.cycles or {}).get(wide, 1.0)
    elements = prod(shapes[0].sizes)
    if not elements:
        return 0.0, 0.0, False, 0
    dims = _collapsed(shapes)
    inner, strides = dims[0]
    lanes = REPEAT // wide if all(s in (0, 1) for s in strides) else REPEAT // BLOCK
    a_row = ceil(inner / lanes)
    rows = prod(size for size, _ in dims[1:])
    repeats = rows * a_row
    spread = any(s == 0 for s in strides[1:]) and inner > 1
    each = 0.0
    sample = min(repeats, _SAMPLE)
    for j in range(sample):
        busy = 1.0 + _conflict(dims, shapes, widths, lanes, j, k)
        if spread:
            busy = max(busy, 1.0 + k.block_stride_0)
        each += max(base, busy)
    cycles = repeats * each / sample
    # A column of row values is first made blocks of equal elements, 8 rows a repeat.
    spreading = ceil(rows / 8) if spread else 0
    return cycles + spreading, cycles - repeats * base, bool(inner % lanes), elements


def queue_entries(instr: Instr, shapes: tuple[Shape, ...]) -> int:
    """Entries of the V queue that an operation takes: its hardware instructions, each of up to 255
    repeats a constant stride apart, and the barrier that makes the next one see the result."""
    wide = max(v.dtype.bytes for v in views(instr))
    if instr.op == "vreduce":
        rows, inner = prod(shapes[1].sizes[:-1]), shapes[1].sizes[-1]
        folds = ceil(inner / (REPEAT // wide)) - 1
        return ceil(rows / _REPEATS) * (folds + 1) + 1
    dims = _collapsed(shapes)
    inner, strides = dims[0]
    dense = all(s in (0, 1) for s in strides)
    a_row = ceil(inner / (REPEAT // wide if dense else REPEAT // BLOCK))
    rows = dims[1][0] if len(dims) > 1 else 1
    planes = prod(size for size, _ in dims[2:])
    along = min(rows * ceil(a_row / _REPEATS), a_row * ceil(rows / _REPEATS))
    spreading = any(s == 0 for s in strides[1:]) and inner > 1
    return planes * along + spreading + 1


def _reduction(
    instr: Instr, source: Shape, wide: int, k: Constants
) -> tuple[float, float, bool, int]:
    """A row's repeats are folded into one, element by element. That one is reduced at once, or in
    groups of 8 elements and then those of 8 rows: what is faster."""
    table = k.reduce_sum if instr.attr("kind", "sum") == "sum" else k.reduce_max
    width = 0 if wide == 2 else 1
    rows, inner = prod(source.sizes[:-1]), source.sizes[-1]
    a_row = ceil(inner / (REPEAT // wide))
    at_once = rows * table[width]
    groups = REPEAT // BLOCK  # of one row; so many rows' groups are a repeat of the next step
    grouped = (rows + ceil(rows / groups)) * k.reduce_group[width] + k.vector_head
    cycles = rows * max(a_row - 1, 0) + min(at_once, grouped)
    if a_row > 1:
        cycles += k.vector_head  # of the instruction that folds
    return cycles, 0.0, bool(inner % (REPEAT // wide)), rows * inner


def _collapsed(shapes: tuple[Shape, ...]) -> Dims:
    """Dimensions of size 1 dropped, those that are one run in every view merged."""
    sizes = shapes[0].sizes
    dims: Dims = []
    for axis in reversed(range(len(sizes))):
        size = sizes[axis]
        if size == 1:
            continue
        strides = tuple(0 if s.sizes[axis] == 1 else s.strides[axis] for s in shapes)
        if dims and strides == tuple(t * dims[-1][0] for t in dims[-1][1]):
            dims[-1] = (dims[-1][0] * size, dims[-1][1])
        else:
            dims.append((size, strides))
    return dims or [(1, (1,) * len(shapes))]


def _conflict(
    dims: Dims, shapes: tuple[Shape, ...], widths: list[int], lanes: int, j: int, k: Constants
) -> float:
    """Cycles that repeat `j` takes beyond its one."""
    out = _blocks(dims, shapes[0], widths[0], lanes, j - 1, 0)
    sources = [_blocks(dims, s, widths[i], lanes, j, i) for i, s in enumerate(shapes[1:], start=1)]
    for i, one in enumerate(sources):
        if any(one[0] & other[0] for other in sources[:i]):
            return k.read_read
    if j > 0 and any(one[0] & out[0] and one[1] == out[1] for one in sources):
        return k.read_write
    return 0.0


def _blocks(
    dims: Dims, shape: Shape, width: int, lanes: int, j: int, which: int
) -> tuple[int, int]:
    """(bits of the groups, bank) that view `which` touches in repeat `j`."""
    inner, strides = dims[0]
    row, column = divmod(j, ceil(inner / lanes))
    at = shape.at + column * lanes * strides[which] * width
    for size, outer in dims[1:]:
        row, index = divmod(row, size)
        at += index * outer[which] * width
    bytes_ = min(lanes, inner) * width if strides[which] else BLOCK
    first, count = (at >> 5) & 15, min(ceil(bytes_ / BLOCK), 16)
    mask = ((1 << count) - 1) << first
    return (mask | mask >> 16) & 0xFFFF, at >> 16
