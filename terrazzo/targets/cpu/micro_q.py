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

What differs between ISAs is how u8 x i8 products are summed: `micro_int.py`. Where codes have to be
biased for that, the integer sums of a row start at -bias times the sum of its activations: worked
out once for all columns of a call, since as another dot beside those of every two panels it took a
third of their time.
"""

from __future__ import annotations

from terrazzo.ir.types import Format
from terrazzo.targets.cpu.builder import Function
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.layouts import P16S
from terrazzo.targets.cpu.micro_base import (
    TOGETHER,
    Micro,
    cover,
    finish,
    start_value,
    widths,
)
from terrazzo.targets.cpu.micro_group import group_of
from terrazzo.targets.cpu.micro_int import int_dot

_DEPTH = 128  # groups whose offsets are worked out together
_PITCH = 8 * _DEPTH  # bytes from one row's offsets to the next's
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
    bias, lay = int_dot(isa, fmt.name).bias, P16S[fmt.name]
    groups = f.op("lshr i64 %K, 5")
    room = (
        f.op(f"alloca [{isa.int_tiles[0][0] * TOGETHER * _PITCH} x i8], align 64") if bias else ""
    )

    def some(g0: str, count: str, first: str) -> None:
        """The product of `count` groups from g0 on."""
        base = "0"

        def fetch(f: Function, i: str, rows: str) -> None:
            nonlocal base
            base = i
            _offsets(f, bias, f.gep("%a", f.add(f.mul(i, "%stride"), f.mul(g0, 32))), room, rows,
                     count)  # fmt: skip

        def call(f: Function, rows: int, wide: int, i: str, p: str) -> None:
            a = f.gep("%a", f.add(f.mul(i, "%stride"), f.mul(g0, 32)))
            w = f.gep("%w", f.mul(p, "%panel"))
            c = f.gep("%c", f.add(f.mul(i, "%ldc"), f.mul(p, 16)), "float")
            block = g0 if lay.per == 1 or g0 == "0" else f.op(f"sdiv i64 {g0}, {lay.per}")
            given = [
                ("ptr", a),
                ("i64", "%stride"),
                ("i64", f.sub("%scales", f.mul(g0, 32 - 8))),
                ("i64", f.sub("%sums", f.mul(g0, 32 - 4))),
                ("ptr", f.gep(w, f.mul(block, lay.block))),
                ("i64", "%panel"),
                ("ptr", c),
                ("i64", "%ldc"),
                ("i64", count),
                ("i1", first),
            ]
            if bias:
                given.append(("ptr", f.gep(room, f.mul(f.sub(i, base), _PITCH))))
            f.call("void", tiles[rows, wide].name, given)

        cover(f, isa.int_tiles, call, fetch if bias else None)

    def deep(g0: str, _: list[str]) -> None:
        count = f.min(f.sub(groups, g0), _DEPTH)
        some(g0, count, f.op(f"and i1 %first, {f.op(f'icmp eq i64 {g0}, 0')}"))

    if bias:
        f.loop("0", f.max(groups, 1), _DEPTH, [], deep)
    else:
        some("0", groups, "%first")
    f.put("ret void")
    return finish([*tiles.values(), f])


def _offsets(f: Function, bias: int, a: str, to: str, rows: str, count: str) -> None:
    """For some rows %stride bytes apart, `count` groups of each: -bias times the sums of k 0..15
    and k 16..31, i32, in rows _PITCH bytes apart."""
    v, vb = "<8 x i32>", "<32 x i8>"

    def row(i: str, _: list[str]) -> None:
        p, q = f.gep(a, f.mul(i, "%stride")), f.gep(to, f.mul(i, _PITCH))

        def group(g: str, _: list[str]) -> None:
            codes = f.load(vb, f.gep(p, f.mul(g, 32)), 1)
            ones = f"splat (i8 {bias - 256 if bias > 127 else bias})"
            args = [(v, "zeroinitializer"), (vb, ones), (vb, codes)]
            x = f.call(v, "llvm.x86.avx512.vpdpbusd.256", args)
            for pick in ("1, 0, 3, 2, 5, 4, 7, 6", "2, 3, 0, 1, 6, 7, 4, 5"):
                other = ", ".join(f"i32 {n}" for n in pick.split(", "))
                y = f.op(f"shufflevector {v} {x}, {v} poison, <8 x i32> <{other}>")
                x = f.op(f"add {v} {x}, {y}")
            x = f.op(f"shufflevector {v} {x}, {v} poison, <2 x i32> <i32 0, i32 4>")
            x = f.op(f"sub <2 x i32> zeroinitializer, {x}")
            f.store("<2 x i32>", x, f.gep(q, f.mul(g, 8)), 8)

        f.loop("0", count, 1, [], group)

    f.loop("0", rows, 1, [], row)


def _tile(isa: Isa, name: str, symbol: str, rows: int, wide: int) -> Function:
    """One register tile: rows tokens x (wide panels), all groups."""
    lanes = isa.int_lanes
    v = f"<{lanes} x float>"
    more = [("i64", "G"), ("i1", "first")]
    bias = int_dot(isa, name).bias
    off: list[str] = []
    f = Function(f"{symbol}_{rows}x{wide}", [*_ARGS, *more, *([("ptr", "off")] if bias else [])],
                 linkage="internal")  # fmt: skip
    if bias:
        off = [f.gep("%off", t * _PITCH) for t in range(rows)]
    a = [f.gep("%a", f.mul("%stride", t)) for t in range(rows)]
    w = [f.gep("%w", f.mul("%panel", r)) for r in range(wide)]
    c = [f.gep("%c", f.mul("%ldc", t), "float") for t in range(rows)]
    columns = [
        (r, lanes * p) for r in range(wide) for p in range(16 // lanes)
    ]  # (panel, first lane)
    at = {(t, *x): f.gep(c[t], 16 * x[0] + x[1], "float") for t in range(rows) for x in columns}
    start = [(v, start_value(f, lanes, q)) for q in at.values()]
    done = f.loop("0", "%G", 1, start, group_of(f, isa, name, a, off, w, columns))
    for q, x in zip(at.values(), done, strict=True):
        f.store(v, x, q, 4)
    f.put("ret void")
    return f
