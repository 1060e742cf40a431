"""bf16 dot on AMX's matrix tiles: C = A B, both of bf16, sums of f32.

TDPBF16PS (Intel SDM, vol. 2) takes 32 steps along k. For each element of C, f32, nearest even:
    even = 0; fma(a[k], b[k], even) for k = 0, 2, .. 30
    odd  = 0; fma(a[k], b[k], odd)  for k = 1, 3, .. 31
    c    = c + (even + odd)
Denormal operands count as 0 and denormal results become 0. Steps past K are zeros. So the order is
fixed by k alone: a row's result never depends on its neighbours, on M, tiles or threads, nor on
how K is cut as long as it is cut at multiples of 32. It is not the one chain of `micro_f32.py`:
these are the only products whose bits differ between instruction sets.
"""

from __future__ import annotations

from collections.abc import Callable

from terrazzo.ir.types import DType
from terrazzo.targets.cpu.builder import Function
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.micro_base import Micro, finish
from terrazzo.targets.cpu.scratch import STEPS

TILE = 1024  # bytes of a tile register: 16 rows of 64
ROWS = 256  # rows of A that the panels of B go by together: they stay in L2
DEPTH = 512  # steps that are done together: two panels of B so deep fit L1
_PITCH = 2 * DEPTH + 64  # bytes between copied rows, which lie in different cache sets so
# tile numbers: C's 2 x 2, A's two (rows), B's two (panels)
_C, _A, _B = ((0, 1), (2, 3)), (4, 5), (6, 7)
_REGISTERS = 8

_ARGS = [("ptr", "a"), ("i64", "lda"), ("ptr", "b"), ("i64", "panel"), ("ptr", "c"),
         ("i64", "ldc")]  # fmt: skip


def dot_bf16(isa: Isa, a_dtype: DType) -> Micro:
    """void (ptr a, i64 lda, ptr b, i64 panel, ptr c, i64 ldc, i64 M, i64 N, i64 K, i1 first)

    C[M, up16(N)] = (first ? 0 : C) + A[M, K] B[K, N] in the order at the top of the file. a: bf16,
    or f32 whose values are bf16; row i at a + i * lda elements. b: panel p (columns 16p..) at
    b + p * panel bytes (aligned to 64): pairs of k-rows, element (k, column j) the bf16 at
    64 * (k / 2) + 4 * j + 2 * (k % 2); k-rows from K to the next multiple of 32 hold zeros. c: f32,
    row i at c + 4 * i * ldc; columns up to up16(N) are written. K may be 0; a range of K starts at
    a multiple of 32. Reads no A row past M and no panel past N.
    """
    symbol = f"dot_bf16_{a_dtype.name}_{isa.name}"
    shapes = [(r, w) for r in (1, 2) for w in (1, 2)]
    tiles = {s: _tile(f"{symbol}_{s[0]}x{s[1]}", *s) for s in shapes}
    f = Function(symbol, [*_ARGS, ("i64", "M"), ("i64", "N"), ("i64", "K"), ("i1", "first")],
                 linkage="internal")  # fmt: skip
    copy = f.op(f"alloca [{ROWS * _PITCH} x i8], align 64")
    shape = f.op("alloca [64 x i8], align 64")
    direct = _direct(f) if a_dtype.name == "bf16" else "false"
    panels = f.cdiv("%N", 16)
    pairs = f.op(f"and i64 {panels}, -2")

    def deep(k0: str, _: list[str]) -> None:
        count = f.min(f.sub("%K", k0), DEPTH)
        blocks = f.cdiv(f.max(count, 0), STEPS)
        first = f.op(f"and i1 %first, {f.op(f'icmp eq i64 {k0}, 0')}")
        b = f.gep("%b", f.mul(k0, 32))

        def group(i: str, _: list[str]) -> None:
            rows = f.min(f.sub("%M", i), ROWS)
            there = f.gep("%a", f.add(f.mul(i, "%lda"), k0), _type(a_dtype))
            f.when(f.op(f"xor i1 {direct}, true"),
                   lambda: _copy_rows(f, a_dtype, there, copy, rows, count, blocks))  # fmt: skip
            a = f.op(f"select i1 {direct}, ptr {there}, ptr {copy}")
            stride = f.op(f"select i1 {direct}, i64 {f.mul('%lda', 2)}, i64 {_PITCH}")
            whole = f.op(f"and i64 {rows}, -32")

            def sweep(start: str, end: str, high: int) -> None:
                """Rows start.. end of the group, `high` tiles of rows at a time."""

                def panel(p: str, wide: int) -> None:
                    def one(r: str, _: list[str]) -> None:
                        c = f.add(f.mul(f.add(i, r), "%ldc"), f.mul(p, 16))
                        given = [
                            ("ptr", f.gep(a, f.mul(r, stride))),
                            ("i64", stride),
                            ("ptr", f.gep(b, f.mul(p, "%panel"))),
                            ("i64", "%panel"),
                            ("ptr", f.gep("%c", c, "float")),
                            ("i64", f.mul("%ldc", 4)),
                            ("i64", blocks),
                            ("i1", first),
                        ]
                        f.call("void", tiles[high, wide].name, given)

                    f.loop(start, end, 16 * high, [], one)

                f.loop("0", pairs, 2, [], lambda p, _: panel(p, 2))
                f.loop(pairs, panels, 1, [], lambda p, _: panel(p, 1))

            def full() -> None:
                _configure(f, shape, "16", "16")
                sweep("0", whole, 2)

            f.when(f.op(f"icmp sgt i64 {whole}, 0"), full)
            left = f.sub(rows, whole)

            def two() -> None:
                _configure(f, shape, "16", f.sub(left, 16))
                sweep(whole, rows, 2)

            def one() -> None:
                _configure(f, shape, left, left)
                sweep(whole, rows, 1)

            more = f.op(f"icmp sgt i64 {left}, 16")
            some = f.op(f"icmp sgt i64 {left}, 0")
            f.when(more, two)
            f.when(f.op(f"and i1 {some}, {f.op(f'xor i1 {more}, true')}"), one)

        f.loop("0", "%M", ROWS, [], group)

    f.loop("0", f.max("%K", 1), DEPTH, [], deep)
    f.call("void", "llvm.x86.tilerelease", [])
    f.put("ret void")
    return finish([*tiles.values(), f])


