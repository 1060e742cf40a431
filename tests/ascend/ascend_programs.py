"""Buffer-level programs written by hand, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from terrazzo.ir.ops import Loc
from terrazzo.ir.types import DType, bf16, bool_, f16, f32, i8, i32
from terrazzo.targets.davinci.expr import Expr, Scalar, add, ceil_div, make, mul, sub, var
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    CoreKind,
    CrossSet,
    CrossWait,
    For,
    Gm,
    If,
    Instr,
    Let,
    Operand,
    Phase,
    Program,
    Space,
    Stmt,
    View,
)

C0 = {8: 32, 16: 16, 32: 8}


@dataclass
class Builder:
    """Collects statements and buffers of one core function. Each instruction gets a place: its
    number is the line, in a file called after the program."""

    name: str
    body: list[Stmt] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    line: int = 0

    def buffer(self, name: str, space: Space, dtype: DType, n: int, slots: int = 1) -> Buffer:
        b = Buffer(name, space, dtype, n, slots, (), name, self.place())
        self.buffers.append(b)
        return b

    def place(self) -> Loc:
        self.line += 1
        text = f"    line {self.line}"
        return Loc(f"{self.name}.py", self.line, 4, len(text), text)

    def op(self, op: str, out: View, *ins: Operand, **attrs: object) -> None:
        self.body.append(Instr(op, out, ins, tuple(sorted(attrs.items())), self.place()))

    def loop(self, name: str, hi: Scalar, step: int, make_body: Callable[[Scalar], None]) -> None:
        outer, self.body = self.body, []
        place = self.place()
        make_body(var(name))
        body, self.body = tuple(self.body), outer
        self.body.append(For(name, 0, hi, step, body, place))

    def fn(self, kind: CoreKind, cores: int) -> CoreFn:
        return CoreFn(kind, tuple(self.body), tuple(self.buffers), cores)


def row(b: Buffer | Gm, n: Scalar, offset: Scalar = 0) -> View:
    return View(b, (n,), (1,), offset)


def matrix(b: Buffer | Gm, r: Scalar, c: Scalar, pitch: int, offset: Scalar = 0) -> View:
    return View(b, (r, c), (pitch, 1), offset)


def nz(b: Buffer, r: Scalar, c: Scalar, rows: int) -> View:
    """A Cube tile of room for `rows` rows; L0C's blocks are 16 columns wide."""
    c0 = 16 if b.space == "L0C" else C0[b.dtype.bits]
    return View(b, (r, c), (c0, rows * c0), fractal=c0)


def at_most(n: Scalar, limit: int) -> Scalar:
    return make("min", n, limit)


def add_program(n: int, tile: int = 1024, cores: int = 4, dtype: DType = f32) -> Program:
    """z = x + y over `n` elements: tiles go round the cores, the last one is partial."""
    x, y, z = (Gm(s, dtype, (n,)) for s in "xyz")
    b = Builder("add")
    a, c, o = (b.buffer(s, "UB", dtype, tile, slots=2) for s in ("a", "c", "o"))

    def body(i: Scalar) -> None:
        start = mul(add(mul(i, cores), var("core")), tile)
        m = make("max", at_most(sub(n, start), tile), 0)
        b.op("load", row(a, m), row(x, m, start))
        b.op("load", row(c, m), row(y, m, start))
        b.op("vadd", row(o, m), row(a, m), row(c, m))
        b.op("store", row(z, m, start), row(o, m))

    b.loop("i", ceil_div(ceil_div(n, tile), cores), 1, body)
    return Program("add", (x, y, z), (), (Phase((b.fn("vector", cores),)),))


