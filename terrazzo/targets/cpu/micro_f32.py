"""f32 dot: C = A B on register tiles, B in panels of 16 columns of f32, f16, bf16 or i8.

Goal: every element is one chain c = fma(a[i, k], b[k, j], c), k ascending, whatever M, tile or ISA,
so a row's result never depends on its neighbours. Non-goals: packing, blocking for caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from terrazzo.ir.types import DType
from terrazzo.targets.cpu.builder import Function
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.micro_base import (
    TOGETHER,
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

FEW = 4  # rows of a tile that memory keeps waiting
_NEXT = 1024  # bytes of each panel, which comes from L2: a tile's panels fill L1 twice
Pages = Literal["", "n", "k"]
_ARGS = [("ptr", "a"), ("i64", "lda"), ("ptr", "b"), ("i64", "panel"), ("i64", "ldb"),
         ("ptr", "c"), ("i64", "ldc")]  # fmt: skip
_AHEAD = [("ptr", "ahead"), ("i64", "ahead_lda")]
_PAGES = [("ptr", "pages")]


def dot_f32(isa: Isa, b_dtype: DType, pages: Pages = "") -> Micro:
    """void (ptr a, i64 lda, ptr b, i64 panel, i64 ldb, ptr c, i64 ldc, i64 M, i64 N, i64 K, i1
    first)

    C[M, up16(N)] = (first ? 0 : C) + A[M, K] B[K, N]. a: f32, row i at a + 4 * i * lda bytes. b:
    panel p (columns 16p..16p+15, all 16 readable) at b + p * panel bytes, its row k at + k * ldb
    elements of `b_dtype` (f32, f16, bf16 or i8; aligned to its element). c: f32, row i at
    c + 4 * i * ldc; columns up to up16(N) are written. K may be 0. Reads no A row past M and no
    panel past N.

    With pages, b is an array of pointers. "n": one a panel (`panel` is not used). "k": one every 16
    k-rows; panel p of rows 16q.. lies at b[q] + p * panel. One more argument, `ptr ahead`, lists as
    many pages that are read next: while few rows stream a page of b, its place in the list is
    brought near.
    """
    symbol = f"dot_f32_{b_dtype.name}_{isa.name}" + (f"_pages_{pages}" if pages else "")
    tiles = {t: _tile(isa, b_dtype, symbol, pages, *t) for t in widths(isa.f32_tiles)}
    args = [*_ARGS, ("i64", "M"), ("i64", "N"), ("i64", "K"), ("i1", "first")]
    f = Function(symbol, [*args, *(_PAGES if pages else [])], linkage="internal")

    most = isa.f32_tiles[0][0] * TOGETHER
    copy = f.op(f"alloca [{most * _pitch(isa)} x float], align 64") if isa.f32_depth else ""

    def steps(k0: str, count: str, first: str) -> None:
        """The product of `count` steps from k0 on."""
        base = "0"

        def fetch(f: Function, i: str, count_rows: str) -> None:
            nonlocal base
            base = i
            at = f.gep("%a", f.add(f.mul(i, "%lda"), k0), "float")
            _fetch(f, at, "%lda", copy, _pitch(isa), count_rows, count)

        def call(f: Function, rows: int, wide: int, i: str, p: str) -> None:
            at = {"": f.mul(p, "%panel"), "n": f.mul(p, 8), "k": f.op(f"lshr i64 {k0}, 1")}[pages]
            near = [("ptr", f.gep("%pages", at))] if pages else []
            skip = f.mul(f.mul(k0, "%ldb"), b_dtype.bytes)  # from a panel's start to its step k0
            a = f.gep("%a", f.mul(i, "%lda"), "float")
            ahead: list[tuple[str, str]] = []
            if isa.f32_depth:
                a = f.gep(copy, f.mul(f.sub(i, base), _pitch(isa)), "float")
                new = f.op(f"icmp eq i64 {p}, 0")
                after = f.add(f.mul(f.add(i, rows * TOGETHER), "%lda"), k0)
                after = f.gep("%a", after, "float")
                ahead = [
                    ("ptr", f.op(f"select i1 {new}, ptr {after}, ptr {a}")),
                    ("i64", f.op(f"select i1 {new}, i64 %lda, i64 {_pitch(isa)}")),
                ]
            given = [
                ("ptr", a),
                ("i64", "%lda"),
                ("ptr", f.gep("%b", at if pages else f.add(at, skip))),
                ("i64", "%panel"),
                ("i64", "%ldb"),
                ("ptr", f.gep("%c", f.add(f.mul(i, "%ldc"), f.mul(p, 16)), "float")),
                ("i64", "%ldc"),
                ("i64", count),
                ("i64", {"": "0", "n": skip, "k": f.mul(p, "%panel")}[pages]),
                ("i1", first),
                *ahead,
                *near,
            ]
            f.call("void", tiles[rows, wide].name, given)

        cover(f, isa.f32_tiles, call, fetch if isa.f32_depth else None)

    def deep(k0: str, _: list[str]) -> None:
        count = f.min(f.sub("%K", k0), isa.f32_depth)
        steps(k0, count, f.op(f"and i1 %first, {f.op(f'icmp eq i64 {k0}, 0')}"))

    if isa.f32_depth:
        f.loop("0", f.max("%K", 1), isa.f32_depth, [], deep)
    else:
        steps("0", "%K", "%first")
    f.put("ret void")
    return finish([*tiles.values(), f])


def _pitch(isa: Isa) -> int:
    """Elements between copied rows: not a power of two, so that they lie in different cache
    sets."""
    return isa.f32_depth + 16


def _fetch(f: Function, a: str, lda: str, to: str, pitch: int, rows: str, count: str) -> None:
    """Copies `count` elements of each of some rows, `lda` and then `pitch` apart."""
    whole = f.op(f"and i64 {count}, -16")

    def row(i: str, _: list[str]) -> None:
        x, y = f.gep(a, f.mul(i, lda), "float"), f.gep(to, f.mul(i, pitch), "float")

        def move(ty: str) -> Callable[[str, list[str]], None]:
            def one(k: str, _: list[str]) -> None:
                f.store(ty, f.load(ty, f.gep(x, k, "float"), 4), f.gep(y, k, "float"), 4)

            return one

        f.loop("0", whole, 16, [], move("<16 x float>"))
        f.loop(whole, count, 1, [], move("float"))

    f.loop("0", rows, 1, [], row)


def _tile(isa: Isa, dtype: DType, symbol: str, pages: Pages, rows: int, wide: int) -> Function:
    """One register tile: rows x (wide panels), K steps. %skip: bytes from a page to the tile's
    first panel ("k") or first step ("n")."""
    lanes, parts = isa.lanes, 16 // isa.lanes
    v = f"<{lanes} x float>"
    args = [
        *_ARGS,
        ("i64", "K"),
        ("i64", "skip"),
        ("i1", "first"),
        *(_AHEAD if isa.f32_depth else []),
        *(_PAGES if pages else []),
    ]
    f = Function(f"{symbol}_{rows}x{wide}", args, linkage="internal")
    lda = str(_pitch(isa)) if isa.f32_depth else "%lda"
    a = [f.gep("%a", f.mul(lda, i), "float") for i in range(rows)]
    c = [f.gep("%c", f.mul("%ldc", i), "float") for i in range(rows)]
    columns = [(j, p) for j in range(wide) for p in range(parts)]
    at = {
        (i, j, p): f.gep(c[i], 16 * j + lanes * p, "float") for i in range(rows) for j, p in columns
    }
    start = [start_value(f, lanes, q) for q in at.values()]

    def chain(k0: str, count: str, b: list[str], near: list[str], carried: list[str]) -> list[str]:
        """`count` steps from k0 on; b points at its row of each panel, near at what is brought near
        as b is read."""

        def steps(unroll: int):
            def run(k: str, carried: list[str]) -> list[str]:
                acc = dict(zip(at, carried, strict=True))
                for u in range(unroll):
                    row = f.mul(f.mul(f.add(k, u), "%ldb"), dtype.bytes)
                    if isa.prefetch and rows > 2 and not pages:  # else no time to wait for L1
                        for q in b:
                            prefetch(f, f.gep(q, f.add(row, _NEXT)), level=1)
                    for q in near:
                        prefetch(f, f.gep(q, row))
                    bv = {
                        (j, p): _columns(
                            f, isa, dtype, f.gep(f.gep(b[j], row), lanes * p * dtype.bytes)
                        )
                        for j, p in columns
                    }
                    if isa.f32_depth and rows == isa.f32_tiles[0][0]:
                        _read_ahead(f, f.add(f.add(k0, k), u))
                    for i in range(rows):
                        x = f.gep(f.gep(a[i], f.add(k0, k), "float"), u, "float")
                        av = splat(f, lanes, "float", f.load("float", x, 4))
                        for j, p in columns:
                            acc[i, j, p] = fma(f, lanes, av, bv[j, p], acc[i, j, p])
                return list(acc.values())

            return run

        whole = f.op(f"and i64 {count}, {-isa.f32_unroll}")
        done = f.loop("0", whole, isa.f32_unroll, [(v, x) for x in carried],
                      steps(isa.f32_unroll))  # fmt: skip
        if isa.f32_unroll == 1:
            return done
        return f.loop(whole, count, 1, [(v, x) for x in done], steps(1))

    if pages == "k":

        def page(k: str, carried: list[str]) -> list[str]:
            first = f.load("ptr", f.gep("%b", f.op(f"lshr i64 {k}, 1")), 8)  # 8 bytes every 16 rows
            b = [f.gep(f.gep(first, "%skip"), f.mul("%panel", j)) for j in range(wide)]
            near: list[str] = []
            if rows <= FEW:
                after = f.load("ptr", f.gep("%pages", f.op(f"lshr i64 {k}, 1")), 8)
                lines = range(0, wide, max(64 // (16 * dtype.bytes), 1))
                near = [f.gep(f.gep(after, "%skip"), f.mul("%panel", j)) for j in lines]
            return chain(k, f.min(f.sub("%K", k), 16), b, near, carried)

        done = f.loop("0", "%K", 16, [(v, x) for x in start], page)
    else:
        near: list[str] = []
        if pages == "n":
            b = [f.gep(f.load("ptr", f.gep("%b", 8 * j), 8), "%skip") for j in range(wide)]
            if rows <= FEW:
                after = [f.load("ptr", f.gep("%pages", 8 * j), 8) for j in range(wide)]
                near = [f.gep(p, "%skip") for p in after]
        else:
            b = [f.gep("%b", f.mul("%panel", j)) for j in range(wide)]
        done = chain("0", "%K", b, near, start)
    for q, x in zip(at.values(), done, strict=True):
        f.store(v, x, q, 4)
    f.put("ret void")
    return f


def _read_ahead(f: Function, k: str) -> None:
    """Brings a line of rows that will be copied later into L2, another at each step: of 16 steps
    each takes its own row (up to two rows too many; a prefetch never faults)."""
    row = f.mul(f.op(f"and i64 {k}, 15"), "%ahead_lda")
    prefetch(f, f.gep(f.gep("%ahead", row, "float"), f.op(f"and i64 {k}, -16"), "float"))


def _columns(f: Function, isa: Isa, dtype: DType, p: str) -> str:
    """`lanes` elements of B from p, as f32."""
    lanes = isa.lanes
    if dtype.name == "f32":
        return f.load(f"<{lanes} x float>", p, 4)
    if dtype.name == "i8":
        code = f.op(f"sext <{lanes} x i8> {f.load(f'<{lanes} x i8>', p, 1)} to <{lanes} x i32>")
        return f.op(f"sitofp <{lanes} x i32> {code} to <{lanes} x float>")
    bits = f.load(f"<{lanes} x i16>", p, 2)
    if dtype.name == "f16":
        return half_to_float(f, isa.half, lanes, bits)
    wide = f.op(f"zext <{lanes} x i16> {bits} to <{lanes} x i32>")
    shifted = f.op(f"shl <{lanes} x i32> {wide}, splat (i32 16)")
    return f.op(f"bitcast <{lanes} x i32> {shifted} to <{lanes} x float>")
