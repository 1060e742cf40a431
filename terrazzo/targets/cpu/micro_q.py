"""Low-bit dot: i8 activations (a8 rows) times packed weights (p16 panels), on register tiles.

Per element and group of 32 k, groups ascending, whatever M, tile or ISA:
    idot = exact integer sum of code * q           (q6_k: of subscale * (code - 32) * q; all below 2^24)
    s    = f32(weight scale * activation scale)    one rounding
    acc  = fma(f32(idot), s, acc)
    q4_0, q4_1: acc = fma(m, activation sum, acc)  m = weight min; for q4_0 m = -8 * weight scale, exact
so results are bitwise the same on every ISA, and a row's never depend on its neighbours.

What differs between ISAs is how u8 x i8 products are summed: `_Vnni`, `_Maddubs`, `_Plain`.
"""

from __future__ import annotations

from typing import Protocol

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

_BIAS = {"q8_0": 128, "q6_k": 32}  # what makes the format's signed codes unsigned
_ARGS = [("ptr", "a"), ("i64", "stride"), ("i64", "scales"), ("i64", "sums"), ("ptr", "w"),
         ("i64", "panel"), ("ptr", "c"), ("i64", "ldc")]  # fmt: skip


class _IntDot(Protocol):
    """Sums of products of 4 neighbouring bytes, in 32-bit lanes; exact for every input our formats have.

    `sum_type`: of the running sums. `biased`: `mac` sums biased codes.
    """

    sum_type: str
    biased: bool

    def activation(self, f: Function, p: str) -> list[str]:
        """4 bytes at p, in every lane."""
        ...

    def weight(self, f: Function, codes: str) -> list[str]:
        """An operand of `mac` from <lanes x i32> of 4 codes each."""
        ...

    def mac(self, f: Function, acc: str, w: list[str], a: list[str]) -> str: ...

    def unbias(self, f: Function, acc: str, a: list[str]) -> str:
        """If `biased`: what `total` has to take off, summed over the activations that went into `mac`."""
        ...

    def total(self, f: Function, acc: str, off: str | None, sub: str | None) -> str:
        """<lanes x i32> result; `sub`: <lanes x i32> factors of the codes summed in acc."""
        ...


class _Vnni:
    """vpdpbusd: u8 codes; signed formats are biased to u8 and the bias's share is subtracted."""

    def __init__(self, name: str, lanes: int) -> None:
        self.name, self.lanes, self.bias = name, lanes, _BIAS.get(name)
        self.vi, self.vb = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
        self.sum_type, self.biased = self.vi, self.bias is not None

    def activation(self, f: Function, p: str) -> list[str]:
        word = splat(f, self.lanes, "i32", f.load("i32", p, 1))
        return [f.op(f"bitcast {self.vi} {word} to {self.vb}")]

    def weight(self, f: Function, codes: str) -> list[str]:
        bytes_ = f.op(f"bitcast {self.vi} {codes} to {self.vb}")
        return [f.op(f"xor {self.vb} {bytes_}, splat (i8 -128)") if self.name == "q8_0" else bytes_]

    def _dot(self, f: Function, acc: str, u: str, a: str) -> str:
        args = [(self.vi, acc), (self.vb, u), (self.vb, a)]
        return f.call(self.vi, f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}", args)

    def mac(self, f: Function, acc: str, w: list[str], a: list[str]) -> str:
        return self._dot(f, acc, w[0], a[0])

    def unbias(self, f: Function, acc: str, a: list[str]) -> str:
        bias = self.bias or 0
        return self._dot(f, acc, f"splat (i8 {bias - 256 if bias > 127 else bias})", a[0])

    def total(self, f: Function, acc: str, off: str | None, sub: str | None) -> str:
        out = acc if off is None else f.op(f"sub {self.vi} {acc}, {off}")
        return out if sub is None else f.op(f"mul {self.vi} {out}, {sub}")


