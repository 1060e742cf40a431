"""Conversions at the borders of the dots: packed weights to f32, and f32 activations to a8."""

from __future__ import annotations

from terrazzo.ir.formats import A8_TINY, spec
from terrazzo.ir.types import Format
from terrazzo.targets.cpu.builder import Function, fconst
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.layouts import P16, P16S
from terrazzo.targets.cpu.micro_base import Micro, finish, half_to_float, splat


def decode_panel(isa: Isa, fmt: Format) -> Micro:
    """void (ptr panel, ptr out, i64 k0, i64 K): rows k0 .. k0+K of one p16 panel as f32 [K][16] (a
    panel of `dot_f32` with ldb 16). k0 and K are multiples of the format's group. Values as
    `formats.decode`."""
    lay = P16S[fmt.name]
    args = [("ptr", "panel"), ("ptr", "out"), ("i64", "k0"), ("i64", "K")]
    f = Function(f"decode_panel_{fmt.name}_{isa.name}", args, linkage="internal")
    first = f.op("lshr i64 %k0, 5")

    def group(g: str, _: list[str]) -> None:
        block, inside = _place(f, lay, f.add(first, g))
        here = f.gep("%panel", block)
        codes = f.gep(here, inside)
        out = f.gep("%out", f.mul(g, 32 * 16), "float")
        scale, low = _scales(f, isa, lay, fmt, here, codes, 16, splat_lane=False)
        for chunk in range(8):
            for b in range(4):
                word = f.load("<16 x i32>", f.gep(codes, _chunk(lay, chunk)), 32)
                top = (
                    f.load("<16 x i32>", f.gep(codes, 256 + 64 * (chunk >> 1 & 1)), 32)
                    if lay.sub
                    else ""
                )
                code = _code(f, lay, fmt, 16, word, top, chunk, b)
                value = _value(f, 16, code, scale[chunk >> 2], low)
                f.store("<16 x float>", value, f.gep(out, (4 * chunk + b) * 16, "float"), 4)

    f.loop("0", f.op("lshr i64 %K, 5"), 1, [], group)
    f.put("ret void")
    return finish([f])


def decode_row(isa: Isa, fmt: Format) -> Micro:
    """void (ptr base, i64 panel, i64 n, ptr out, i64 K): row n of a p16 matrix (panels `panel`
    bytes apart) as f32 [K]; K a multiple of the format's group. Values as `formats.decode`."""
    lay = P16S[fmt.name]
    f = Function(f"decode_row_{fmt.name}_{isa.name}",
                 [("ptr", "base"), ("i64", "panel"), ("i64", "n"), ("ptr", "out"), ("i64", "K")],
                 linkage="internal")  # fmt: skip
    start = f.gep("%base", f.mul(f.op("lshr i64 %n, 4"), "%panel"))
    lane = f.op("and i64 %n, 15")

    def group(g: str, _: list[str]) -> None:
        block, inside = _place(f, lay, g)
        here = f.gep(start, block)
        codes = f.gep(here, inside)
        out = f.gep("%out", f.mul(g, 32), "float")
        scale, low = _scales(f, isa, lay, fmt, f.gep(here, f.mul(lane, 2)), f.gep(codes, lane), 4,
                             splat_lane=True)  # fmt: skip
        mine = f.gep(codes, f.mul(lane, 4))
        for chunk in range(8):
            word = _bytes(f, f.gep(mine, _chunk(lay, chunk)))
            top = _bytes(f, f.gep(mine, 256 + 64 * (chunk >> 1 & 1))) if lay.sub else ""
            code = _code(f, lay, fmt, 4, word, top, chunk, 0)
            value = _value(f, 4, code, scale[chunk >> 2], low)
            f.store("<4 x float>", value, f.gep(out, 4 * chunk, "float"), 4)

    f.loop("0", f.op("lshr i64 %K, 5"), 1, [], group)
    f.put("ret void")
    return finish([f])


def _place(f: Function, lay: P16, g: str) -> tuple[str, str]:
    """Byte offsets of group g: of its block in the panel, and of the group in the block."""
    if lay.per == 1:
        return f.mul(g, lay.block), "0"
    inside = f.mul(f.op(f"and i64 {g}, {lay.per - 1}"), lay.group)
    return f.mul(f.op(f"udiv i64 {g}, {lay.per}"), lay.block), inside


def _chunk(lay: P16, chunk: int) -> int:
    return 64 * (chunk if lay.chunks == 8 else chunk & 3)


def _bytes(f: Function, p: str) -> str:
    return f.op(f"zext <4 x i8> {f.load('<4 x i8>', p, 4)} to <4 x i32>")


