"""Traces say what a naive walk of the program says, and equal work is one trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from davinci_build import Body, flat, program
from davinci_timing import product, statements, vector_add

from terrazzo.ir.types import f32, i32
from terrazzo.targets.davinci import program as p
from terrazzo.targets.davinci.expr import Expr, compiled, make
from terrazzo.targets.davinci.program import Gm, Phase, Program
from terrazzo.targets.davinci.timing.constants import DEFAULT
from terrazzo.targets.davinci.timing.cost import Shape, work
from terrazzo.targets.davinci.timing.trace import DO, LOOP, PIPE, RAISE, SET, TAKE, WAIT, Tracer


def tracer(fn: p.CoreFn, tensors: Mapping[str, np.ndarray] = {}) -> Tracer:
    return Tracer(fn, tensors, lambda i, shapes: work(i, shapes, DEFAULT, DEFAULT.fix_store))


def flattened(t: Tracer, node: int) -> list[Any]:
    out: list[Any] = []
    for kind, pipe, what in t.nodes[node]:
        if kind == LOOP:
            for trip in t.loops[what]:
                out += flattened(t, trip)
        elif kind == DO:
            instr, shapes = t.instrs[what]
            out.append(work(instr, shapes, DEFAULT, DEFAULT.fix_store))
        else:
            out.append((kind, pipe, what))
    return out


def expected(fn: p.CoreFn, env: dict[str, Any]) -> list[Any]:
    out: list[Any] = []
    for s, now in statements(fn.body, dict(env)):
        if isinstance(s, p.Instr):
            shapes = tuple(_shape(s, v, now) for v in p.views(s))
            out.append(work(s, shapes, DEFAULT, DEFAULT.fix_store))
        elif isinstance(s, (p.SetFlag, p.WaitFlag)):
            event = compiled(s.event)(now, {})
            kind, pipe = (SET, s.src) if isinstance(s, p.SetFlag) else (WAIT, s.dst)
            out.append((kind, PIPE[pipe], (PIPE[s.src], PIPE[s.dst], event)))
        elif isinstance(s, (p.CrossSet, p.CrossWait)):
            kind = RAISE if isinstance(s, p.CrossSet) else TAKE
            out.append((kind, PIPE[s.pipe], compiled(s.flag)(now, {})))
    return out


def _shape(s: p.Instr, v: p.View, env: dict[str, Any]) -> Shape:
    def value(e: p.Scalar) -> int:
        return compiled(e)(env, {})

    at = value(v.offset) * v.dtype.bits // 8
    if isinstance(v.memory, Gm):
        at %= 512
    else:
        at += v.memory.addresses[value(v.slot) % v.memory.slots]
    return Shape(tuple(map(value, v.sizes)), tuple(map(value, v.strides)), at)


def both(made: Program, core: int) -> tuple[list[Any], list[Any]]:
    (fn,) = made.phases[0].functions
    t = tracer(fn)
    for earlier in range(core):  # the memory of other cores' traces must not leak into this one
        t.trace({"core": earlier})
    return flattened(t, t.trace({"core": core})), expected(fn, {"core": core})


@pytest.mark.parametrize("core", [0, 1, 6])
@pytest.mark.parametrize("n", [10_000, 70_001, 1024 * 7 * 9])
def test_tiles_with_slots_and_a_tail(core: int, n: int) -> None:
    found, wanted = both(vector_add(n, 1024, 7, 3), core)
    assert found == wanted


@pytest.mark.parametrize("core", [0, 4])
@pytest.mark.parametrize("shape", [(256, 256, 512), (300, 520, 1000), (64, 100, 130)])
def test_a_product_in_nested_loops(core: int, shape: tuple[int, int, int]) -> None:
    found, wanted = both(product(*shape, 5, (128, 128, 64)), core)
    assert found == wanted


def test_counters_that_carry_over_conditions_and_triangles() -> None:
    b = Body()
    x = Gm("x", f32, (1 << 20,))
    ub = b.buffer("UB", f32, 512, 0, 2048, 4096)
    n = b.let("n", 1)
    with b.loop(0, 9) as i, b.loop(0, i) as j:
        with b.when(make("lt", make("mod", make("add", i, j), 3), 2)):
            size = make("add", 8, make("mul", 8, make("mod", n, 5)))
            b.do("load", flat(ub, size, 0, n), flat(x, size, make("mul", n, 24)))
            b.let("n", make("add", n, make("add", j, 1)))
        b.set("MTE2", "V", make("mod", n, 3))
        b.wait("MTE2", "V", make("mod", n, 3))
    made = program("triangle", (x,), Phase((b.function("vector", 1),)))
    found, wanted = both(made, 0)
    assert found == wanted
    assert len(wanted) > 80


def test_index_tensors_decide_sizes() -> None:
    b = Body()
    x, ends = Gm("x", f32, (1 << 20,)), Gm("ends", i32, (40,))
    ub = b.buffer("UB", f32, 4096, 0)
    with b.loop(0, 40) as i:
        size = Expr("load", ("ends", i))
        b.do("load", flat(ub, size), flat(x, size))
    (fn,) = program("ragged", (x, ends), Phase((b.function("vector", 1),))).phases[0].functions
    sizes = np.arange(40, dtype=np.int32) % 5 * 16 + 8
    t = tracer(fn, {"ends": sizes})
    found = flattened(t, t.trace({"core": 0}))
    assert [w.gm_bytes for w in found] == (sizes * 4).tolist()
    assert len(t.instrs) == 5


def test_equal_blocks_are_traced_once() -> None:
    (fn,) = product(4096, 4096, 4096, 16, (128, 256, 64)).phases[0].functions
    t = tracer(fn)
    roots = {t.trace({"core": core}) for core in range(16)}
    assert len(roots) == 1
    assert len(t.nodes) < 10
    assert sum(t.counts(roots.pop()).values()) == 32 * (16 * (2 + 4 * 3) + 1)