class _Maddubs:
    """vpmaddubsw on 32 bytes. Its i16 pair sums saturate, so signed codes go in as |w| times a with w's
    sign, and i16 sums run only as far as they cannot overflow: a whole group of 4-bit codes
    (16 * 15 * 127 < 2^15), 16 values of q6_k (8 * 32 * 127), one step of q8_0 (2 * 128 * 127)."""

    def __init__(self, name: str) -> None:
        self.name, self.signed = name, name in _BIAS
        self.sum_type, self.biased = "<8 x i32>" if name == "q8_0" else "<16 x i16>", False

    def activation(self, f: Function, p: str) -> list[str]:
        word = splat(f, 8, "i32", f.load("i32", p, 1))
        return [f.op(f"bitcast <8 x i32> {word} to <32 x i8>")]

    def weight(self, f: Function, codes: str) -> list[str]:
        w = f.op(f"bitcast <8 x i32> {codes} to <32 x i8>")
        if not self.signed:
            return [w]
        if self.name == "q6_k":
            w = f.op(f"sub <32 x i8> {w}, splat (i8 32)")
        return [w, f.call("<32 x i8>", "llvm.abs.v32i8", [("<32 x i8>", w), ("i1", "false")])]

    def mac(self, f: Function, acc: str, w: list[str], a: list[str]) -> str:
        u, s = w[0], a[0]
        if self.signed:
            u = w[1]
            s = f.call("<32 x i8>", "llvm.x86.avx2.psign.b", [("<32 x i8>", s), ("<32 x i8>", w[0])])
        out = f.call("<16 x i16>", "llvm.x86.avx2.pmadd.ub.sw", [("<32 x i8>", u), ("<32 x i8>", s)])
        if self.name == "q8_0":
            out = self._pairs(f, out, "splat (i16 1)")
        return f.op(f"add {self.sum_type} {acc}, {out}")

    def unbias(self, f: Function, acc: str, a: list[str]) -> str:
        return acc

    def total(self, f: Function, acc: str, off: str | None, sub: str | None) -> str:
        if self.name == "q8_0":
            return acc
        factor = "splat (i16 1)"
        if sub is not None:  # the factor in both halves of each lane
            low = f.op(f"and <8 x i32> {sub}, splat (i32 65535)")
            both = f.op(f"or <8 x i32> {low}, {f.op(f'shl <8 x i32> {sub}, splat (i32 16)')}")
            factor = f.op(f"bitcast <8 x i32> {both} to <16 x i16>")
        return self._pairs(f, acc, factor)

    @staticmethod
    def _pairs(f: Function, x: str, y: str) -> str:
        return f.call("<8 x i32>", "llvm.x86.avx2.pmadd.wd", [("<16 x i16>", x), ("<16 x i16>", y)])


class _Plain:
    """Plain 32-bit lanes, one byte of four at a time: any target."""

    def __init__(self, name: str, lanes: int) -> None:
        self.name, self.lanes, self.vi = name, lanes, f"<{lanes} x i32>"
        self.sum_type, self.biased = self.vi, False

    def activation(self, f: Function, p: str) -> list[str]:
        out = []
        for b in range(4):
            one = f.op(f"sext i8 {f.load('i8', f.gep(p, b), 1)} to i32")
            out.append(splat(f, self.lanes, "i32", one))
        return out

    def weight(self, f: Function, codes: str) -> list[str]:
        if self.name == "q8_0":
            high = [f.op(f"shl {self.vi} {codes}, splat (i32 {24 - 8 * b})") for b in range(4)]
            return [f.op(f"ashr {self.vi} {x}, splat (i32 24)") for x in high]
        low = [f.op(f"lshr {self.vi} {codes}, splat (i32 {8 * b})") for b in range(4)]
        out = [f.op(f"and {self.vi} {x}, splat (i32 255)") for x in low]
        return [f.op(f"sub {self.vi} {x}, splat (i32 32)") for x in out] if self.name == "q6_k" else out

    def mac(self, f: Function, acc: str, w: list[str], a: list[str]) -> str:
        for x, y in zip(w, a, strict=True):
            acc = f.op(f"add {self.vi} {acc}, {f.op(f'mul {self.vi} {x}, {y}')}")
        return acc

    def unbias(self, f: Function, acc: str, a: list[str]) -> str:
        return acc

    def total(self, f: Function, acc: str, off: str | None, sub: str | None) -> str:
        return acc if sub is None else f.op(f"mul {self.vi} {acc}, {sub}")


