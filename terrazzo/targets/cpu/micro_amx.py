"""Dot on AMX's matrix tiles: C = A B, both as sums of bf16 planes (planes.py), sums of f32.

TDPBF16PS (Intel SDM, vol. 2) takes 32 steps along k. For each element of C, f32, nearest even:
    even = 0; fma(a[k], b[k], even) for k = 0, 2, .. 30
    odd  = 0; fma(a[k], b[k], odd)  for k = 1, 3, .. 31
    c    = c + (even + odd)
Denormal operands count as 0 and denormal results become 0. Steps past K are zeros. For every 32
steps that is done for each product of planes, in the order of `terms`. So the order is fixed by k
alone: a row's result never depends on its neighbours, on M, tiles or threads, nor on how K is cut
as long as it is cut at multiples of 32. It is not the one chain of `micro_f32.py`: these are the
only products whose bits differ between instruction sets.
"""

from __future__ import annotations

from collections.abc import Callable

from terrazzo.targets.cpu import nonfinite
from terrazzo.targets.cpu.builder import Function
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.micro_base import Micro, finish
from terrazzo.targets.cpu.planes import LINE, exponents, not_finite, split_rows, terms
from terrazzo.targets.cpu.scratch import STEPS

TILE = 1024  # bytes of a tile register: 16 rows of 64
ROWS = {1: 256, 2: 128, 3: 96}  # of A with so many planes that B's panels go by: they stay in L2
DEPTH = 512  # steps that are done together: two panels of B so deep fit L1
# tile numbers: C's 2 x 2, A's two (rows), B's two (panels)
_C, _A, _B = ((0, 1), (2, 3)), (4, 5), (6, 7)
_REGISTERS = 8
# Stores of tiles fall asleep after some 250 ns without one, and the next takes as long to wake
# them: 14 % of a tile of f32. So one is made, of no use, every so many products of planes.
_AWAKE = 16
_AHEAD = 2  # rows of sums that are brought near with each block of steps

_ARGS = [("ptr", "a"), ("i64", "lda"), ("ptr", "b"), ("i64", "panel"), ("ptr", "c"),
         ("i64", "ldc")]  # fmt: skip


