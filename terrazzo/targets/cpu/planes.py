"""Floats as sums of bf16, for matrix tiles: how they are split, and how operands lie.

bf16 has 8 significant bits and the exponents of f32. So a bf16 is one plane, an f16 (11 bits) is
exactly the sum of two, an f32 (24 bits) of three, each the nearest bf16 to what the planes before
it leave (ties away from zero). A product of two such sums is the sum of the products of their
planes, each exact in f32; those of planes i and j with i + j > 2 are left out, which together are
below 2^-25 of the product, less than f32's own rounding. (Henry, Tang, Heinecke: Leveraging the
bfloat16 artificial intelligence datatype for higher-precision computations, 2019.)

Infinities and NaN are in plane 0, with zeros after it (a NaN by its upper 7 bits), as are finite
values from 3.39e38 on, to which the nearest bf16 is infinity; nonfinite.py sees to their products.
Denormal planes count as 0: of values below 2^-108 low bits are lost, products below 2^-126 are 0.
"""

from __future__ import annotations

from terrazzo.targets.cpu.builder import LANES, VB, VF, VI, Function, W
from terrazzo.targets.cpu.micro_base import Micro, finish, half_to_float, prefetch
from terrazzo.targets.cpu.scratch import STEPS

PLANES = {"bf16": 1, "f16": 2, "f32": 3}
ROW = "<16 x i16>"
EXPONENT = 0x7F80  # of a bf16
_NOT_FINITE = 0x99  # vfpclassps: quiet NaN, both infinities, signalling NaN
LINE = 2 * STEPS  # bytes of a row's plane in one block of steps


def terms(left: int, right: int) -> list[tuple[int, int]]:
    """The products of planes that count, in the order in which they are added up: neighbours share
    a plane where they can, which then stays in its tile."""
    out: list[tuple[int, int]] = []
    for i in range(left):
        row = [(i, j) for j in range(right) if i + j <= 2]
        out += reversed(row) if i % 2 else row
    return out


def split(f: Function, x: str, planes: int) -> tuple[list[str], str]:
    """16 f32 lanes as `planes` bf16 each: i32 lanes whose upper halves they are, the lower zeros.
    With one plane x's values are bf16. Second, <16 x i1>: which lanes are not finite."""
    odd = f.call(VB, "llvm.x86.avx512.fpclass.ps.512", [(VF, x), ("i32", str(_NOT_FINITE))])
    bits = f.op(f"bitcast {VF} {x} to {VI}")
    out: list[str] = []
    for plane in range(planes):
        if plane + 1 == planes:  # what is left has 8 bits
            return [*out, bits], odd
        near = f.op(f"add {VI} {bits}, splat (i32 {0x8000})")
        if plane == 0:
            near = f.op(f"select {VB} {odd}, {VI} {bits}, {VI} {near}")
        out.append(f.op(f"and {VI} {near}, splat (i32 {-0x10000})"))
        x = f.op(f"fsub {VF} {x}, {f.op(f'bitcast {VI} {out[-1]} to {VF}')}")
        if plane == 0:
            x = f.op(f"select {VB} {odd}, {VF} zeroinitializer, {VF} {x}")
        bits = f.op(f"bitcast {VF} {x} to {VI}")
    return out, odd


def row_of(f: Function, first: str, second: str) -> str:
    """The upper halves of 16 lanes and of 16 more, side by side."""
    words = [f.op(f"bitcast {VI} {x} to <32 x i16>") for x in (first, second)]
    pick = ", ".join(f"i32 {2 * i + 1}" for i in range(2 * W))
    both = ", ".join(f"<32 x i16> {x}" for x in words)
    return f.op(f"shufflevector {both}, <32 x i32> <{pick}>")


def pair_of(f: Function, low: str, high: str) -> str:
    """The upper halves of the lanes of two k-rows, in pairs: <16 x i32>."""
    return f.op(f"or {VI} {f.op(f'lshr {VI} {low}, splat (i32 16)')}, {high}")


def widen(f: Function, bits: str) -> str:
    """16 bf16 patterns to i32 lanes whose upper halves they are."""
    return f.op(f"shl {VI} {f.op(f'zext {ROW} {bits} to {VI}')}, splat (i32 16)")


def exponents(f: Function, largest: str, bits: str) -> str:
    """`largest` exponent fields so far, with those of these 32 bf16 patterns."""
    v = "<32 x i16>"
    field = f.op(f"and {v} {bits}, splat (i16 {EXPONENT})")
    return f.call(v, "llvm.umax.v32i16", [(v, largest), (v, field)])


def not_finite(f: Function, largest: str) -> str:
    """i1: whether one of these exponent fields is that of infinity and NaN."""
    top = f.call("i16", "llvm.vector.reduce.umax.v32i16", [("<32 x i16>", largest)])
    return f.op(f"icmp eq i16 {top}, {EXPONENT}")


def interleave(f: Function, low: str, high: str) -> str:
    """Two k-rows of 16 bf16 to pairs: <32 x i16>."""
    pick = ", ".join(f"i32 {j}, i32 {16 + j}" for j in range(16))
    return f.op(f"shufflevector {ROW} {low}, {ROW} {high}, <32 x i32> <{pick}>")


