"""Low-bit dot: i8 activations (a8 rows) times packed weights (p16 panels), on register tiles.

Per element and group of 32 k, groups ascending, whatever M, tile or ISA:
    i0, i1 = exact integer sums of code * q over k 0..15 and k 16..31
             (q6_k: of subscale * (code - 32) * q; all are below 2^24)
    t   = f32(f32(i0) * d0)                            d0, d1: the activations' scales
    t   = fma(f32(i1), d1, t)
    acc = fma(t, weight scale, acc)
    acc = fma(m, activation sum, acc)                  q4_1: m = weight min;
                                                       q4_0: m = -8 * weight scale, exact
so results are bitwise the same on every ISA, and a row's never depend on its neighbours.

What differs between ISAs is how u8 x i8 products are summed: `micro_int.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from terrazzo.ir.types import Format
from terrazzo.targets.cpu.builder import Function
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.layouts import P16, P16S
from terrazzo.targets.cpu.micro_base import (
    Micro,
    cover,
    finish,
    fma,
    half_to_float,
    prefetch,
    splat,
    start_value,
    widths,
)
from terrazzo.targets.cpu.micro_int import IntDot, int_dot
from terrazzo.targets.cpu.micro_neon import matrix_half

_ARGS = [("ptr", "a"), ("i64", "stride"), ("i64", "scales"), ("i64", "sums"), ("ptr", "w"),
         ("i64", "panel"), ("ptr", "c"), ("i64", "ldc")]  # fmt: skip


def dot_q(isa: Isa, fmt: Format) -> Micro:
    """void (ptr a, i64 stride, i64 scales, i64 sums, ptr w, i64 panel, ptr c, i64 ldc, i64 M,
    i64 N, i64 K, i1 first)

    C[M, up16(N)] = (first ? 0 : C) + A[M, K] W[N, K]^T. a: row i's bytes q at a + i * stride, its
    scales at + scales, its sums at + sums: byte offsets from the row's q, so a K range that starts
    at k0 is a + k0, scales - k0 + k0 / 4, sums - k0 + k0 / 8. w: p16 panel p at w + p *
    panel bytes (the range's first group; aligned to 32). c: f32, row i at c + 4 * i * ldc; columns
    up to up16(N) are written. K and the start of a range are multiples of the format's group; K may
    be 0.
    Splitting K into ranges does not change a bit of the result.
    """
    symbol = f"dot_q_{fmt.name}_{isa.name}"
    tiles = {t: _tile(isa, fmt.name, symbol, *t) for t in widths(isa.int_tiles)}
    f = Function(symbol, [*_ARGS, ("i64", "M"), ("i64", "N"), ("i64", "K"), ("i1", "first")],
                 linkage="internal")  # fmt: skip
    groups = f.op("lshr i64 %K, 5")

    def call(f: Function, rows: int, wide: int, i: str, p: str) -> None:
        a = f.gep("%a", f.mul(i, "%stride"))
        w = f.gep("%w", f.mul(p, "%panel"))
        c = f.gep("%c", f.add(f.mul(i, "%ldc"), f.mul(p, 16)), "float")
        f.call("void", tiles[rows, wide].name,
               [("ptr", a), ("i64", "%stride"), ("i64", "%scales"), ("i64", "%sums"), ("ptr", w),
                ("i64", "%panel"), ("ptr", c), ("i64", "%ldc"), ("i64", groups),
                ("i1", "%first")])  # fmt: skip

    cover(f, isa.int_tiles, call)
    f.put("ret void")
    return finish([*tiles.values(), f])


def _tile(isa: Isa, name: str, symbol: str, rows: int, wide: int) -> Function:
    """One register tile: rows tokens x (wide panels), all groups."""
    lay, lanes = P16S[name], isa.int_lanes
    v = f"<{lanes} x float>"
    f = Function(
        f"{symbol}_{rows}x{wide}", [*_ARGS, ("i64", "G"), ("i1", "first")], linkage="internal"
    )
    a = [f.gep("%a", f.mul("%stride", t)) for t in range(rows)]
    w = [f.gep("%w", f.mul("%panel", r)) for r in range(wide)]
    c = [f.gep("%c", f.mul("%ldc", t), "float") for t in range(rows)]
    columns = [
        (r, lanes * p) for r in range(wide) for p in range(16 // lanes)
    ]  # (panel, first lane)
    at = {(t, *x): f.gep(c[t], 16 * x[0] + x[1], "float") for t in range(rows) for x in columns}
    start = [(v, start_value(f, lanes, q)) for q in at.values()]
    done = f.loop("0", "%G", 1, start, _group(f, isa, name, lay, a, w, columns))
    for q, x in zip(at.values(), done, strict=True):
        f.store(v, x, q, 4)
    f.put("ret void")
    return f


def _group(f: Function, isa: Isa, name: str, lay: P16, a: list[str], w: list[str],
           columns: list[tuple[int, int]]):  # fmt: skip
    """The loop body for one group of 32 k: carried accumulators in, the next ones out."""
    lanes, dot = isa.int_lanes, int_dot(isa, name)
    vi, v = f"<{lanes} x i32>", f"<{lanes} x float>"
    pairs = isa.int_dot == "smmla" and len(a) % 2 == 0

    def half(p: str) -> str:
        return half_to_float(f, isa.half, lanes, f.load(f"<{lanes} x i16>", p, min(2 * lanes, 32)))

    def run(g: str, carried: list[str]) -> list[str]:
        block = f.mul(g if lay.per == 1 else f.op(f"lshr i64 {g}, 3"), lay.block)
        inside = 0 if lay.per == 1 else f.mul(f.op(f"and i64 {g}, 7"), lay.group)
        blocks = [f.gep(p, block) for p in w]
        groups = [f.gep(p, inside) for p in blocks]
        if isa.prefetch and len(a) == 1:
            ahead = f.mul("%panel", len(w))  # the same place in the tile that comes next
            for p in groups:
                for line in range((lay.group + 63) // 64):
                    prefetch(f, f.gep(p, f.add(ahead, 64 * line)))
        q = [f.gep(p, f.mul(g, 32)) for p in a]
        t: dict[tuple[int, int, int], str] = {}
        for h in range(2):
            sums = _half(f, dot, lay, lanes, q, groups, columns, h, name, pairs)
            for i, p in enumerate(a):
                d = f.load("float", f.gep(f.gep(p, f.mul(g, 8)), f.add("%scales", 4 * h)), 4)
                d = splat(f, lanes, "float", d)
                for x in columns:
                    value = f.op(f"sitofp {vi} {sums[i, *x]} to {v}")
                    if h:
                        t[i, *x] = fma(f, lanes, value, d, t[i, *x])
                    else:
                        t[i, *x] = f.op(f"fmul {v} {value}, {d}")
        scale = {(r, p): half(f.gep(blocks[r], lay.scale + 2 * p)) for r, p in columns}
        low: dict[tuple[int, int], str] = {}
        if lay.min is not None:
            low = {(r, p): half(f.gep(blocks[r], lay.min + 2 * p)) for r, p in columns}
        elif name == "q4_0":
            low = {x: f.op(f"fmul {v} {s}, splat (float -8.0)") for x, s in scale.items()}
        old = iter(carried)
        new = []
        for i, p in enumerate(a):
            row = f.gep(f.gep(p, f.mul(g, 4)), "%sums")
            total = splat(f, lanes, "float", f.load("float", row, 4)) if low else ""
            for x in columns:
                y = fma(f, lanes, t[i, *x], scale[x], next(old))
                new.append(fma(f, lanes, low[x], total, y) if low else y)
        return new

    return run


def _half(f: Function, dot: IntDot, lay: P16, lanes: int, q: list[str], groups: list[str],
          columns: list[tuple[int, int]], half: int, name: str, pairs: bool
          ) -> dict[tuple[int, int, int], str]:  # fmt: skip
    """The integer sums of k 0..15 (half 0) or 16..31 of a group, by (token, panel, first lane).
    `pairs`: by the instruction for two tokens at once.

    One half after the other, the second 8 k of each in a loop of one trip, on purpose: unrolled or
    with both halves' sums alive, the code generator moves everything across everything and the sums
    live on the stack (measured: up to 2 times slower on AVX2).
    """
    vi = f"<{lanes} x i32>"
    factor: dict[tuple[int, int], str] = {}
    if lay.sub is not None:
        for r, p in columns:
            raw = f.load(f"<{lanes} x i8>", f.gep(groups[r], lay.sub + 16 * half + p), lanes)
            factor[r, p] = f.op(f"sext <{lanes} x i8> {raw} to {vi}")
    if pairs:
        return matrix_half(
            f, name, q, columns, factor,
            lambda step: _chunks(f, lay, lanes, groups, columns, step, half),
        )  # fmt: skip
    tokens = range(len(q))
    keys = [(t, *x) for t in tokens for x in columns]

    def trip(step: str, carried: list[str]) -> list[str]:
        acc = dict(zip(keys, carried, strict=False))
        off = carried[len(keys) :]
        for k, codes in _chunks(f, lay, lanes, groups, columns, step, half):
            weights = {x: dot.weight(f, c) for x, c in codes.items()}
            for t in tokens:
                av = dot.activation(f, f.gep(q[t], k))
                if dot.biased:
                    off[t] = dot.unbias(f, off[t], av)
                for x in columns:
                    acc[t, *x] = dot.mac(f, acc[t, *x], weights[x], av)
        return [*acc.values(), *off]

    carried = len(keys) + (len(q) if dot.biased else 0)
    first = trip("0", ["zeroinitializer"] * carried)
    done = f.loop("1", 2, 1, [(dot.sum_type, x) for x in first], trip)
    off = done[len(keys) :]
    return {
        (t, r, p): dot.total(f, acc, off[t] if off else None, factor.get((r, p)))
        for (t, r, p), acc in zip(keys, done, strict=False)
    }


def _chunks(f: Function, lay: P16, lanes: int, groups: list[str], columns: list[tuple[int, int]],
            step: str, half: int) -> Iterator[tuple[str, dict[tuple[int, int], str]]]:  # fmt: skip
    """The two 4-k pieces of a trip: (offset of k in the group, {column: <lanes x i32> of 4 codes}).
    Codes are unsigned, q8_0's as they are."""
    vi = f"<{lanes} x i32>"

    def load(offset: str) -> dict[tuple[int, int], str]:
        return {(r, p): f.load(vi, f.gep(f.gep(groups[r], offset), 4 * p), 32) for r, p in columns}

    def masked(x: str, shift: int, mask: int) -> str:
        if shift:
            x = f.op(f"{'lshr' if shift > 0 else 'shl'} {vi} {x}, splat (i32 {abs(shift)})")
        return f.op(f"and {vi} {x}, splat (i32 {mask * 0x01010101})")

    top = load(f.add(f.mul(step, 64), 256)) if lay.sub is not None else {}
    for j in range(2):
        chunk = f.add(f.mul(step, 2), j)
        codes = load(f.add(f.mul(chunk, 64), 256 * half if lay.chunks == 8 else 0))
        if lay.chunks != 8:
            codes = {x: masked(w, 4 * half, 15) for x, w in codes.items()}
        for x, w in top.items():
            high = masked(w, 4 * j + 2 * half - 4, 48)
            codes[x] = f.op(f"or {vi} {codes[x]}, {high}")
        yield f.add(f.mul(chunk, 4), 16 * half), codes
