"""Loops multiplied out give what the full replay gives."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from davinci_build import Body, flat, program
from davinci_timing import chain, product, vector_add

from terrazzo.ir.types import f32
from terrazzo.targets.davinci.chips import chip
from terrazzo.targets.davinci.expr import make
from terrazzo.targets.davinci.program import Gm, Phase, Pipe, Program
from terrazzo.targets.davinci.timing.constants import DEFAULT, Constants
from terrazzo.targets.davinci.timing.simulate import timed, trace

B1 = chip("910b1")


def compare(made: Program, k: Constants = DEFAULT, window: float = 0.0) -> tuple[int, int]:
    traced = trace(made, B1, {}, {})
    fast, full = (timed(made, traced, B1, k, window, skip=skip) for skip in (True, False))
    assert fast.cycles == pytest.approx(full.cycles, rel=2e-4, abs=0.1)
    assert fast.throttle == pytest.approx(full.throttle, rel=2e-3)
    assert fast.traffic == full.traffic
    assert fast.hbm_bytes == pytest.approx(full.hbm_bytes)
    for a, b in zip(fast.pipes, full.pipes, strict=True):
        assert (a.kind, a.pipe, a.instructions) == (b.kind, b.pipe, b.instructions)
        assert a.busy == pytest.approx(b.busy, rel=1e-3, abs=1)
        for cause in {*a.waits, *b.waits}:
            there = b.waits.get(cause, 0.0)
            assert a.waits.get(cause, 0.0) == pytest.approx(there, rel=3e-3, abs=50)
    return len(fast.spans), len(full.spans)


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("n", [8192 * 100 + 77, 1024 * 480, 1024 * 1_001])
def test_tiles(n: int, slots: int) -> None:
    compare(vector_add(n, 1024, 8, slots))


@pytest.mark.parametrize("shape", [(1536, 1536, 1536), (520, 1300, 3000), (16, 6144, 4096)])
def test_products(shape: tuple[int, int, int]) -> None:
    compare(product(*shape, 24, (128, 256, 64)))


def test_products_with_slow_scalar_units_and_short_queues() -> None:
    made = product(1024, 2048, 2048, 4, (128, 256, 64))
    for depth in (1, 3, 32):
        compare(made, replace(DEFAULT, queue_depth=depth, scalar_issue=40.0))


def test_a_window_is_replayed_in_full() -> None:
    made = vector_add(1024 * 4000, 1024, 8, 2)
    some, every = compare(made, window=20_000.0)
    _, short = compare(made, window=0.0)
    assert short == 0
    assert some == every > 50


@pytest.mark.parametrize(("slots", "parts"), [(1, 1), (2, 1), (2, 4), (3, 3), (4, 2)])
@pytest.mark.parametrize("tiles", [7, 60, 333])
def test_cores_that_wait_for_each_other(tiles: int, slots: int, parts: int) -> None:
    compare(chain(tiles, slots, parts))


@pytest.mark.parametrize("seed", range(25))
def test_random_loops(seed: int) -> None:
    rng = random.Random(seed)
    b = Body()
    x = Gm("x", f32, (1 << 22,))
    ub = b.buffer("UB", f32, 2048, 0, 8192, 16384)
    pipes: list[Pipe] = ["MTE2", "V", "MTE3"]
    count = b.let("count", 0)

    def work(depth: int) -> None:
        for _ in range(rng.randint(1, 4)):
            ragged = make("add", 64, make("mul", 8, make("mod", count, 3)))
            size = rng.choice([64, 200, 1024, ragged])
            match rng.randint(0, 5):
                case 0 | 1:
                    b.do("load", flat(ub, size, 0, count), flat(x, size))
                case 2:
                    b.do("vexp", flat(ub, size, 0, count), flat(ub, size, 0, 1))
                case 3:
                    b.do("store", flat(x, size), flat(ub, size, 0, count))
                case 4:
                    src, dst = rng.sample(pipes, 2)
                    b.after(src, dst, make("mod", count, 2))
                case _:
                    b.barrier(rng.choice(pipes))
        b.let("count", make("add", count, 1))
        if depth < 2:
            with b.loop(0, rng.choice([3, 20, 50])):
                work(depth + 1)

    with b.loop(0, rng.choice([5, 30])):
        work(0)
    compare(program("random", (x,), Phase((b.function("vector", rng.choice([1, 48])),))))