def _scales(f: Function, isa: Isa, lay: P16, fmt: Format, block: str, group: str, lanes: int,
            splat_lane: bool) -> tuple[list[str], str]:  # fmt: skip
    """([scale of k 0..15, of k 16..31], min or ""): of 16 lanes, or of the lane pointed at in every
    lane."""
    v = f"<{lanes} x float>"

    def half(offset: int) -> str:
        p = f.gep(block, offset)
        if splat_lane:
            bits = splat(f, lanes, "i16", f.load("i16", p, 2))
        else:
            bits = f.load(f"<{lanes} x i16>", p, 32)
        return half_to_float(f, isa.half, lanes, bits)

    scale = half(lay.scale)
    low = half(lay.min) if lay.min is not None else ""
    if lay.sub is None:
        return [scale, scale], low
    out = []
    for h in range(2):
        p = f.gep(group, lay.sub + 16 * h)
        raw = (
            splat(f, lanes, "i8", f.load("i8", p, 1))
            if splat_lane
            else f.load(f"<{lanes} x i8>", p, 16)
        )
        wide = f.op(f"sext <{lanes} x i8> {raw} to <{lanes} x i32>")
        out.append(f.op(f"fmul {v} {scale}, {f.op(f'sitofp <{lanes} x i32> {wide} to {v}')}"))
    return out, low


def _code(
    f: Function, lay: P16, fmt: Format, lanes: int, word: str, top: str, chunk: int, b: int
) -> str:
    """<lanes x i32> code + bias: from byte b of each lane of the code words."""
    vi = f"<{lanes} x i32>"
    if spec(fmt).signed:
        return f.op(
            f"ashr {vi} {f.op(f'shl {vi} {word}, splat (i32 {24 - 8 * b})')}, splat (i32 24)"
        )
    shift = 8 * b + (4 if chunk > 3 else 0)
    code = f.op(f"and {vi} {f.op(f'lshr {vi} {word}, splat (i32 {shift})')}, splat (i32 15)")
    if lay.sub is not None:
        place = 8 * b + 4 * (chunk & 1) + 2 * (chunk >> 2)
        bits = f.op(f"and {vi} {f.op(f'lshr {vi} {top}, splat (i32 {place})')}, splat (i32 3)")
        code = f.op(f"or {vi} {code}, {f.op(f'shl {vi} {bits}, splat (i32 4)')}")
    bias = spec(fmt).bias
    return f.op(f"add {vi} {code}, splat (i32 {bias})") if bias else code


def _value(f: Function, lanes: int, code: str, scale: str, low: str) -> str:
    v = f"<{lanes} x float>"
    x = f.op(f"fmul {v} {f.op(f'sitofp <{lanes} x i32> {code} to {v}')}, {scale}")
    return f.op(f"fadd {v} {x}, {low}") if low else x


def quantize_a8(isa: Isa) -> Micro:
    """void (ptr x, ptr q, ptr scale, ptr sum, i64 K): one row of f32 to a8, K a multiple of 32. The
    operations are those of `formats.encode_a8`, bit for bit."""
    f = Function(f"quantize_a8_{isa.name}",
                 [("ptr", "x"), ("ptr", "q"), ("ptr", "scale"), ("ptr", "sum"), ("i64", "K")],
                 linkage="internal")  # fmt: skip
    vf, vi = "<16 x float>", "<16 x i32>"

    def reduce(kind: str, x: str) -> str:
        return f.call("i32", f"llvm.vector.reduce.{kind}.v16i32", [(vi, x)])

    def group(g: str, _: list[str]) -> None:
        total = [sixteen(f.add(f.mul(g, 2), h)) for h in range(2)]
        f.store("float", f.op(f"fadd float {total[0]}, {total[1]}"), f.gep("%sum", g, "float"), 4)

    def sixteen(g: str) -> str:
        """Stores 16 values and their scale; returns scale * sum of q."""
        x = f.load(vf, f.gep("%x", f.mul(g, 16), "float"), 4)
        bits = f.op(f"and {vi} {f.op(f'bitcast {vf} {x} to {vi}')}, splat (i32 {0x7FFFFFFF})")
        amax = f.op(f"bitcast i32 {reduce('smax', bits)} to float")
        large = f.op(f"fcmp uge float {amax}, {fconst(float(A8_TINY))}")  # or NaN
        finite = f.op(f"fcmp olt float {amax}, 0x7FF0000000000000")
        usable = f.op(f"and i1 {large}, {finite}")
        divisor = f.op(f"select i1 {usable}, float {amax}, float 1.0")
        inverse = splat(f, 16, "float", f.op(f"fdiv float 127.0, {divisor}"))
        kept = f.op(f"select i1 {large}, float {amax}, float 0.0")
        scale = f.op(f"fdiv float {kept}, 127.0")
        f.store("float", scale, f.gep("%scale", g, "float"), 4)
        x = f.op(f"select i1 {usable}, {vf} {x}, {vf} zeroinitializer")
        r = f.call(vf, "llvm.rint.v16f32", [(vf, f.op(f"fmul {vf} {x}, {inverse}"))])
        q = f.op(f"fptosi {vf} {r} to {vi}")
        f.store("<16 x i8>", f.op(f"trunc {vi} {q} to <16 x i8>"), f.gep("%q", f.mul(g, 16)), 1)
        total = f.op(f"sitofp i32 {reduce('add', q)} to float")
        return f.op(f"fmul float {scale}, {total}")

    f.loop("0", f.op("lshr i64 %K, 5"), 1, [], group)
    f.put("ret void")
    return finish([f])
