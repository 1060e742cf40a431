"""The replay against the least times that satisfy its rules."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from davinci_build import Body, flat, program
from davinci_times import end, times
from davinci_timing import chain, product, vector_add

from terrazzo.ir.types import f32
from terrazzo.targets.davinci.chips import chip
from terrazzo.targets.davinci.expr import make
from terrazzo.targets.davinci.program import Gm, Phase, Pipe, Program
from terrazzo.targets.davinci.timing.classes import trace
from terrazzo.targets.davinci.timing.constants import DEFAULT, Constants
from terrazzo.targets.davinci.timing.replay import Costs, Group
from terrazzo.targets.davinci.timing.simulate import PhaseTimer
from terrazzo.targets.davinci.timing.trace import DO, LOOP, Item, Tracer
from terrazzo.targets.davinci.timing.traffic import L2

B1 = chip("910b1")


def listed(tracer: Tracer, node: int, costs: Costs) -> list[Item]:
    out: list[Item] = []
    for kind, pipe, what in tracer.nodes[node]:
        if kind == LOOP:
            for trip in tracer.loops[what]:
                out += listed(tracer, trip, costs)
        elif kind == DO:
            out.append((kind, pipe, (costs.busy[0][what], costs.tail[what],
                                     costs.entries[what])))  # fmt: skip
        else:
            out.append((kind, pipe, what))
    return out


def check(made: Program, k: Constants = DEFAULT) -> None:
    (classes,) = trace(made, B1, {}, {})
    timer = PhaseTimer(classes, B1, k, L2(B1.l2_bytes), True, False)
    for c in classes:
        cores = [(f.tracer, root, timer.costs(f, (1.0,)))
                 for f, root in zip(c.fns, c.roots, strict=True)]  # fmt: skip
        group = Group(cores, k, window=float("inf"))
        cycles = group.run()
        wanted = times([listed(*core) for core in cores], k)
        assert cycles == pytest.approx(max(end(wanted), *(core.now for core in group.cores)))
        for i, core in enumerate(wanted):
            starts = [s for s, item in zip(core.start, core.items, strict=True) if item[0] == DO]
            assert [span[3] for span in group.spans if span[0] == i] == pytest.approx(starts)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("depth", [2, 32])
def test_tiles(slots: int, depth: int) -> None:
    check(vector_add(1024 * 30 + 5, 1024, 2, slots), replace(DEFAULT, queue_depth=depth))


def test_products() -> None:
    check(product(200, 300, 700, 2, (128, 128, 64)))
    check(product(200, 300, 700, 2, (128, 128, 64)), replace(DEFAULT, scalar_issue=70.0))


@pytest.mark.parametrize(("slots", "parts"), [(1, 2), (2, 1), (3, 2)])
def test_cores_that_wait_for_each_other(slots: int, parts: int) -> None:
    check(chain(6, slots, parts))


@pytest.mark.parametrize("seed", range(15))
def test_random_items(seed: int) -> None:
    rng = random.Random(seed)
    b = Body()
    x = Gm("x", f32, (1 << 22,))
    ub = b.buffer("UB", f32, 2048, 0, 8192, 16384)
    pipes: list[Pipe] = ["MTE2", "V", "MTE3", "S"]
    for n in range(60):
        size = rng.choice([64, 200, 1024])
        match rng.randint(0, 5):
            case 0 | 1:
                b.do("load", flat(ub, size, 0, n), flat(x, size))
            case 2:
                b.do("vexp", flat(ub, size, 0, n), flat(ub, size, 0, 1))
            case 3:
                b.do("store", flat(x, size), flat(ub, size, 0, n))
            case 4:
                src, dst = rng.sample(pipes, 2)
                b.after(src, dst, make("mod", n, 2))
            case _:
                b.barrier(rng.choice(["ALL", "V", "MTE2", "MTE3"]))
    k = replace(DEFAULT, queue_depth=rng.choice([1, 4, 32]))
    check(program("random", (x,), Phase((b.function("vector", 1),))), k)
