"""What the vendor's library does in one `mmadL1`: moves pieces of K to two halves of L0A and L0B
and multiplies them. Source of the order and the flags: AscendNPU-IR's template of `mma_tile`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from terrazzo.ir.ops import Loc
from terrazzo.ir.types import DType
from terrazzo.targets.davinci.chips import BLOCK, CAPACITY, FRACTAL_ROWS
from terrazzo.targets.davinci.expr import Scalar, add, make, mul, sub
from terrazzo.targets.davinci.program import Buffer, Instr, SetFlag, Stmt, View, WaitFlag

_READY = 0  # the library's event from MTE1 to M


@dataclass(frozen=True)
class Product:
    """out [m, n] (+)= a · b. Tiles in L1: a [m, k], or [k, m] if `turn_a`; b [k, n], or [n, k] if
    `turn_b`. `room`: the rows, columns and K that the tiles have room for. `waits`, `sets`: the
    events from and to MTE2 of a and b (None: no such flag); `round`: which round of the loop it is,
    for the halves of L0 (None: the first); `free`: the events from M to MTE1 of the two halves
    (None: raised and lowered here)."""

    out: View
    a: View
    b: View
    first: Scalar
    k: Scalar
    room: tuple[int, int, int]
    turn_a: bool
    turn_b: bool
    waits: tuple[Scalar | None, Scalar | None]
    sets: tuple[Scalar | None, Scalar | None]
    round: Scalar | None
    free: tuple[Scalar | None, Scalar | None]
    loc: Loc | None


def l0_buffers(dtype: DType) -> tuple[Buffer, Buffer]:
    """L0A and L0B, two halves each."""
    a, b = (
        Buffer(s.lower(), s, dtype, CAPACITY[s] // 2 // dtype.bytes, 2, (0, CAPACITY[s] // 2))
        for s in ("L0A", "L0B")
    )
    return a, b


def expand(p: Product, buffers: tuple[Buffer, Buffer]) -> list[Stmt]:
    """The library's instructions. Raises ValueError when a piece of K does not fit half of L0."""
    item = p.a.dtype.bytes
    unit = max(FRACTAL_ROWS, BLOCK // item)
    most = -(-max(p.room[:2]) // unit) * unit
    piece = CAPACITY["L0A"] // 2 // item // most // unit * unit
    if piece == 0:
        raise ValueError("the tile's rows or columns fill L0 without room for a second half")
    count = -(-p.room[2] // piece)
    events: list[Scalar] = [i if e is None else e for i, e in enumerate(p.free)]
    own = [e for e, given in zip(events, p.free, strict=True) if given is None]
    out: list[Stmt] = [SetFlag("M", "MTE1", e, p.loc) for e in own]
    for i in range(count):
        out += _piece(p, buffers, events, i, count, piece)
    return out + [WaitFlag("M", "MTE1", e, p.loc) for e in own]


def _piece(p: Product, buffers: tuple[Buffer, Buffer], events: list[Scalar], i: int, count: int,
           piece: int) -> list[Stmt]:  # fmt: skip
    half = i if p.round is None else add(mul(p.round, count), i)
    half = make("mod", half, 2)
    free = make("select", half, events[1], events[0])
    k = p.k if count == 1 else make("max", make("min", sub(p.k, i * piece), piece), 0)
    m, n = p.out.sizes
    c0 = BLOCK // p.a.dtype.bytes
    l0a, l0b = (
        View(buffer, sizes, (c0, _rows(room) * c0), 0, half, c0)
        for buffer, sizes, room in zip(buffers, ((m, k), (k, n)), (p.room[0], piece), strict=True)
    )
    out: list[Stmt] = [WaitFlag("M", "MTE1", free, p.loc)]
    for source, to, turned, sizes, wait, raised in (
        (p.a, l0a, p.turn_a, (m, k), p.waits[0], p.sets[0]),
        (p.b, l0b, p.turn_b, (k, n), p.waits[1], p.sets[1]),
    ):
        if i == 0 and wait is not None:
            out.append(WaitFlag("MTE2", "MTE1", wait, p.loc))
        rows_are_k = (source is p.b) != turned
        step = mul(i * piece, source.strides[0]) if rows_are_k else (
            mul(i * piece // source.fractal, source.strides[1])
        )  # fmt: skip
        part = replace(source, sizes=sizes[::-1] if turned else sizes,
                       offset=add(source.offset, step))  # fmt: skip
        attrs = (("transpose", 1),) if turned else ()
        name = "l1_to_l0a" if source is p.a else "l1_to_l0b"
        out.append(Instr(name, to, (part,), attrs, p.loc))
        if i == count - 1 and raised is not None:
            out.append(SetFlag("MTE1", "MTE2", raised, p.loc))
    first = p.first if i == 0 else 0
    out += [
        SetFlag("MTE1", "M", _READY, p.loc),
        WaitFlag("MTE1", "M", _READY, p.loc),
        Instr("mmad", p.out, (l0a, l0b, first), (), p.loc),
        SetFlag("M", "MTE1", free, p.loc),
    ]
    return out


def _rows(n: int) -> int:
    return -(-n // FRACTAL_ROWS) * FRACTAL_ROWS
