"""Rows and columns with infinities or NaN in a product of planes: summed again, one chain each.

An infinity is one plane and zeros: zero times the other operand's infinity would be NaN, and so
would infinities of both signs. So in tiles where a plane 0 has one, the sums of its row or column
are those of the chain c = fma(a, b, c) over the whole values, k ascending (as in micro_f32.py).
What a row gives still depends on itself and B alone. Rare, hence plain scalar code.
"""

from __future__ import annotations

from terrazzo.targets.cpu.builder import Function, W
from terrazzo.targets.cpu.planes import LINE, exponents, not_finite, pair_at
from terrazzo.targets.cpu.scratch import STEPS

SIDE = 32  # rows and columns at most; `old` has so many columns


def mend(symbol: str, left: int, right: int) -> Function:
    """void (ptr a, i64 stride, ptr b, i64 panel, ptr c, i64 ldc, i64 blocks, i1 first, i64 rows,
    i64 columns, ptr old): like a tile (micro_amx.py) on the rows and columns that have infinities
    or NaN. old: [SIDE, SIDE] f32, what the sums start from unless `first`."""
    f = Function(symbol, [("ptr", "a"), ("i64", "stride"), ("ptr", "b"),
                 ("i64", "panel"), ("ptr", "c"), ("i64", "ldc"), ("i64", "blocks"), ("i1", "first"),
                 ("i64", "rows"), ("i64", "columns"), ("ptr", "old")],
                 linkage="internal")  # fmt: skip
    steps = f.mul("%blocks", STEPS)

    def scalar(p: str) -> str:
        bits = f.load("i16", p, 2)
        wide = f.op(f"shl i32 {f.op(f'zext i16 {bits} to i32')}, 16")
        return f.op(f"bitcast i32 {wide} to float")

    def total(parts: list[str]) -> str:
        x = parts[0]
        for y in parts[1:]:
            x = f.op(f"fadd float {x}, {y}")
        return x

    def a_at(i: str, k: str) -> str:
        block = f.op(f"and i64 {k}, {-STEPS}")
        at = f.add(f.mul(block, 2 * left), f.mul(f.sub(k, block), 2))
        p = f.gep("%a", f.add(f.mul(i, "%stride"), at))
        return total([scalar(f.gep(p, LINE * plane)) for plane in range(left)])

    def b_at(k: str, j: str) -> str:
        panel = f.gep("%b", f.mul(f.op(f"lshr i64 {j}, 4"), "%panel"))
        odd = f.op(f"and i64 {k}, 1")
        inside = f.add(f.mul(f.op(f"and i64 {j}, {W - 1}"), 4), f.mul(odd, 2))
        pair = f.sub(k, odd)
        return total([scalar(f.gep(f.gep(panel, pair_at(f, pair, plane, right)), inside))
                      for plane in range(right)])  # fmt: skip

    def marked(bits: str, at: str, bad: str) -> str:
        one = f.op(f"shl i64 {f.op(f'zext i1 {bad} to i64')}, {at}")
        return f.op(f"or i64 {bits}, {one}")

    def row(i: str, bits: list[str]) -> list[str]:
        def block(n: str, seen: list[str]) -> list[str]:
            p = f.gep("%a", f.add(f.mul(i, "%stride"), f.mul(n, LINE * left)))
            return [exponents(f, seen[0], f.load("<32 x i16>", p, 64))]

        seen = f.loop("0", "%blocks", 1, [("<32 x i16>", "zeroinitializer")], block)
        return [marked(bits[0], i, not_finite(f, seen[0]))]

    def column(j: str, bits: list[str]) -> list[str]:
        def step(k: str, bad: list[str]) -> list[str]:
            x = b_at(k, j)
            nan = f.op(f"fcmp uno float {f.op(f'fsub float {x}, {x}')}, 0.0")
            return [f.op(f"or i1 {bad[0]}, {nan}")]

        bad = f.loop("0", steps, 1, [("i1", "false")], step)
        return [marked(bits[0], j, bad[0])]

    bad_rows = f.loop("0", "%rows", 1, [("i64", "0")], row)[0]
    bad_columns = f.loop("0", "%columns", 1, [("i64", "0")], column)[0]

    def element(i: str, j: str) -> None:
        place = f.gep(f.gep("%c", f.mul(i, "%ldc")), f.mul(j, 4))
        before = f.load("float", f.gep("%old", f.add(f.mul(i, SIDE), j), "float"), 4)
        start = f.op(f"select i1 %first, float 0.0, float {before}")

        def step(k: str, c: list[str]) -> list[str]:
            args = [("float", a_at(i, k)), ("float", b_at(k, j)), ("float", c[0])]
            return [f.call("float", "llvm.fma.f32", args)]

        f.store("float", f.loop("0", steps, 1, [("float", start)], step)[0], place, 4)

    def each(i: str, _: list[str]) -> None:
        def one(j: str, _: list[str]) -> None:
            of_row = f.op(f"lshr i64 {bad_rows}, {i}")
            either = f.op(f"or i64 {of_row}, {f.op(f'lshr i64 {bad_columns}, {j}')}")
            f.when(f.op(f"trunc i64 {either} to i1"), lambda: element(i, j))

        f.loop("0", "%columns", 1, [], one)

    f.loop("0", "%rows", 1, [], each)
    f.put("ret void")
    return f


def keep(f: Function, c: str, ldc: str, rows: str, old: str, panels: int) -> None:
    """A tile of C to `old`; ldc: bytes between rows."""

    def row(i: str, _: list[str]) -> None:
        for p in range(panels):
            x = f.load("<16 x float>", f.gep(f.gep(c, f.mul(i, ldc)), 64 * p), 4)
            f.store("<16 x float>", x, f.gep(old, f.add(f.mul(i, 4 * SIDE), 64 * p)), 4)

    f.loop("0", rows, 1, [], row)