def pair_panel(isa: Isa) -> Micro:
    """void (ptr panel, ptr out, i64 K): K k-rows of 16 bf16 (a panel of layout p16) to the pairs
    that `dot_bf16` takes, zeros up to the next multiple of 32. Reads nothing past K."""
    f = Function(f"pair_panel_{isa.name}", [("ptr", "panel"), ("ptr", "out"), ("i64", "K")],
                 linkage="internal")  # fmt: skip
    row = "<16 x i16>"

    def pair(k: str, _: list[str]) -> None:
        p = f.gep("%panel", f.mul(k, 32))
        x = interleave(f, f.load(row, p, 2), f.load(row, f.gep(p, 32), 2))
        f.store("<32 x i16>", x, f.gep("%out", f.mul(k, 32)), 64)

    even = f.op("and i64 %K, -2")
    f.loop("0", even, 2, [], pair)

    def last() -> None:
        x = f.load(row, f.gep("%panel", f.mul(even, 32)), 2)
        store = interleave(f, x, "zeroinitializer")
        f.store("<32 x i16>", store, f.gep("%out", f.mul(even, 32)), 64)

    f.when(f.op(f"icmp slt i64 {even}, %K"), last)
    zero_rest(f, "%out", "%K")
    f.put("ret void")
    return finish([f])


def interleave(f: Function, low: str, high: str) -> str:
    """Two k-rows of 16 bf16 to pairs: <32 x i16>."""
    pick = ", ".join(f"i32 {j}, i32 {16 + j}" for j in range(16))
    return f.op(f"shufflevector <16 x i16> {low}, <16 x i16> {high}, <32 x i32> <{pick}>")


def zero_rest(f: Function, panel: str, k: str) -> None:
    """Zeros in the pairs of a panel from k-row `k`, rounded up to 2, to the next multiple of 32."""
    f.loop(f.roundup(k, 2), f.roundup(k, STEPS), 2, [],
           lambda i, _: f.store("<16 x i32>", "zeroinitializer", f.gep(panel, f.mul(i, 32)), 64)
           )  # fmt: skip


def _direct(f: Function) -> str:
    """Whether A is read where it lies: whole blocks of steps, each of one cache line."""
    start = f.op("ptrtoint ptr %a to i64")
    row, end = f.mul("%lda", 2), f.mul("%K", 2)
    bits = f.op(f"or i64 {f.op(f'or i64 {start}, {row}')}, {end}")
    return f.op(f"icmp eq i64 {f.op(f'and i64 {bits}, 63')}, 0")


def _type(dtype: DType) -> str:
    return "float" if dtype.name == "f32" else "i16"


