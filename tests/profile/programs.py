"""Scheduled programs written by hand, as the lowering makes them: a GEMM and a vector add."""

from __future__ import annotations

from terrazzo.ir.ops import Loc
from terrazzo.ir.types import DType, f16, f32
from terrazzo.profile.listing import Listing
from terrazzo.targets.davinci.chips import Chip, chip
from terrazzo.targets.davinci.expr import Scalar, add, make, mul, var
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    CrossSet,
    CrossWait,
    For,
    Gm,
    Instr,
    Let,
    Phase,
    Program,
    SetFlag,
    Stmt,
    View,
    WaitFlag,
)

KIB = 1024
CHIP: Chip = chip("910b2")

GEMM = '''@tz.kernel
def gemm(a: tz.gm[f16, m, k], b: tz.gm[f16, k, n], c: tz.gm[f16, m, n]):
    """c = a @ b."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j, f32, space=tz.L0C)
        for p in tz.loop(k, step=K, stages=2):
            acc += tz.load(a[i, p], space=tz.L1) @ tz.load(b[p, j], space=tz.L1)
        c[i, j] = acc.to(f16)
'''
ADD = '''@tz.kernel
def add(x: tz.gm[f16, n], y: tz.gm[f16, n], out: tz.gm[f16, n], TILE: tz.const = 16384):
    """out = x + y."""
    for i in tz.grid(n, step=TILE):
        out[i] = x[i] + y[i]
'''
GEMM_LISTING = Listing("gemm.py", 10, tuple(GEMM.splitlines()))
ADD_LISTING = Listing("add.py", 30, tuple(ADD.splitlines()))


def loc(listing: Listing, line: int, word: str) -> Loc:
    """The place of `word` in the listing's `line` (counted from 1 within it)."""
    text = listing.lines[line - 1]
    at = text.index(word)
    return Loc(listing.file, listing.first + line - 1, at, at + len(word), text)


def row(memory: Buffer | Gm, count: int, offset: Scalar = 0, slot: Scalar = 0) -> View:
    return View(memory, (count,), (1,), offset, slot)


def tile(
    memory: Buffer | Gm, rows: int, columns: int, stride: int, offset: Scalar = 0, slot: Scalar = 0
) -> View:
    return View(memory, (rows, columns), (stride, 1), offset, slot)


