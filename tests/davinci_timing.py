"""Scheduled programs for the timing simulator's tests, and a naive walk of one: every statement of
one core in order, with its numbers, as the trace should say it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from davinci_build import Body, flat, program, rows, tail

from terrazzo.ir.types import f16, f32
from terrazzo.targets.davinci import program as p
from terrazzo.targets.davinci.expr import compiled, make, mul, var
from terrazzo.targets.davinci.program import Gm, Phase, Program

KIB = 1024


def vector_add(n: int, tile: int, cores: int, slots: int, apart: int = 0) -> Program:
    """z = x + y in f16, `tile` elements at a time, block-cyclic; y lies `apart` bytes into the
    bank groups of x."""
    x, y, z = (Gm(name, f16, (n,)) for name in "xyz")
    b = Body()
    size = 2 * tile
    at = [[base + i * size for i in range(slots)] for base in (0, 64 * KIB + apart, 128 * KIB)]
    ub = [b.buffer("UB", f16, tile, *a) for a in at]
    for slot in range(slots):
        b.set("V", "MTE2", slot)
        b.set("MTE3", "V", slot)
    count = b.let("count", 0)
    with b.loop(var("core"), -(-n // tile), cores) as block:
        slot = make("mod", count, slots)
        length, start = tail(tile, n, block), mul(block, tile)
        b.wait("V", "MTE2", slot)
        b.do("load", flat(ub[0], length, 0, count), flat(x, length, start))
        b.do("load", flat(ub[1], length, 0, count), flat(y, length, start))
        b.after("MTE2", "V", slot)
        b.wait("MTE3", "V", slot)
        b.do("vadd", *(flat(ub[i], length, 0, count) for i in (2, 0, 1)))
        b.set("V", "MTE2", slot)
        b.after("V", "MTE3", slot)
        b.do("store", flat(z, length, start), flat(ub[2], length, 0, count))
        b.set("MTE3", "V", slot)
        b.let("count", make("add", count, 1))
    return program("add", (x, y, z), Phase((b.function("vector", cores),)))


def product(m: int, n: int, k: int, cores: int, tile: tuple[int, int, int]) -> Program:
    """c = a · b in f16, double buffered in L1 and L0, the loop over k cut in two levels."""
    bm, bn, bk = tile
    deep = 4 * bk
    a, c = Gm("a", f16, (m, k)), Gm("c", f16, (m, n))
    gb = Gm("b", f16, (k, n))
    b = Body()
    l1a = b.buffer("L1", f16, bm * deep, 0, bm * deep * 2)
    l1b = b.buffer("L1", f16, deep * bn, 4 * bm * deep, 4 * bm * deep + 2 * deep * bn)
    l0a = b.buffer("L0A", f16, bm * bk, 0, 32 * KIB)
    l0b = b.buffer("L0B", f16, bk * bn, 0, 32 * KIB)
    l0c = b.buffer("L0C", f32, bm * bn, 0)
    for slot in range(2):
        b.set("M", "MTE1", slot)
        b.set("MTE1", "MTE2", slot)
    b.set("FIX", "M")
    outer, inner = b.let("outer", 0), b.let("inner", 0)
    across = -(-n // bn)
    with b.loop(var("core"), -(-m // bm) * across, cores) as t:
        i, j = b.let("i", make("div", t, across)), b.let("j", make("mod", t, across))
        height, width = b.let("height", tail(bm, m, i)), b.let("width", tail(bn, n, j))
        b.wait("FIX", "M")
        with b.loop(0, k, deep) as at:
            slot = make("mod", outer, 2)
            depth = make("min", deep, make("sub", k, at))
            b.wait("MTE1", "MTE2", slot)
            b.do("nd2nz", _nz(l1a, height, depth, bm, outer),
                 rows(a, (height, depth), k, make("add", mul(mul(i, bm), k), at)))  # fmt: skip
            b.do("nd2nz", _nz(l1b, depth, width, deep, outer),
                 rows(gb, (depth, width), n, make("add", mul(at, n), mul(j, bn))))  # fmt: skip
            b.after("MTE2", "MTE1", slot)
            with b.loop(0, depth, bk) as step:
                at0 = make("mod", inner, 2)
                thin = make("min", bk, make("sub", depth, step))
                b.wait("M", "MTE1", at0)
                b.do("l1_to_l0a", _nz(l0a, height, thin, bm, inner),
                     _nz(l1a, height, thin, bm, outer))  # fmt: skip
                b.do("l1_to_l0b", _nz(l0b, thin, width, bk, inner),
                     _nz(l1b, thin, width, deep, outer))  # fmt: skip
                b.after("MTE1", "M", at0)
                first = make("eq", make("add", at, step), 0)
                b.do("mmad", _nz(l0c, height, width, bm, 0), _nz(l0a, height, thin, bm, inner),
                     _nz(l0b, thin, width, bk, inner), first)  # fmt: skip
                b.set("M", "MTE1", at0)
                b.let("inner", make("add", inner, 1))
            b.set("MTE1", "MTE2", slot)
            b.let("outer", make("add", outer, 1))
        b.after("M", "FIX")
        b.do("fixpipe", rows(c, (height, width), n, make("add", mul(mul(i, bm), n), mul(j, bn))),
             _nz(l0c, height, width, bm, 0))  # fmt: skip
        b.set("FIX", "M")
    return program("product", (a, gb, c), Phase((b.function("cube", cores),)))


def chain(tiles: int, slots: int, parts: int) -> Program:
    """Cube -> vectors -> cube: the cube runs `slots` tiles ahead of what comes back."""
    c, v = Body(), Body()
    w, back = Gm("w", f32, (8, 4096), True), Gm("back", f32, (8, 4096), True)
    l0c, l1 = c.buffer("L0C", f32, 4096, 0), c.buffer("L1", f32, 4096, 0)

    def read_back() -> None:
        c.cross_wait(2, "MTE2")
        c.do("load_nz", flat(l1, 3000), flat(back, 3000))
        c.cross_set(3, "MTE2")

    with c.loop(0, tiles) as t:
        c.cross_wait(1, "FIX")
        c.do("fixpipe", rows(w, (64, 64), 64), rows(l0c, (64, 64), 64))
        c.cross_set(0, "FIX")
        with c.when(make("le", slots - 1, t)):
            read_back()
    for _ in range(slots - 1):
        read_back()
    for _ in range(slots):
        c.cross_wait(1, "FIX")
        v.cross_set(1, "MTE2")
        c.cross_set(3, "MTE2")
    ub = v.buffer("UB", f32, 4096, 0, 16384)
    for slot in range(2):
        v.set("MTE3", "MTE2", slot)
    count = v.let("count", 0)
    with v.loop(0, tiles):
        v.cross_wait(0, "MTE2")
        with v.loop(0, parts):
            v.wait("MTE3", "MTE2", make("mod", count, 2))
            v.do("load", flat(ub, 2048 // parts, 0, count), flat(w, 2048 // parts))
            v.after("MTE2", "V", make("mod", count, 2))
            v.do("vexp", flat(ub, 2048 // parts, 0, count), flat(ub, 2048 // parts, 0, count))
            v.after("V", "MTE3", make("mod", count, 2))
            v.do("store", flat(back, 2048 // parts), flat(ub, 2048 // parts, 0, count))
            v.set("MTE3", "MTE2", make("mod", count, 2))
            v.let("count", make("add", count, 1))
        v.cross_set(1, "MTE2")
        v.cross_set(2, "MTE3")
        v.cross_wait(3, "MTE3")
    return program("chain", (w, back), Phase((c.function("cube", 6), v.function("vector", 12))))


def _nz(memory: p.Buffer, height: p.Scalar, width: p.Scalar, padded: int, slot: p.Scalar) -> p.View:
    c0 = 16
    return p.View(memory, (height, width), (c0, padded * c0), 0, slot, c0)


def statements(body: tuple[p.Stmt, ...], env: dict[str, Any]) -> Iterator[tuple[p.Stmt, dict]]:
    """Each statement that is not control flow, with the variables when it is reached."""
    for s in body:
        if isinstance(s, p.Let):
            env[s.name] = compiled(s.value)(env, {})
        elif isinstance(s, p.If):
            if compiled(s.condition)(env, {}):
                yield from statements(s.body, env)
        elif isinstance(s, p.For):
            lo, hi, step = (compiled(e)(env, {}) for e in (s.lo, s.hi, s.step))
            for value in range(lo, hi, step):
                env[s.var] = value
                yield from statements(s.body, env)
        else:
            yield s, dict(env)