def _configure(f: Function, shape: str, first: str, second: str) -> None:
    """Rows of the two row tiles; all tiles become zeros. Palette 1; all columns are 64 bytes."""
    f.store("<64 x i8>", "zeroinitializer", shape, 64)
    f.store("i8", "1", shape, 1)
    for t in range(_REGISTERS):
        f.store("i16", "64", f.gep(shape, 16 + 2 * t), 2)
        f.store("i8", "16", f.gep(shape, 48 + t), 1)
    for rows, numbers in ((first, (*_C[0], _A[0])), (second, (*_C[1], _A[1]))):
        count = rows if rows.isdigit() else f.op(f"trunc i64 {rows} to i8")
        for t in numbers:
            f.store("i8", count, f.gep(shape, 48 + t), 1)
    f.call("void", "llvm.x86.ldtilecfg", [("ptr", shape)])


def _copy_rows(f: Function, dtype: DType, a: str, to: str, rows: str, count: str,
               blocks: str) -> None:  # fmt: skip
    """Some rows of A to rows of bf16, with zeros after the last step up to whole blocks."""
    ty = _type(dtype)
    whole = f.op(f"sdiv i64 {count}, {STEPS}")

    def row(r: str, _: list[str]) -> None:
        x, y = f.gep(a, f.mul(r, "%lda"), ty), f.gep(to, f.mul(r, _PITCH))

        def block(j: str, _: list[str]) -> None:
            p, q = f.gep(x, f.mul(j, STEPS), ty), f.gep(y, f.mul(j, 2 * STEPS))
            if ty == "i16":
                f.store("<32 x i16>", f.load("<32 x i16>", p, 2), q, 64)
                return
            for half in range(2):
                bits = f.load("<16 x i32>", f.gep(p, 16 * half, ty), 4)
                high = f.op(f"lshr <16 x i32> {bits}, splat (i32 16)")
                short = f.op(f"trunc <16 x i32> {high} to <16 x i16>")
                f.store("<16 x i16>", short, f.gep(q, 32 * half), 32)

        f.loop("0", whole, 1, [], block)

        def rest() -> None:
            q = f.gep(y, f.mul(whole, 2 * STEPS))
            f.store("<32 x i16>", "zeroinitializer", q, 64)

            def one(k: str, _: list[str]) -> None:
                v = f.load("i16", f.gep(f.gep(x, k, ty), 1 if ty == "float" else 0, "i16"), 2)
                f.store("i16", v, f.gep(q, f.sub(k, f.mul(whole, STEPS)), "i16"), 2)

            f.loop(f.mul(whole, STEPS), count, 1, [], one)

        f.when(f.op(f"icmp slt i64 {whole}, {blocks}"), rest)

    f.loop("0", rows, 1, [], row)


def _tile(symbol: str, high: int, wide: int) -> Function:
    """(high x 16 rows) x (wide panels) of C; `blocks` blocks of 32 steps. stride, ldc: bytes
    between rows."""
    f = Function(symbol, [("ptr", "a"), ("i64", "stride"), ("ptr", "b"), ("i64", "panel"),
                          ("ptr", "c"), ("i64", "ldc"), ("i64", "blocks"), ("i1", "first")],
                 linkage="internal")  # fmt: skip
    spots = [(i, j) for i in range(high) for j in range(wide)]
    at = {(i, j): f.gep(f.gep("%c", f.mul("%ldc", 16 * i)), 64 * j) for i, j in spots}

    def each(name: str) -> Callable[[], None]:
        def run() -> None:
            for i, j in spots:
                place = [] if name == "tilezero" else [("ptr", at[i, j]), ("i64", "%ldc")]
                f.call("void", f"llvm.x86.{name}", [("i8", str(_C[i][j])), *place])

        return run

    f.when("%first", each("tilezero"))
    f.when(f.op("xor i1 %first, true"), each("tileloadd64"))

    a = [f.gep("%a", f.mul("%stride", 16 * i)) for i in range(high)]
    b = [f.gep("%b", f.mul("%panel", j)) for j in range(wide)]

    def load(tile: int, p: str, by: str) -> None:
        f.call("void", "llvm.x86.tileloadd64", [("i8", str(tile)), ("ptr", p), ("i64", by)])

    def block(k: str, _: list[str]) -> None:
        for i in range(high):
            load(_A[i], f.gep(a[i], f.mul(k, 2 * STEPS)), "%stride")
            for j in range(wide):
                if i == 0:
                    load(_B[j], f.gep(b[j], f.mul(k, TILE)), "64")
                f.call("void", "llvm.x86.tdpbf16ps",
                       [("i8", str(t)) for t in (_C[i][j], _A[i], _B[j])])  # fmt: skip

    f.loop("0", "%blocks", 1, [], block)
    each("tilestored64")()
    f.put("ret void")
    return f