def vector_add(
    n: int = 1 << 22,
    elements: int = 16384,
    stages: int = 2,
    cores: int = 48,
    dtype: DType = f16,
    clash: bool = True,
    shared: bool = False,
) -> Program:
    """`clash`: both sources start in the same bank group. `shared`: every core reads all of x."""
    x, y, out = (Gm(name, dtype, (n,)) for name in ("x", "y", "out"))
    size = elements * dtype.bits // 8
    at = {"x": loc(ADD_LISTING, 5, "x[i]"), "y": loc(ADD_LISTING, 5, "y[i]")}
    plus, put = loc(ADD_LISTING, 5, "x[i] + y[i]"), loc(ADD_LISTING, 5, "out[i]")
    first = [slot * size for slot in range(stages)]
    second = [stages * size + (0 if clash else 256) + slot * size for slot in range(stages)]
    third = [second[-1] + size + slot * size for slot in range(stages)]
    tx = Buffer("t0", "UB", dtype, elements, stages, tuple(first), "x[i]", at["x"])
    ty = Buffer("t1", "UB", dtype, elements, stages, tuple(second), "y[i]", at["y"])
    to = Buffer("t2", "UB", dtype, elements, stages, tuple(third), "x[i] + y[i]", plus)
    blocks, s = -(-n // elements), make("mod", var("s"), stages)
    base = mul(var("i"), elements)
    flags = [("MTE3", "V"), ("V", "MTE2")]
    body: tuple[Stmt, ...] = (
        WaitFlag("V", "MTE2", s),
        Instr("load", row(tx, elements, slot=s), (row(x, elements, 0 if shared else base),), (),
              at["x"]),
        Instr("load", row(ty, elements, slot=s), (row(y, elements, base),), (), at["y"]),
        SetFlag("MTE2", "V", s),
        WaitFlag("MTE2", "V", s),
        WaitFlag("MTE3", "V", s),
        Instr("vadd", row(to, elements, slot=s),
              (row(tx, elements, slot=s), row(ty, elements, slot=s)), (), plus),
        SetFlag("V", "MTE2", s),
        SetFlag("V", "MTE3", s),
        WaitFlag("V", "MTE3", s),
        Instr("store", row(out, elements, base), (row(to, elements, slot=s),), (), put),
        SetFlag("MTE3", "V", s),
        Let("s", add(var("s"), 1)),
    )  # fmt: skip
    before = tuple(SetFlag(a, b, e) for a, b in flags for e in range(stages))  # type: ignore[arg-type]
    after = tuple(WaitFlag(a, b, e) for a, b in flags for e in range(stages))  # type: ignore[arg-type]
    loop = For("i", var("core"), blocks, cores, body, loc(ADD_LISTING, 4, "tz.grid"))
    fn = CoreFn("vector", (Let("s", 0), *before, loop, *after), (tx, ty, to), cores)
    return Program("add", (x, y, out), (), (Phase((fn,)),), True)


def gemm(
    m: int = 1024,
    n: int = 2048,
    k: int = 2048,
    tiles: tuple[int, int, int] = (128, 256, 256),
    step: int = 64,
    stages: int = 2,
    cores: int = 24,
    stride: int | None = None,
    handed: bool = False,
) -> Program:
    """`step`: of k in L0. `stride`: elements between rows of b. `handed`: a vector function reads
    what the cube stored, tile by tile, one flag a tile."""
    tm, tn, tk = tiles
    a, b, c = Gm("a", f16, (m, k)), Gm("b", f16, (k, n)), Gm("c", f16, (m, n))
    load_a, load_b = (loc(GEMM_LISTING, 7, f"tz.load({w}") for w in ("a[i, p]", "b[p, j]"))
    plus, put = loc(GEMM_LISTING, 7, "acc +="), loc(GEMM_LISTING, 8, "c[i, j]")
    size_a, size_b = tm * tk * 2, tk * tn * 2

    def slots(first: int, size: int, count: int) -> tuple[int, ...]:
        return tuple(first + size * at for at in range(count))

    ta = Buffer("a1", "L1", f16, tm * tk, stages, slots(0, size_a, stages), "a[i, p]", load_a)
    tb = Buffer("b1", "L1", f16, tk * tn, stages, slots(size_a * stages, size_b, stages),
                "b[p, j]", load_b)  # fmt: skip
    a0 = Buffer("a0", "L0A", f16, tm * step, 2, slots(0, tm * step * 2, 2), "a[i, p]", load_a)
    b0 = Buffer("b0", "L0B", f16, step * tn, 2, slots(0, step * tn * 2, 2), "b[p, j]", load_b)
    acc = Buffer("acc", "L0C", f32, tm * tn, 1, (0,), "acc", plus)
    s, q = make("mod", var("s"), stages), make("mod", var("q"), 2)
    i, j = make("div", var("t"), -(-n // tn)), make("mod", var("t"), -(-n // tn))
    inner: tuple[Stmt, ...] = (
        WaitFlag("M", "MTE1", q),
        Instr("l1_to_l0a", tile(a0, tm, step, step, 0, q), (tile(ta, tm, step, tk, 0, s),), (),
              load_a),
        Instr("l1_to_l0b", tile(b0, step, tn, tn, 0, q), (tile(tb, step, tn, tn, 0, s),), (),
              load_b),
        SetFlag("MTE1", "M", q),
        WaitFlag("MTE1", "M", q),
        Instr("mmad", tile(acc, tm, tn, tn),
              (tile(a0, tm, step, step, 0, q), tile(b0, step, tn, tn, 0, q), var("p")), (), plus),
        SetFlag("M", "MTE1", q),
        Let("q", add(var("q"), 1)),
    )  # fmt: skip
    along: tuple[Stmt, ...] = (
        WaitFlag("MTE1", "MTE2", s),
        Instr("nd2nz", tile(ta, tm, tk, tk, 0, s),
              (tile(a, tm, tk, k, add(mul(mul(i, tm), k), var("p"))),), (), load_a),
        Instr("nd2nz", tile(tb, tk, tn, tn, 0, s),
              (tile(b, tk, tn, stride or n, add(mul(var("p"), n), mul(j, tn))),), (), load_b),
        SetFlag("MTE2", "MTE1", s),
        WaitFlag("MTE2", "MTE1", s),
        For("r", 0, tk, step, inner, load_a),
        SetFlag("MTE1", "MTE2", s),
        Let("s", add(var("s"), 1)),
    )  # fmt: skip
    body: tuple[Stmt, ...] = (
        WaitFlag("FIX", "M", 0),
        For("p", 0, k, tk, along, loc(GEMM_LISTING, 6, "tz.loop")),
        SetFlag("M", "FIX", 0),
        WaitFlag("M", "FIX", 0),
        Instr("fixpipe", tile(c, tm, tn, n, add(mul(mul(i, tm), n), mul(j, tn))),
              (tile(acc, tm, tn, tn),), (), put),
        SetFlag("FIX", "M", 0),
        *((CrossSet(0, "FIX", put),) if handed else ()),
    )  # fmt: skip
    blocks = -(-m // tm) * -(-n // tn)
    flags = [("M", "MTE1", e) for e in range(2)] + [("MTE1", "MTE2", e) for e in range(stages)]
    flags.append(("FIX", "M", 0))
    start: tuple[Stmt, ...] = tuple(SetFlag(x, y, e) for x, y, e in flags)  # type: ignore[arg-type]
    end: tuple[Stmt, ...] = tuple(WaitFlag(x, y, e) for x, y, e in flags)  # type: ignore[arg-type]
    grid = For("t", var("core"), blocks, cores, body, loc(GEMM_LISTING, 4, "tz.grid"))
    cube = CoreFn("cube", (Let("s", 0), Let("q", 0), *start, grid, *end), (ta, tb, a0, b0, acc),
                  cores)  # fmt: skip
    if not handed:
        return Program("gemm", (a, b, c), (), (Phase((cube,)),), True)
    rows = tm // 2
    u = Buffer("u", "UB", f16, rows * tn, 1, (0,), "acc.to(f16)", put)
    own = make("div", var("core"), 2)
    at = add(mul(mul(i, tm), n), mul(j, tn))
    read: tuple[Stmt, ...] = (
        CrossWait(0, "MTE2", put),
        Instr("load", tile(u, rows, tn, tn), (tile(c, rows, tn, n, at),), (), put),
        SetFlag("MTE2", "V", 0),
        WaitFlag("MTE2", "V", 0),
        Instr("vrelu", tile(u, rows, tn, tn), (tile(u, rows, tn, tn),), (), put),
        SetFlag("V", "MTE3", 0),
        WaitFlag("V", "MTE3", 0),
        Instr("store", tile(c, rows, tn, n, at), (tile(u, rows, tn, tn),), (), put),
        SetFlag("MTE3", "MTE2", 0),
        WaitFlag("MTE3", "MTE2", 0),
    )
    follow = For("t", own, blocks, cores, read, loc(GEMM_LISTING, 4, "tz.grid"))
    vector = CoreFn("vector", (follow,), (u,), 2 * cores)
    return Program("gemm", (a, b, c), (), (Phase((cube, vector)),), True)