def pair_at(f: Function, k: str, plane: int, planes: int) -> str:
    """Bytes from the start of a panel to the pair of k-rows k, k + 1 of a plane: blocks of 32
    k-rows, in them plane after plane."""
    if planes == 1:
        return f.mul(k, 2 * W)
    block = f.op(f"and i64 {k}, {-STEPS}")
    inside = f.op(f"and i64 {k}, {STEPS - 1}")
    start = f.add(f.mul(block, 2 * W * planes), 2 * W * STEPS * plane)
    return f.add(start, f.mul(inside, 2 * W))


def zero_rest(f: Function, panel: str, k: str, planes: int = 1) -> None:
    """Zeros in the pairs of a panel from k-row `k`, rounded up to 2, to the next multiple of 32."""

    def one(i: str, _: list[str]) -> None:
        for plane in range(planes):
            at = f.gep(panel, pair_at(f, i, plane, planes))
            f.store("<16 x i32>", "zeroinitializer", at, 64)

    f.loop(f.roundup(k, 2), f.roundup(k, STEPS), 2, [], one)


def pair_panel() -> Micro:
    """void (ptr panel, ptr out, i64 K): K k-rows of 16 bf16 (a panel of layout p16) to the pairs
    that `dot_tiles` takes, zeros up to the next multiple of 32. Reads nothing past K."""
    f = Function("pair_panel", [("ptr", "panel"), ("ptr", "out"), ("i64", "K")],
                 linkage="internal")  # fmt: skip

    def pair(k: str, _: list[str]) -> None:
        p = f.gep("%panel", f.mul(k, 32))
        x = interleave(f, f.load(ROW, p, 2), f.load(ROW, f.gep(p, 32), 2))
        f.store("<32 x i16>", x, f.gep("%out", f.mul(k, 32)), 64)

    even = f.op("and i64 %K, -2")
    f.loop("0", even, 2, [], pair)

    def last() -> None:
        x = f.load(ROW, f.gep("%panel", f.mul(even, 32)), 2)
        store = interleave(f, x, "zeroinitializer")
        f.store("<32 x i16>", store, f.gep("%out", f.mul(even, 32)), 64)

    f.when(f.op(f"icmp slt i64 {even}, %K"), last)
    zero_rest(f, "%out", "%K")
    f.put("ret void")
    return finish([f])


def split_rows(f: Function, dtype: str, planes: int, a: str, to: str, pitch: int, rows: str,
               count: str) -> str:  # fmt: skip
    """Some rows of A, `count` elements of `dtype` each, %lda elements apart, to rows `pitch` bytes
    apart of blocks of 32 steps, in them plane after plane; zeros after the last step up to whole
    blocks. Returns an i1: whether there were infinities or NaN."""
    ty = {"f32": "float", "f16": "i16", "bf16": "i16"}[dtype]
    whole = f.op(f"and i64 {count}, {-STEPS}")

    def sixteen(p: str, lanes: str | None) -> tuple[list[str], str]:
        """16 elements from p on, split; those past `lanes` of them are zeros."""
        bits = f"<16 x {ty}>"
        if lanes is None:
            prefetch(f, f.gep(p, "%lda", ty), level=1)  # the next row's
            x = f.load(bits, p, 2 if ty == "i16" else 4)
        else:
            mask = f.op(f"icmp sgt {VI} {f.splat('i32', f.narrow(lanes))}, {LANES}")
            name = f"llvm.masked.load.v16{'f32' if ty == 'float' else 'i16'}.p0"
            f.decls.add(f"declare {bits} @{name}(ptr, {VB}, {bits})")
            args = f"ptr align {2 if ty == 'i16' else 4} {p}, {VB} {mask}, {bits} zeroinitializer"
            x = f.op(f"call {bits} @{name}({args})")
        if dtype == "bf16":
            x = f.op(f"bitcast {VI} {widen(f, x)} to {VF}")
        return split(f, half_to_float(f, True, W, x) if dtype == "f16" else x, planes)

    def row(r: str, seen: list[str]) -> list[str]:
        x, y = f.gep(a, f.mul(r, "%lda"), ty), f.gep(to, f.mul(r, pitch))

        def block(k: str, seen: list[str], tail: bool = False) -> list[str]:
            q, odd = f.gep(y, f.mul(k, 2 * planes)), seen[0]
            halves: list[list[str]] = []
            for at in (k, f.add(k, W)):
                got, strange = sixteen(f.gep(x, at, ty), f.sub(count, at) if tail else None)
                odd = f.op(f"or {VB} {odd}, {strange}")
                halves.append(got)
            for plane, (low, high) in enumerate(zip(*halves, strict=True)):
                f.store("<32 x i16>", row_of(f, low, high), f.gep(q, LINE * plane), 64)
            return [odd]

        seen = f.loop("0", whole, STEPS, [(VB, seen[0])], block)
        return f.loop(whole, count, STEPS, [(VB, seen[0])], lambda k, s: block(k, s, True))

    odd = f.loop("0", rows, 1, [(VB, "zeroinitializer")], row)[0]
    return f.op(f"icmp ne i16 {f.op(f'bitcast {VB} {odd} to i16')}, 0")