def dot_tiles(isa: Isa, a_dtype: str, left: int, right: int) -> Micro:
    """void (ptr a, i64 lda, ptr b, i64 panel, ptr c, i64 ldc, i64 M, i64 N, i64 K, i1 first)

    C[M, up16(N)] = (first ? 0 : C) + A[M, K] B[K, N] in the order at the top of the file. a: of
    `a_dtype` (f32, f16 or bf16; its values are sums of `left` planes), row i at a + i * lda
    elements. b: panel p (columns 16p..) at b + p * panel bytes (aligned to 64): blocks of 32
    k-rows, in them `right` planes of pairs of k-rows, element (k, column j) of a plane the bf16 at
    64 * (k / 2) + 4 * j + 2 * (k % 2); k-rows from K to the next multiple of 32 hold zeros. c: f32,
    row i at c + 4 * i * ldc; columns up to up16(N) are written. K may be 0; a range of K starts at
    a multiple of 32. Reads no A row past M and no panel past N.
    """
    symbol = f"dot_tiles_{a_dtype}_{left}x{right}_{isa.name}"
    several = left * right > 1
    shapes = [(r, w) for r in (1, 2) for w in (1, 2)]
    tiles = {s: _tile(f"{symbol}_{s[0]}x{s[1]}", *s, left, right) for s in shapes}
    again = nonfinite.mend(f"{symbol}_again", left, right)
    f = Function(symbol, [*_ARGS, ("i64", "M"), ("i64", "N"), ("i64", "K"), ("i1", "first")],
                 linkage="internal")  # fmt: skip
    most, pitch = ROWS[left], LINE * left * (DEPTH // STEPS) + 64  # other cache sets for each row
    copy = f.op(f"alloca [{most * pitch} x i8], align 64")
    shape = f.op("alloca [64 x i8], align 64")
    spare = f.op(f"alloca [{TILE} x i8], align 64")
    old = f.op(f"alloca [{4 * nonfinite.SIDE**2} x i8], align 64") if several else ""
    direct = _direct(f) if a_dtype == "bf16" and not several else "false"
    ty = "float" if a_dtype == "f32" else "i16"
    panels = f.cdiv("%N", 16)
    pairs = f.op(f"and i64 {panels}, -2")

    def deep(k0: str, _: list[str]) -> None:
        count = f.min(f.sub("%K", k0), DEPTH)
        blocks = f.cdiv(f.max(count, 0), STEPS)
        first = f.op(f"and i1 %first, {f.op(f'icmp eq i64 {k0}, 0')}")
        b = f.gep("%b", f.mul(k0, 32 * right))
        odd_b = _odd(f, b, panels, blocks, right) if several else "false"

        def group(i: str, _: list[str]) -> None:
            rows = f.min(f.sub("%M", i), most)
            there = f.gep("%a", f.add(f.mul(i, "%lda"), k0), ty)
            odd = "false"
            if several:
                seen = split_rows(f, a_dtype, left, there, copy, pitch, rows, count)
                odd = f.op(f"or i1 {odd_b}, {seen}")
            else:

                def copied() -> None:
                    split_rows(f, a_dtype, 1, there, copy, pitch, rows, count)

                f.when(f.op(f"xor i1 {direct}, true"), copied)
            a = f.op(f"select i1 {direct}, ptr {there}, ptr {copy}")
            stride = f.op(f"select i1 {direct}, i64 {f.mul('%lda', 2)}, i64 {pitch}")
            whole = f.op(f"and i64 {rows}, -32")

            def sweep(start: str, end: str, high: int) -> None:
                """Rows start.. end of the group, `high` tiles of rows at a time."""

                def panel(p: str, wide: int) -> None:
                    def one(r: str, _: list[str]) -> None:
                        c = f.gep("%c", f.add(f.mul(f.add(i, r), "%ldc"), f.mul(p, 16)), "float")
                        ldc, some = f.mul("%ldc", 4), f.min(f.sub(end, r), 16 * high)
                        given = [
                            ("ptr", f.gep(a, f.mul(r, stride))),
                            ("i64", stride),
                            ("ptr", f.gep(b, f.mul(p, "%panel"))),
                            ("i64", "%panel"),
                            ("ptr", c),
                            ("i64", ldc),
                            ("i64", blocks),
                            ("i1", first),
                        ]
                        if several:
                            f.when(odd, lambda: nonfinite.keep(f, c, ldc, some, old, wide))
                        f.call("void", tiles[high, wide].name, [*given, ("ptr", spare)])
                        rest = [("i64", some), ("i64", str(16 * wide)), ("ptr", old)]

                        def once_more() -> None:
                            f.call("void", again.name, [*given, *rest])

                        if several:
                            f.when(odd, once_more)

                    f.loop(start, end, 16 * high, [], one)

                f.loop("0", pairs, 2, [], lambda p, _: panel(p, 2))
                f.loop(pairs, panels, 1, [], lambda p, _: panel(p, 1))

            def full() -> None:
                _configure(f, shape, "16", "16")
                sweep("0", whole, 2)

            f.when(f.op(f"icmp sgt i64 {whole}, 0"), full)
            left_over = f.sub(rows, whole)

            def two() -> None:
                _configure(f, shape, "16", f.sub(left_over, 16))
                sweep(whole, rows, 2)

            def one() -> None:
                _configure(f, shape, left_over, left_over)
                sweep(whole, rows, 1)

            more = f.op(f"icmp sgt i64 {left_over}, 16")
            some = f.op(f"icmp sgt i64 {left_over}, 0")
            f.when(more, two)
            f.when(f.op(f"and i1 {some}, {f.op(f'xor i1 {more}, true')}"), one)

        f.loop("0", "%M", most, [], group)

    f.loop("0", f.max("%K", 1), DEPTH, [], deep)
    f.call("void", "llvm.x86.tilerelease", [])
    f.put("ret void")
    return finish([*tiles.values(), *([again] if several else []), f])


def _odd(f: Function, b: str, panels: str, blocks: str, right: int) -> str:
    """i1: whether B has infinities or NaN in these panels and blocks."""
    kind = "<32 x i16>"

    def panel(p: str, seen: list[str]) -> list[str]:
        def block(n: str, seen: list[str]) -> list[str]:
            at, largest = f.gep(f.gep(b, f.mul(p, "%panel")), f.mul(n, TILE * right)), seen[0]
            for row in range(16):
                largest = exponents(f, largest, f.load(kind, f.gep(at, 64 * row), 64))
            return [largest]

        return f.loop("0", blocks, 1, [(kind, seen[0])], block)

    seen = f.loop("0", panels, 1, [(kind, "zeroinitializer")], panel)
    return not_finite(f, seen[0])


def _direct(f: Function) -> str:
    """Whether A is read where it lies: whole blocks of steps, each of one cache line."""
    start = f.op("ptrtoint ptr %a to i64")
    row, end = f.mul("%lda", 2), f.mul("%K", 2)
    bits = f.op(f"or i64 {f.op(f'or i64 {start}, {row}')}, {end}")
    return f.op(f"icmp eq i64 {f.op(f'and i64 {bits}, 63')}, 0")


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


def _tile(symbol: str, high: int, wide: int, left: int, right: int) -> Function:
    """(high x 16 rows) x (wide panels) of C; `blocks` blocks of 32 steps. stride, ldc: bytes
    between rows. spare: room for a tile."""
    f = Function(symbol, [("ptr", "a"), ("i64", "stride"), ("ptr", "b"), ("i64", "panel"),
                          ("ptr", "c"), ("i64", "ldc"), ("i64", "blocks"), ("i1", "first"),
                          ("ptr", "spare")],
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

    often = 1 << (_AWAKE // len(terms(left, right))).bit_length() - 1  # blocks
    # sums come from L2 or farther: those of these rows are only stored, or those of the next loaded
    ahead = f.gep("%c", f.mul("%ldc", 16 * high))
    ahead = f.op(f"select i1 %first, ptr %c, ptr {ahead}")

    def block(k: str, _: list[str]) -> None:
        row = f.op(f"and i64 {f.mul(k, _AHEAD)}, {16 * high - 1}")
        for i in range(_AHEAD):
            for j in range(wide):
                at = f.gep(f.gep(ahead, f.mul(f.add(row, i), "%ldc")), 64 * j)
                f.call("void", "llvm.prefetch.p0", [("ptr", at), ("i32", "1"), ("i32", "3"),
                                                    ("i32", "1")])  # fmt: skip
        held = -1, -1  # the planes of A and B in tiles
        for x, y in terms(left, right):
            for i in range(high):
                if x != held[0]:
                    load(_A[i], f.gep(a[i], f.add(f.mul(k, LINE * left), LINE * x)), "%stride")
                for j in range(wide):
                    if i == 0 and y != held[1]:
                        load(_B[j], f.gep(b[j], f.add(f.mul(k, TILE * right), TILE * y)), "64")
                    f.call("void", "llvm.x86.tdpbf16ps",
                           [("i8", str(t)) for t in (_C[i][j], _A[i], _B[j])])  # fmt: skip
            held = x, y
        if often < DEPTH // STEPS:
            due = f.op(f"icmp eq i64 {f.op(f'and i64 {k}, {often - 1}')}, {often - 1}")

            def awake() -> None:
                at = [("i8", str(_A[0])), ("ptr", "%spare"), ("i64", "64")]
                f.call("void", "llvm.x86.tilestored64", at)

            f.when(due, awake)

    f.loop("0", "%blocks", 1, [], block)
    each("tilestored64")()
    f.put("ret void")
    return f
