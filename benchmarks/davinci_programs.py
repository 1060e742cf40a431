"""Scheduled programs of the published measurements, each built from a row's params.

The schedules are those that the samples describe; where they are silent, the choice is said. Every
builder takes (params, cores) and returns a program; new sizes, tiles, stages, core counts and
placements need no new code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from terrazzo.ir.types import DTYPES, DType, f16, f32, i8, i32
from terrazzo.targets.davinci.build import Body, flat, program, rows, tail
from terrazzo.targets.davinci.expr import Expr, Scalar, add, make, mul
from terrazzo.targets.davinci.program import CoreFn, Gm, Phase, Program, View

Params = Mapping[str, Any]
KIB = 1024


def mod(a: Scalar, b: int) -> Scalar:
    return make("mod", a, b)


def div(a: Scalar, b: int) -> Scalar:
    return make("div", a, b)


def add_kernel(p: Params, cores: int) -> Program:
    """z = x + y in flat tiles; `buffers` slots each for inputs and results."""
    dtype = DTYPES[p.get("dtype", "f16")]
    total = p["rows"] * p["cols"]
    tile = p["tile_bytes"] * 8 // dtype.bits
    slots, l2 = p["buffers"], p.get("l2", "normal")
    x, y = (Gm(name, dtype, (total,), l2=l2) for name in "xy")
    z = Gm("z", dtype, (total,))
    b = Body()
    size = p["tile_bytes"]
    # Without conflicts the two sources lie half a row of bank groups apart.
    apart = 256 if p.get("bank_conflict") == "none" else 0
    at_x = [i * size for i in range(slots)]
    at_y = [64 * KIB + apart + i * size for i in range(slots)]
    at_z = [128 * KIB + i * size for i in range(slots)]
    ub = [b.buffer("UB", dtype, tile, *at) for at in (at_x, at_y, at_z)]
    tiles = ceil(total / tile)
    for slot in range(slots):
        b.set("V", "MTE2", slot)
        b.set("MTE3", "V", slot)
    # A core's tiles lie together.
    share = ceil(tiles / cores)
    first = mul(Expr("var", ("core",)), share)
    with b.loop(0, make("max", make("min", share, make("sub", tiles, first)), 0)) as i:
        slot = mod(i, slots)
        t = add(first, i)
        n = tail(tile, total, t)
        at = mul(t, tile)
        b.wait("V", "MTE2", slot)
        b.do("load", flat(ub[0], n, 0, slot), flat(x, n, at))
        b.do("load", flat(ub[1], n, 0, slot), flat(y, n, at))
        b.after("MTE2", "V", slot)
        b.wait("MTE3", "V", slot)
        b.do("vadd", flat(ub[2], n, 0, slot), flat(ub[0], n, 0, slot), flat(ub[1], n, 0, slot))
        b.set("V", "MTE2", slot)
        b.after("V", "MTE3", slot)
        b.do("store", flat(z, n, at), flat(ub[2], n, 0, slot))
        b.set("MTE3", "V", slot)
    for slot in range(slots):
        b.wait("V", "MTE2", slot)
        b.wait("MTE3", "V", slot)
    return program("add", (x, y, z), Phase((b.function("vector", cores),)))


def add_in_ub(p: Params, cores: int) -> Program:
    """Adds on data in UB, one after the other is done."""
    dtype = DTYPES[p.get("dtype", "f32")]
    n, size = p["elements"], p["elements"] * DTYPES[p.get("dtype", "f32")].bytes
    conflict = p["bank_conflict"]
    at_x, at_y, at_z = 0, size, 64 * KIB
    if conflict.startswith("none"):
        at_y += 256
    if "destination starts where a source starts" in conflict:
        at_z = at_x
    if conflict.startswith("read-write"):
        at_y, at_z = size + 256, 128 + size
    b = Body()
    x, y, z = (b.buffer("UB", dtype, n, at) for at in (at_x, at_y, at_z))
    with b.loop(0, p["repeats"]):
        b.do("vadd", flat(z, n), flat(x, n), flat(y, n))
        b.barrier("V")
    return program("add_in_ub", (), Phase((b.function("vector", cores),)))


def copy(p: Params, cores: int, nz: bool) -> Program:
    """GM -> UB or L1, tile by tile; nothing uses the data. `reads` passes: over the whole tensor,
    or over slices of it that the text in `l2` gives in MB, each read so often in a row."""
    dtype = DTYPES[p.get("dtype", "f16")]
    height, width = p["rows"], p["cols"]
    h, w = p.get("tile", [64, 1024])
    gm = Gm("x", dtype, (height, width))
    passes: list[tuple[int, int]] = [(0, height)] * p.get("reads", 1)
    megabytes = re.search(r"slices of (\d+) MB", p.get("l2", ""))
    if megabytes:
        slices = max(1, round(height * width * dtype.bits / 8e6 / int(megabytes[1])))
        edges = [i * height // slices for i in range(slices + 1)]
        passes = [(edges[i], edges[i + 1]) for i in range(slices) for _ in range(p["reads"])]
    same = "same address" in p.get("pattern", "")
    phases = []
    for lo, hi in passes:
        b = Body()
        size = h * w * dtype.bytes
        room = 512 if nz else 184
        slots = max(1, min(2, room * KIB // size))
        to = b.buffer("L1" if nz else "UB", dtype, h * w, *(i * size for i in range(slots)))
        blocks = ceil((hi - lo) / h)
        across = ceil(width / w)
        total = blocks * across
        core: Scalar = Expr("var", ("core",))
        share = ceil(total / cores)
        first = 0 if same else mul(core, share)
        with b.loop(first, make("min", add(first, share), total)) as t:
            row, col = add(lo, mul(div(t, across), h)), mul(mod(t, across), w)
            sizes = (
                h if (hi - lo) % h == 0 else make("min", h, make("sub", hi, row)),
                w if width % w == 0 else make("min", w, make("sub", width, col)),
            )
            at = add(mul(row, width), col)
            target = rows(to, sizes, w, 0, t)
            b.do("nd2nz" if nz else "load", target, rows(gm, sizes, width, at))
        phases.append(Phase((b.function("cube" if nz else "vector", cores),)))
    return program("copy", (gm,), *phases)


def partition(m_tiles: int, n_tiles: int, cores: int) -> tuple[int, int]:
    """Cores along m and n: the most square of those that spread the tiles best."""
    options = [(c, cores // c) for c in range(1, cores + 1) if cores % c == 0]
    return min(
        options,
        key=lambda o: (ceil(m_tiles / o[0]) * ceil(n_tiles / o[1]), abs(o[0] - o[1]), o),
    )


def gemm(p: Params, cores: int) -> Program:
    """c[m, n] = a[m, k] · b through L1 (two slots each for a and b, `step` base tiles of k deep) and
    L0 (two slots). Tiles of c go round over the cores, row by row."""
    m, n, k = p["m"], p["n"], p["k"]
    ta, tb, tc = (DTYPES[p[x]] for x in "abc")
    if "base" in p:
        bm, bn, bk = p["base"]
        deep_a = p.get("step_ka", p.get("step_k", 4)) * bk
        deep_b = p.get("step_kb", p.get("step_k", 4)) * bk
    else:
        bm, bn, deep_a = p["l1_tile"]
        deep_b = deep_a
        bk = min(deep_a, 32 * KIB * 8 // (max(bm, bn) * ta.bits) // 16 * 16)
    layout = "column" if p.get("b_transposed") else p.get("b_layout", "row")
    a, c = Gm("a", ta, (m, k)), Gm("c", tc, (m, n))
    gb = Gm("b", tb, (n, k) if layout == "column" else (k, n))
    b = Body()
    acc = f32 if ta.kind == "float" else i32
    mp = min(bm, -(-m // 16) * 16)  # rows of the tile that hold data
    size_a, size_b = mp * deep_a * ta.bytes, deep_b * bn * tb.bytes
    l1a = b.buffer("L1", ta, mp * deep_a, 0, size_a)
    l1b = b.buffer("L1", tb, deep_b * bn, 2 * size_a, 2 * size_a + size_b)
    l0a = b.buffer("L0A", ta, mp * bk, 0, 32 * KIB)
    l0b = b.buffer("L0B", tb, bk * bn, 0, 32 * KIB)
    half = mp * bn * 4 <= 64 * KIB
    l0c = b.buffer("L0C", acc, mp * bn, *((0, 64 * KIB) if half else (0,)))
    slots_c = 2 if half else 1
    tiles_n = ceil(n / bn)
    total = ceil(m / bm) * tiles_n
    for slot in range(2):
        b.set("M", "MTE1", slot)
        b.set("MTE1", "MTE2", slot)
        b.set("MTE1", "MTE2", 2 + slot)
    for slot in range(slots_c):
        b.set("FIX", "M", slot)
    count, load_a, load_b = b.let("tiles", 0), b.let("na", 0), b.let("nb", 0)
    step = b.let("step", 0)
    with b.loop(Expr("var", ("core",)), total, cores) as t:
        i, j = div(t, tiles_n), mod(t, tiles_n)
        height, width = tail(bm, m, i), tail(bn, n, j)
        slot_c = mod(count, slots_c)
        b.wait("FIX", "M", slot_c)
        outer, inner = max(deep_a, deep_b), min(deep_a, deep_b)
        with b.loop(0, ceil(k / outer)) as o:
            k_outer = tail(outer, k, o)
            _load(b, a, l1a, "a", (height, k_outer), (mul(i, bm), mul(o, outer)), load_a, mp, layout) \
                if deep_a == outer else None
            if deep_b == outer:
                _load(b, gb, l1b, "b", (k_outer, width), (mul(o, outer), mul(j, bn)), load_b, bn, layout)
            with b.loop(0, make("div", add(k_outer, inner - 1), inner)) as q:
                k_inner = make("min", inner, make("sub", k_outer, mul(q, inner)))
                at = add(mul(o, outer), mul(q, inner))
                if deep_a < outer:
                    _load(b, a, l1a, "a", (height, k_inner), (mul(i, bm), at), load_a, mp, layout)
                if deep_b < outer:
                    _load(b, gb, l1b, "b", (k_inner, width), (at, mul(j, bn)), load_b, bn, layout)
                with b.loop(0, make("div", add(k_inner, bk - 1), bk)) as r:
                    depth = make("min", bk, make("sub", k_inner, mul(r, bk)))
                    slot = mod(step, 2)
                    b.wait("M", "MTE1", slot)
                    b.do("l1_to_l0a", nz(l0a, (height, depth), mp, slot), nz(l1a, (height, depth), mp, load_a))
                    b.do("l1_to_l0b", nz(l0b, (depth, width), bk, slot), nz(l1b, (depth, width), deep_b, load_b))
                    b.after("MTE1", "M", slot)
                    first = make("eq", add(add(at, mul(r, bk)), 0), 0)
                    b.do("mmad", nz(l0c, (height, width), mp, slot_c), nz(l0a, (height, depth), mp, slot),
                         nz(l0b, (depth, width), bk, slot), first)
                    b.set("M", "MTE1", slot)
                    b.let("step", add(step, 1))
                if deep_a < outer:
                    _release(b, "na", load_a, 0)
                if deep_b < outer:
                    _release(b, "nb", load_b, 2)
            if deep_a == outer:
                _release(b, "na", load_a, 0)
            if deep_b == outer:
                _release(b, "nb", load_b, 2)
        b.after("M", "FIX", slot_c)
        b.do("fixpipe", rows(c, (height, width), n, add(mul(i, bm * n), mul(j, bn))),
             nz(l0c, (height, width), mp, slot_c))
        b.set("FIX", "M", slot_c)
        b.let("tiles", add(count, 1))
    for slot in range(2):
        b.wait("M", "MTE1", slot)
        b.wait("MTE1", "MTE2", slot)
        b.wait("MTE1", "MTE2", 2 + slot)
    for slot in range(slots_c):
        b.wait("FIX", "M", slot)
    return program("gemm", (a, gb, c), Phase((b.function("cube", cores),)))


def nz(memory: Any, sizes: tuple[Scalar, Scalar], height: int, slot: Scalar = 0) -> View:
    """[rows, columns] of a tile in NZ layout."""
    c0 = 16 if memory.space == "L0C" else max(256 // memory.dtype.bits, 1)
    return View(memory, sizes, (c0, height * c0), 0, slot, c0)


def _load(
    b: Body, gm: Gm, to: Any, which: str, sizes: tuple[Scalar, Scalar],
    at: tuple[Scalar, Scalar], number: Expr, height: int, layout: str,
) -> None:  # fmt: skip
    """A tile to L1, when the slot is free, and a flag for MTE1."""
    slot = mod(number, 2)
    event = slot if which == "a" else add(2, slot)
    b.wait("MTE1", "MTE2", event)
    width = gm.shape[1]
    if which == "b" and layout == "zN":  # fractals as they lie in L1: columns' blocks of all rows
        c0 = 256 // gm.dtype.bits
        columns = make("div", add(sizes[1], c0 - 1), c0)
        k = gm.shape[0]
        offset = add(mul(at[0], c0), mul(div(at[1], c0), k * c0))
        source = View(gm, (columns, mul(sizes[0], c0)), (k * c0, 1), offset, 0)
        target = View(to, (columns, mul(sizes[0], c0)), (height * c0, 1), 0, slot)
        b.do("load_nz", target, source)
    else:
        flip = which == "b" and layout == "column"
        s, o = (sizes[::-1], at[::-1]) if flip else (sizes, at)
        b.do("nd2nz", nz(to, s, height, slot), rows(gm, s, width, add(mul(o[0], width), o[1])))
    b.after("MTE2", "MTE1", event)


def _release(b: Body, name: str, number: Expr, first: int) -> None:
    b.set("MTE1", "MTE2", add(first, mod(number, 2)))
    b.let(name, add(number, 1))


BUILDERS: dict[str, Callable[[Params, int], Program]] = {
    "add": add_kernel,
    "add_in_ub": add_in_ub,
    "copy_gm_ub": lambda p, cores: copy(p, cores, nz=False),
    "copy_gm_l1_nd2nz": lambda p, cores: copy(p, cores, nz=True),
    "gemm": gemm,
}