def _int_dot(isa: Isa, name: str) -> _IntDot:
    if isa.int_dot == "maddubs":
        return _Maddubs(name)
    return (_Vnni if isa.int_dot == "vnni" else _Plain)(name, isa.int_lanes)


def dot_q(isa: Isa, fmt: Format) -> Micro:
    """void (ptr a, i64 stride, i64 scales, i64 sums, ptr w, i64 panel, ptr c, i64 ldc, i64 M, i64 N,
             i64 K, i1 first)

    C[M, up16(N)] = (first ? 0 : C) + A[M, K] W[N, K]^T. a: row i's bytes q at a + i * stride, its group
    scales at + scales, its sums at + sums (byte offsets from the row's q; so a K range that starts at k0
    is a + k0, scales - k0 + k0 / 8, sums - k0 + k0 / 8). w: p16 panel p at w + p * panel bytes (the range's
    first group; aligned to 32). c: f32, row i at c + 4 * i * ldc. K and the start of a range are multiples
    of the format's group; K may be 0. Splitting K into ranges does not change a bit of the result.
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
    f = Function(f"{symbol}_{rows}x{wide}", [*_ARGS, ("i64", "G"), ("i1", "first")], linkage="internal")
    a = [f.gep("%a", f.mul("%stride", t)) for t in range(rows)]
    w = [f.gep("%w", f.mul("%panel", r)) for r in range(wide)]
    c = [f.gep("%c", f.mul("%ldc", t), "float") for t in range(rows)]
    columns = [(r, lanes * p) for r in range(wide) for p in range(16 // lanes)]  # (panel, first lane)
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
    lanes, dot = isa.int_lanes, _int_dot(isa, name)
    vi, v = f"<{lanes} x i32>", f"<{lanes} x float>"

    def half(p: str) -> str:
        return half_to_float(f, isa.half, lanes, f.load(f"<{lanes} x i16>", p, min(2 * lanes, 32)))

    def run(g: str, carried: list[str]) -> list[str]:
        block = f.mul(g if lay.per == 1 else f.op(f"lshr i64 {g}, 3"), lay.block)
        inside = 0 if lay.per == 1 else f.mul(f.op(f"and i64 {g}, 7"), lay.group)
        blocks = [f.gep(p, block) for p in w]
        groups = [f.gep(p, inside) for p in blocks]
        if isa.prefetch and len(a) == 1:
            for p in groups:
                for line in range((lay.group + 63) // 64):
                    prefetch(f, f.gep(p, isa.prefetch + 64 * line))
        q = [f.gep(p, f.mul(g, 32)) for p in a]
        acc, off = _integer(f, dot, lay, lanes, q, groups, columns)
        scale = {(r, p): half(f.gep(blocks[r], lay.scale + 2 * p)) for r, p in columns}
        low: dict[tuple[int, int], str] = {}
        if lay.min is not None:
            low = {(r, p): half(f.gep(blocks[r], lay.min + 2 * p)) for r, p in columns}
        elif name == "q4_0":
            low = {x: f.op(f"fmul {v} {s}, splat (float -8.0)") for x, s in scale.items()}
        factor: dict[tuple[int, int, int], str] = {}
        if lay.sub is not None:
            for r, p in columns:
                for h in range(2):
                    raw = f.load(f"<{lanes} x i8>", f.gep(groups[r], lay.sub + 16 * h + p), lanes)
                    factor[r, p, h] = f.op(f"sext <{lanes} x i8> {raw} to {vi}")
        old = iter(carried)
        new = []
        for t in range(len(a)):
            row = f.gep(a[t], f.mul(g, 4))
            step = splat(f, lanes, "float", f.load("float", f.gep(row, "%scales"), 4))
            total = splat(f, lanes, "float", f.load("float", f.gep(row, "%sums"), 4)) if low else ""
            for x in columns:
                parts = [
                    dot.total(f, acc[t, *x, h], off.get((t, h)), factor.get((*x, h)))
                    for h in range(_subs(lay))
                ]
                whole = parts[0] if len(parts) == 1 else f.op(f"add {vi} {parts[0]}, {parts[1]}")
                value = f.op(f"sitofp {vi} {whole} to {v}")
                y = fma(f, lanes, value, f.op(f"fmul {v} {scale[x]}, {step}"), next(old))
                new.append(fma(f, lanes, low[x], total, y) if low else y)
        return new

    return run


def _subs(lay: P16) -> int:
    """Integer sums a group and lane: one, or one per subscale."""
    return 1 if lay.sub is None else 2


def _integer(f: Function, dot: _IntDot, lay: P16, lanes: int, q: list[str], groups: list[str],
             columns: list[tuple[int, int]]):  # fmt: skip
    """The integer part of a group: ({(token, panel, lane, half): sum}, {(token, half): bias's share}).

    A loop of 2 or 4 trips on purpose: unrolled, the code generator moves everything across everything
    and the sums live on the stack (measured: 2 to 3 times slower on AVX2).
    """
    subs, trips = range(_subs(lay)), 4 if lay.sub is None else 2
    keys = [(t, *x, h) for t in range(len(q)) for x in columns for h in subs]
    biased = [(t, h) for t in range(len(q)) for h in subs] if dot.biased else []

    def trip(step: str, carried: list[str]) -> list[str]:
        acc = dict(zip(keys, carried, strict=False))
        off = dict(zip(biased, carried[len(keys) :], strict=True))
        for k, sub, codes in _chunks(f, lay, lanes, groups, columns, step):
            weights = {x: dot.weight(f, c) for x, c in codes.items()}
            for t, p in enumerate(q):
                av = dot.activation(f, f.gep(p, k))
                if biased:
                    off[t, sub] = dot.unbias(f, off[t, sub], av)
                for x in columns:
                    acc[t, *x, sub] = dot.mac(f, acc[t, *x, sub], weights[x], av)
        return [*acc.values(), *off.values()]

    start = [(dot.sum_type, "zeroinitializer") for _ in [*keys, *biased]]
    done = f.loop("0", trips, 1, start, trip)
    return dict(zip(keys, done, strict=False)), dict(zip(biased, done[len(keys) :], strict=True))


def _chunks(f: Function, lay: P16, lanes: int, groups: list[str], columns: list[tuple[int, int]], step: str):
    """The 4-k pieces of one trip: (offset of k in the group, half, {column: <lanes x i32> of 4 codes}).
    Codes are unsigned, q8_0's as they are."""
    vi = f"<{lanes} x i32>"

    def load(offset: str) -> dict[tuple[int, int], str]:
        return {(r, p): f.load(vi, f.gep(f.gep(groups[r], offset), 4 * p), 32) for r, p in columns}

    def masked(x: str, shift: int, mask: int) -> str:
        if shift:
            x = f.op(f"{'lshr' if shift > 0 else 'shl'} {vi} {x}, splat (i32 {abs(shift)})")
        return f.op(f"and {vi} {x}, splat (i32 {mask * 0x01010101})")

    if lay.chunks == 8:
        for j in range(2):
            chunk = f.add(f.mul(step, 2), j)
            yield f.mul(chunk, 4), 0, load(f.mul(chunk, 64))
    elif lay.sub is None:
        raw = load(f.mul(step, 64))
        for h in range(2):
            yield f.add(f.mul(step, 4), 16 * h), 0, {x: masked(w, 4 * h, 15) for x, w in raw.items()}
    else:
        top = load(f.add(f.mul(step, 64), 256))
        for j in range(2):
            chunk = f.add(f.mul(step, 2), j)
            raw = load(f.mul(chunk, 64))
            for h in range(2):
                codes = {
                    x: f.op(f"or {vi} {masked(w, 4 * h, 15)}, {masked(top[x], 4 * j + 2 * h - 4, 48)}")
                    for x, w in raw.items()
                }
                yield f.add(f.mul(chunk, 4), 16 * h), h, codes
