"""Right scheduled programs, written by hand: each with arguments and what it must give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from core_builder import Builder, column, flat, grid, nz

from terrazzo.ir.types import DType, bool_, f16, f32, i32
from terrazzo.targets.davinci.expr import add, make, mul, sub, var
from terrazzo.targets.davinci.program import Gm, Phase, Program, View


@dataclass(frozen=True)
class Example:
    program: Program
    args: dict[str, Any]
    want: dict[str, Any]


def _random(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def sum_example(n: int = 3684, tile: int = 512, cores: int = 3) -> Example:
    """z = x + y: two slots a tile, events by slot; the last tile is partial."""
    x, y, z = (Gm(s, f32, (n,)) for s in "xyz")
    b = Builder("vector")
    size = 4 * tile
    a, c, o = (b.buffer(s, "UB", f32, tile, 2 * i * size, (2 * i + 1) * size)
               for i, s in enumerate(("a", "c", "o")))  # fmt: skip
    for e in (0, 1):
        b.set("free in at first", "V", "MTE2", e)
        b.set("free out at first", "MTE3", "V", e)
    b.let("trip", 0)
    with b.loop("block", var("core"), -(-n // tile), cores) as block:
        slot = make("mod", var("trip"), 2)
        at = mul(block, tile)
        m = make("min", tile, sub(n, at))
        b.wait("wait free in", "V", "MTE2", slot)
        b.op("load x", "load", flat(a, m, 0, slot), flat(x, m, at))
        b.op("load y", "load", flat(c, m, 0, slot), flat(y, m, at))
        b.set("set loaded", "MTE2", "V", slot)
        b.wait("wait loaded", "MTE2", "V", slot)
        b.wait("wait free out", "MTE3", "V", slot)
        b.op("add", "vadd", flat(o, m, 0, slot), flat(a, m, 0, slot), flat(c, m, 0, slot))
        b.set("set free in", "V", "MTE2", slot)
        b.set("set added", "V", "MTE3", slot)
        b.wait("wait added", "V", "MTE3", slot)
        b.op("store z", "store", flat(z, m, at), flat(o, m, 0, slot))
        b.set("set free out", "MTE3", "V", slot)
        b.let("trip", add(var("trip"), 1))
    for e in (0, 1):
        b.wait("drain in", "V", "MTE2", e)
        b.wait("drain out", "MTE3", "V", e)
    program = Program("sum", (x, y, z), (), (Phase((b.function(cores),)),), True)
    args = {"x": _random(n), "y": _random(n)[::-1].copy(), "z": np.zeros(n, np.float32)}
    return Example(program, args, {"z": args["x"] + args["y"]})


def softmax_example(rows: int = 11, columns: int = 100, keep: int = 90) -> Example:
    """Softmax of the first `keep` of each row, f16 in and out, f32 in between; four rows a
    block."""
    x, z = (Gm(s, f16, (rows, columns)) for s in "xz")
    b = Builder("vector")
    half, full, cores = -(-columns // 16) * 16, -(-columns // 8) * 8, 2
    h = b.buffer("h", "UB", f16, 4 * half, 0)
    f = b.buffer("f", "UB", f32, 4 * full, 2048)
    index = b.buffer("index", "UB", i32, full, 8192)
    place = b.buffer("place", "UB", f32, full, 9216)
    mask = b.buffer("mask", "UB", bool_, full, 12288)
    s = b.buffer("s", "UB", f32, 8, 16384)
    b.op("index", "varange", flat(index, columns), 0)
    b.op("place", "vcast", flat(place, columns), flat(index, columns), round="rint")
    b.op("mask", "vcmp", flat(mask, columns), flat(place, columns), keep, mode="lt")
    b.set("free at first", "MTE3", "MTE2")
    with b.loop("block", var("core"), -(-rows // 4), cores) as block:
        at = mul(block, 4 * columns)
        r = make("min", 4, sub(rows, mul(block, 4)))
        F, H = grid(f, r, columns, full), grid(h, r, columns, half)
        wide = View(s, (r, columns), (1, 0))
        b.wait("wait free", "MTE3", "MTE2")
        b.op("load", "load", H, grid(x, r, columns, columns, at))
        b.set("set loaded", "MTE2", "V")
        b.wait("wait loaded", "MTE2", "V")
        b.op("widen", "vcast", F, H, round="rint")
        b.op("hide", "vsel", F, View(mask, (1, columns), (0, 1)), F, -1e30)
        b.op("greatest", "vreduce", column(s, r), F, kind="max", axis=1)
        b.op("less", "vsub", F, F, wide)
        b.op("exp", "vexp", F, F)
        b.op("total", "vreduce", column(s, r), F, kind="sum", axis=1)
        b.op("divide", "vdiv", F, F, wide)
        b.op("round", "vcast", H, F, round="rint")
        b.set("set done", "V", "MTE3")
        b.wait("wait done", "V", "MTE3")
        b.op("store", "store", grid(z, r, columns, columns, at), H)
        b.set("set free", "MTE3", "MTE2")
    b.wait("drain", "MTE3", "MTE2")
    program = Program("softmax", (x, z), (), (Phase((b.function(cores),)),), True)
    args = {"x": _random(rows, columns, dtype=np.float16),
            "z": np.zeros((rows, columns), np.float16)}  # fmt: skip
    shown = args["x"].astype(np.float64)
    shown[:, keep:] = -np.inf
    e = np.exp(shown - shown.max(1, keepdims=True))
    return Example(program, args, {"z": e / e.sum(1, keepdims=True)})


def product_example(m: int = 70, n: int = 48, k: int = 80) -> Example:
    """c = a · b: 32 rows a block, k in pieces of 32; two slots in L1 and L0."""
    a, b, c = Gm("a", f16, (m, k)), Gm("b", f16, (k, n)), Gm("c", f32, (m, n))
    f = Builder("cube")
    cores = 2
    l1a = f.buffer("l1a", "L1", f16, 32 * 32, 0, 2048)
    l1b = f.buffer("l1b", "L1", f16, 32 * n, 4096, 4096 + 64 * n)
    l0a = f.buffer("l0a", "L0A", f16, 32 * 32, 0, 2048)
    l0b = f.buffer("l0b", "L0B", f16, 32 * n, 0, 64 * n)
    l0c = f.buffer("l0c", "L0C", f32, 32 * n, 0)
    for e in (0, 1):
        f.set("free l1 at first", "MTE1", "MTE2", e)
        f.set("free l0 at first", "M", "MTE1", e)
    f.set("free c at first", "FIX", "M")
    f.let("trip", 0)
    with f.loop("block", var("core"), -(-m // 32), cores) as block:
        r = make("min", 32, sub(m, mul(block, 32)))
        f.wait("wait free c", "FIX", "M")
        with f.loop("inner", 0, k, 32) as inner:
            slot = make("mod", var("trip"), 2)
            p = make("min", 32, sub(k, inner))
            f.wait("wait free l1", "MTE1", "MTE2", slot)
            f.op("load a", "nd2nz", nz(l1a, r, p, 32, slot),
                 grid(a, r, p, k, add(mul(block, 32 * k), inner)))  # fmt: skip
            f.op("load b", "nd2nz", nz(l1b, p, n, 32, slot), grid(b, p, n, n, mul(inner, n)))
            f.set("set in l1", "MTE2", "MTE1", slot)
            f.wait("wait in l1", "MTE2", "MTE1", slot)
            f.wait("wait free l0", "M", "MTE1", slot)
            f.op("to l0a", "l1_to_l0a", nz(l0a, r, p, 32, slot), nz(l1a, r, p, 32, slot))
            f.op("to l0b", "l1_to_l0b", nz(l0b, p, n, 32, slot), nz(l1b, p, n, 32, slot))
            f.set("set free l1", "MTE1", "MTE2", slot)
            f.set("set in l0", "MTE1", "M", slot)
            f.wait("wait in l0", "MTE1", "M", slot)
            f.op("multiply", "mmad", nz(l0c, r, n, 32), nz(l0a, r, p, 32, slot),
                 nz(l0b, p, n, 32, slot), make("eq", inner, 0))  # fmt: skip
            f.set("set free l0", "M", "MTE1", slot)
            f.let("trip", add(var("trip"), 1))
        f.set("set summed", "M", "FIX")
        f.wait("wait summed", "M", "FIX")
        f.op("out", "fixpipe", grid(c, r, n, n, mul(block, 32 * n)), nz(l0c, r, n, 32))
        f.set("set free c", "FIX", "M")
    for e in (0, 1):
        f.wait("drain l1", "MTE1", "MTE2", e)
        f.wait("drain l0", "M", "MTE1", e)
    f.wait("drain c", "FIX", "M")
    program = Program("product", (a, b, c), (), (Phase((f.function(cores),)),), True)
    args = {"a": _random(m, k, dtype=np.float16), "b": _random(k, n, dtype=np.float16),
            "c": np.zeros((m, n), np.float32)}  # fmt: skip
    return Example(program, args, {"c": args["a"].astype(np.float64) @ args["b"].astype(float)})


def mixed_example(m: int = 150, n: int = 48, k: int = 64) -> Example:
    """c = a · b + 1: a cube core makes 32 rows, its two vector cores add to 16 each."""
    cores = 2
    a, b, c = Gm("a", f16, (m, k)), Gm("b", f16, (k, n)), Gm("c", f32, (m, n))
    ws = Gm("ws", f32, (cores, 32, n), True)
    blocks = -(-m // 32)
    f = Builder("cube")
    l1a, l1b = f.buffer("l1a", "L1", f16, 32 * k, 0), f.buffer("l1b", "L1", f16, k * n, 65536)
    l0a, l0b = f.buffer("l0a", "L0A", f16, 32 * k, 0), f.buffer("l0b", "L0B", f16, k * n, 0)
    l0c = f.buffer("l0c", "L0C", f32, 32 * n, 0)
    with f.loop("block", var("core"), blocks, cores) as block:
        r = make("min", 32, sub(m, mul(block, 32)))
        f.op("load a", "nd2nz", nz(l1a, r, k, 32), grid(a, r, k, k, mul(block, 32 * k)))
        f.op("load b", "nd2nz", nz(l1b, k, n, k), grid(b, k, n, n))
        f.barrier("loaded")
        f.op("to l0a", "l1_to_l0a", nz(l0a, r, k, 32), nz(l1a, r, k, 32))
        f.op("to l0b", "l1_to_l0b", nz(l0b, k, n, k), nz(l1b, k, n, k))
        f.barrier("moved")
        f.op("multiply", "mmad", nz(l0c, r, n, 32), nz(l0a, r, k, 32), nz(l0b, k, n, k), 1)
        f.barrier("multiplied")
        f.cross_wait("wait taken", 1, "FIX")
        f.op("out", "fixpipe", grid(ws, r, n, n, mul(var("core"), 32 * n)), nz(l0c, r, n, 32))
        f.cross_set("set ready", 0, "FIX")
        f.barrier("next")
    f.cross_wait("drain taken", 1, "FIX")
    v = Builder("vector")
    t = v.buffer("t", "UB", f32, 16 * n, 0)
    group = make("div", var("core"), 2)
    v.cross_set("taken at first", 1, "MTE2")
    with v.loop("block", group, blocks, cores) as block:
        first = make("min", mul(16, var("half")), sub(m, mul(block, 32)))
        r = make("max", 0, make("min", 16, sub(sub(m, mul(block, 32)), first)))
        v.cross_wait("wait ready", 0, "MTE2")
        v.op(
            "take", "load", grid(t, r, n, n), grid(ws, r, n, n, mul(add(mul(group, 32), first), n))
        )
        v.cross_set("set taken", 1, "MTE2")
        v.set("set taken in", "MTE2", "V")
        v.wait("wait taken in", "MTE2", "V")
        v.op("plus", "vadd", grid(t, r, n, n), grid(t, r, n, n), 1.0)
        v.set("set plus", "V", "MTE3")
        v.wait("wait plus", "V", "MTE3")
        v.op("store", "store", grid(c, r, n, n, mul(add(mul(block, 32), first), n)),
             grid(t, r, n, n))  # fmt: skip
        v.set("set stored", "MTE3", "MTE2")
        v.wait("wait stored", "MTE3", "MTE2")
    phase = Phase((f.function(cores), v.function(2 * cores)), 2)
    program = Program("mixed", (a, b, c, ws), (), (phase,), True)
    args = {"a": _random(m, k, dtype=np.float16), "b": _random(k, n, dtype=np.float16),
            "c": np.zeros((m, n), np.float32)}  # fmt: skip
    want = args["a"].astype(np.float64) @ args["b"].astype(float) + 1
    return Example(program, args, {"c": want})


def phases_example(tile: int = 256, cores: int = 4) -> Example:
    """y = 2x through a workspace, of which each core reads what another has written; barriers."""
    n = tile * cores
    x, y, w = Gm("x", f32, (n,)), Gm("y", f32, (n,)), Gm("w", f32, (n,), True)
    phases = []
    for number, (source, target) in enumerate(((x, w), (w, y))):
        b = Builder("vector")
        t = b.buffer(f"t{number}", "UB", f32, tile, 0)
        at = mul(var("core") if number == 0 else sub(cores - 1, var("core")), tile)
        b.op(f"load {number}", "load", flat(t, tile), flat(source, tile, at))
        b.barrier(f"loaded {number}")
        b.op(f"scale {number}", "vmul", flat(t, tile), flat(t, tile), 2.0 - number)
        b.barrier(f"scaled {number}")
        b.op(f"store {number}", "store", flat(target, tile, at), flat(t, tile))
        phases.append(Phase((b.function(cores),)))
    program = Program("phases", (x, y, w), (), tuple(phases), True)
    args = {"x": _random(n), "y": np.zeros(n, np.float32)}
    return Example(program, args, {"y": 2 * args["x"]})


def totals_example(dtype: DType = f32, rows: int = 6, n: int = 128) -> Example:
    """The sum of all elements of each `n` columns, over the rows too: added up row by row first."""
    x, z = Gm("x", dtype, (rows, n)), Gm("z", dtype, (1,))
    b = Builder("vector")
    t, acc = b.buffer("t", "UB", dtype, n, 0), b.buffer("acc", "UB", dtype, n, 1024)
    total = b.buffer("total", "UB", dtype, 16, 2048)
    b.op("zero", "vbrc", flat(acc, n), 0.0)
    with b.loop("row", 0, rows) as row:
        b.op("load", "load", flat(t, n), flat(x, n, mul(row, n)))
        b.barrier("loaded")
        b.op("accumulate", "vadd", flat(acc, n), flat(acc, n), flat(t, n))
        b.barrier("added")
    b.op("total", "vreduce", flat(total, 1), flat(acc, n), kind="sum", axis=0)
    b.barrier("summed")
    b.op("store", "store", flat(z, 1), flat(total, 1))
    program = Program("totals", (x, z), (), (Phase((b.function(1),)),), True)
    args = {"x": _random(rows, n, dtype=dtype.numpy), "z": np.zeros(1, dtype.numpy)}
    return Example(program, args, {"z": args["x"].astype(np.float64).sum(keepdims=True).reshape(1)})


EXAMPLES = {
    "sum": sum_example, "softmax": softmax_example, "product": product_example,
    "mixed": mixed_example, "phases": phases_example,
    "totals": totals_example,
}  # fmt: skip