def softmax_program(rows: int, columns: int, block: int = 8, cores: int = 2) -> Program:
    """Rows of f16, computed in f32; rows padded to 32 bytes in UB; the last block is partial."""
    pitch = -(-columns // 16) * 16
    x, z = (Gm(s, f16, (rows, columns)) for s in "xz")
    b = Builder("softmax")
    h = b.buffer("h", "UB", f16, block * pitch, slots=2)
    f = b.buffer("f", "UB", f32, block * pitch)
    m, s = (b.buffer(n, "UB", f32, block) for n in "ms")

    def body(i: Scalar) -> None:
        start = mul(add(mul(i, cores), var("core")), block)
        r = make("max", at_most(sub(rows, start), block), 0)
        half, full = matrix(h, r, columns, pitch), matrix(f, r, columns, pitch)
        for_rows, over = View(m, (r, 1), (1, 1)), View(m, (r, columns), (1, 0))
        sums, under = View(s, (r, 1), (1, 1)), View(s, (r, columns), (1, 0))
        b.op("load", half, matrix(x, r, columns, columns, mul(start, columns)))
        b.op("vcast", full, half)
        b.op("vreduce", for_rows, full, kind="max", axis=1)
        b.op("vsub", full, full, over)
        b.op("vexp", full, full)
        b.op("vreduce", sums, full, kind="sum", axis=1)
        b.op("vdiv", full, full, under)
        b.op("vcast", half, full, round="rint")
        b.op("store", matrix(z, r, columns, columns, mul(start, columns)), half)

    b.loop("i", ceil_div(ceil_div(rows, block), cores), 1, body)
    return Program("softmax", (x, z), (), (Phase((b.fn("vector", cores),)),))


def matmul_program(
    m: int, n: int, k: int, dtype: DType = f16, out: DType | None = None, turned: bool = False,
    bm: int = 64, bn: int = 64, bk: int = 64, cores: int = 2,
) -> Program:  # fmt: skip
    """c = a · b in blocks, K in pieces through double buffers in L1. turned: b is [n, k]."""
    wide = i32 if dtype == i8 else f32
    out = out or (dtype if dtype in (f16, bf16) else wide)
    a, b_ = Gm("a", dtype, (m, k)), Gm("b", dtype, (n, k) if turned else (k, n))
    c = Gm("c", out, (m, n))
    b = Builder("matmul")
    left = b.buffer("left", "L1", dtype, bm * bk, slots=2)
    right = b.buffer("right", "L1", dtype, bk * bn, slots=2)
    acc = b.buffer("acc", "L0C", wide, bm * bn)
    columns = -(-n // bn)

    def block(t: Scalar) -> None:
        number = add(mul(t, cores), var("core"))
        m0 = mul(make("div", number, columns), bm)
        n0 = mul(make("mod", number, columns), bn)
        mm = make("max", at_most(sub(m, m0), bm), 0)
        nn = at_most(sub(n, n0), bn)

        def step(k0: Scalar) -> None:
            kk = at_most(sub(k, k0), bk)
            b.op("nd2nz", nz(left, mm, kk, bm), matrix(a, mm, kk, k, add(mul(m0, k), k0)))
            if turned:
                source = matrix(b_, nn, kk, k, add(mul(n0, k), k0))
                b.op("nd2nz", nz(right, nn, kk, bn), source)
            else:
                source = matrix(b_, kk, nn, n, add(mul(k0, n), n0))
                b.op("nd2nz", nz(right, kk, nn, bk), source)
            views = (nz(left, mm, kk, bm), nz(right, *((nn, kk, bn) if turned else (kk, nn, bk))))
            attrs = {"transpose_b": 1} if turned else {}
            b.op("mmad_l1", nz(acc, mm, nn, bm), *views, make("eq", k0, 0), **attrs)

        b.loop("k", k, bk, step)
        b.op("fixpipe", matrix(c, mm, nn, n, add(mul(m0, n), n0)), nz(acc, mm, nn, bm))

    blocks = -(-m // bm) * columns
    b.loop("t", ceil_div(blocks, cores), 1, block)
    return Program("matmul", (a, b_, c), (), (Phase((b.fn("cube", cores),)),))


def gelu_program(m: int, n: int, k: int, bm: int = 64, bk: int = 64, cores: int = 2) -> Program:
    """Mixed: the cube core writes a block of a · b to a workspace, its two vector cores take half
    of the rows each: plus bias, gelu (by a sigmoid), f16. One column block, K in one buffer."""
    assert m % (bm * cores) == 0 and bm % 2 == 0 and n % 16 == 0
    a, w, bias = Gm("a", f16, (m, k)), Gm("w", f16, (k, n)), Gm("bias", f32, (n,))
    c, ws = Gm("c", f16, (m, n)), Gm("ws", f32, (cores, bm, n), workspace=True)
    trips = m // (bm * cores)
    q = Builder("gelu_cube")
    left = q.buffer("left", "L1", f16, bm * bk, slots=2)
    right = q.buffer("right", "L1", f16, bk * n, slots=2)
    acc = q.buffer("acc", "L0C", f32, bm * n)

    def multiply(t: Scalar) -> None:
        m0 = mul(add(mul(t, cores), var("core")), bm)

        def step(k0: Scalar) -> None:
            kk = at_most(sub(k, k0), bk)
            q.op("nd2nz", nz(left, bm, kk, bm), matrix(a, bm, kk, k, add(mul(m0, k), k0)))
            q.op("nd2nz", nz(right, kk, n, bk), matrix(w, kk, n, n, mul(k0, n)))
            q.op("mmad_l1", nz(acc, bm, n, bm), nz(left, bm, kk, bm), nz(right, kk, n, bk),
                 make("eq", k0, 0))  # fmt: skip

        q.loop("k", k, bk, step)
        q.op("fixpipe", matrix(ws, bm, n, n, mul(var("core"), bm * n)), nz(acc, bm, n, bm))
        q.body.append(CrossSet(0, "FIX", q.place()))
        q.body.append(CrossWait(1, "FIX", q.place()))  # the workspace is free again

    q.loop("t", trips, 1, multiply)
    v = Builder("gelu_vector")
    half = bm // 2
    x, t2 = (v.buffer(s, "UB", f32, half * n) for s in ("x", "t"))
    row_bias = v.buffer("row", "UB", f32, n)
    h = v.buffer("h", "UB", f16, half * n)
    v.op("load", row(row_bias, n), row(bias, n))

    def activate(t: Scalar) -> None:
        cube = make("div", var("core"), 2)
        first = mul(var("half"), half)
        r0 = add(mul(add(mul(t, cores), cube), bm), first)
        xs, ts = matrix(x, half, n, n), matrix(t2, half, n, n)
        v.body.append(CrossWait(0, "MTE2", v.place()))
        v.op("load", xs, matrix(ws, half, n, n, mul(add(mul(cube, bm), first), n)))
        v.body.append(CrossSet(1, "MTE2", v.place()))
        v.op("vadd", xs, xs, View(row_bias, (half, n), (0, 1)))
        v.op("vmul", ts, xs, -1.702)
        v.op("vexp", ts, ts)
        v.op("vadd", ts, ts, 1.0)
        v.op("vdiv", ts, xs, ts)
        v.op("vcast", matrix(h, half, n, n), ts, round="rint")
        v.op("store", matrix(c, half, n, n, mul(r0, n)), matrix(h, half, n, n))

    v.loop("t", trips, 1, activate)
    functions = (q.fn("cube", cores), v.fn("vector", 2 * cores))
    return Program("gelu", (a, w, bias, c, ws), (), (Phase(functions),))


def ring_program(n: int, tile: int = 64) -> Program:
    """Values that later trips look for: z of a tile is what its neighbour before it held, plus a
    running sum of one element, which is kept in a condition's reach."""
    x, z, total = Gm("x", f32, (n,)), Gm("z", f32, (n,)), Gm("total", f32, (1,))
    b = Builder("ring")
    held = b.buffer("held", "UB", f32, tile, slots=2)
    out = b.buffer("out", "UB", f32, tile, slots=2)
    part, run = b.buffer("part", "UB", f32, 8), b.buffer("run", "UB", f32, 8)
    b.op("vbrc", row(run, 1), 0.0)

    def body(i: Scalar) -> None:
        b.op("load", View(held, (tile,), (1,), 0, i), row(x, tile, mul(i, tile)))
        outer, b.body = b.body, []
        b.op("vadd", row(out, tile), View(held, (tile,), (1,), 0, sub(i, 1)), 1.0)
        b.op("store", row(z, tile, mul(i, tile)), row(out, tile))
        b.op("vreduce", row(part, 1), row(out, tile), kind="sum", axis=0)
        b.op("vadd", row(run, 1), row(run, 1), row(part, 1))
        outer.append(If(make("lt", 0, i), tuple(b.body), b.place()))
        b.body = outer

    b.loop("i", n // tile, 1, body)
    b.op("store", row(total, 1), row(run, 1))
    return Program("ring", (x, z, total), (), (Phase((b.fn("vector", 1),)),))


def zoo_program(n: int = 300, block: int = 4, columns: int = 40) -> Program:
    """Everything else: masks, casts, shifts, index tensors, scalars, counters, conditions, three
    slots. Blocks of rows that an index tensor chooses; see `zoo`."""
    pitch = 48
    x, z = (Gm(s, f32, (n, columns)) for s in "xz")
    w, q = Gm("w", i32, (n, columns)), Gm("q", f16, (n, columns))
    table = Gm("table", i32, (n // block,))
    b = Builder("zoo")
    size = block * pitch
    f, g, ramp = (b.buffer(s, "UB", f32, size, slots=3 if s == "f" else 1) for s in ("f", "g", "r"))
    words, part = b.buffer("words", "UB", i32, size), b.buffer("part", "UB", i32, size)
    mask, other = (b.buffer(s, "UB", bool_, size) for s in ("mask", "other"))
    h, line = b.buffer("h", "UB", f16, size), b.buffer("line", "UB", f32, pitch)
    col, level = b.buffer("col", "UB", f32, block), b.buffer("level", "UB", f32, size)
    seven = b.buffer("seven", "UB", i32, 8)
    tiles = (f, g, ramp, words, part, mask, other, h, level)
    fs, gs, rs, ws, ps, ms, os, hs, ls = [matrix(v, block, columns, pitch) for v in tiles]
    b.body.append(Let("count", 0, b.place()))
    b.op("varange", rs, 0)
    b.op("vbrc", View(line, (1, columns), (pitch, 1)), 0.5)
    b.op("vbrc", ls, View(line, (block, columns), (0, 1)))
    b.op("vbrc", row(seven, 8), 7)

    def body(i: Scalar) -> None:
        start = mul(Expr("load", ("table", i)), block * columns)
        b.op("load", fs, matrix(x, block, columns, columns, start))
        b.op("load", ws, matrix(w, block, columns, columns, start))
        b.op("vcmp", ms, fs, rs, mode="lt")
        b.op("vcmp", os, fs, ls, mode="gt")
        b.op("vand", ms, ms, os)
        b.op("vsel", gs, ms, fs, Expr("arg", ("low",)))
        b.op("vshr", ps, ws, 28)
        b.op("vand", ps, ps, View(seven, (block, columns), (0, 0)))
        b.op("vcast", fs, ps)
        b.op("vadd", gs, gs, fs)
        b.op("vreduce", View(col, (block, 1), (1, 1)), gs, kind="max", axis=1)
        b.op("vmul", gs, View(col, (block, columns), (1, 0)), gs)
        b.op("vadd", gs, var("count"), gs)
        b.op("store", matrix(z, block, columns, columns, start), gs)
        b.op("vcast", hs, gs, round="rint")
        inside, b.body = b.body, []
        b.op("store", matrix(q, block, columns, columns, start), hs)
        inside.append(If(make("ne", make("mod", i, 3), 1), tuple(b.body), b.place()))
        b.body = inside
        b.body.append(Let("count", add(var("count"), 1), b.place()))

    b.loop("i", n // block, 1, body)
    gm = (x, w, table, z, q)
    return Program("zoo", gm, (("low", f32),), (Phase((b.fn("vector", 1),)),))


def zoo(x: np.ndarray, w: np.ndarray, table: np.ndarray, low: float, block: int = 4) -> np.ndarray:
    """z; q is the same in f16, but for every third block from the second."""
    z = np.zeros_like(x)
    for i, t in enumerate(table):
        rows = slice(t * block, (t + 1) * block)
        f = x[rows]
        g = np.where((f < np.arange(x.shape[1])) & (f > 0.5), f, np.float32(low))
        g = g + (w[rows].view(np.uint32) >> 28 & 7).astype(np.float32)
        z[rows] = g.max(1, keepdims=True) * g + np.float32(i)
    return z


def gelu(a: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    x = a.astype(np.float32) @ w.astype(np.float32) + bias
    return x / (1 + np.exp(-1.702 * x))
