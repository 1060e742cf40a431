"""The timing simulator's mechanisms, each against a sum made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from davinci_build import Body, flat, program, rows
from davinci_timing import KIB, product, vector_add

from terrazzo.errors import KernelError
from terrazzo.ir.types import f16, f32
from terrazzo.targets.davinci.chips import Chip, chip
from terrazzo.targets.davinci.expr import add, make, mul, var
from terrazzo.targets.davinci.program import CoreFn, Gm, Instr, Phase, Program, View
from terrazzo.targets.davinci.timing.constants import DEFAULT, Constants
from terrazzo.targets.davinci.timing.cost import Shape
from terrazzo.targets.davinci.timing.simulate import simulate
from terrazzo.targets.davinci.timing.timeline import Timeline
from terrazzo.targets.davinci.timing.vector_cost import queue_entries

B1 = chip("910b1")
# One byte a cycle from everywhere, no start-up, so that sums are easy.
PLAIN = replace(
    DEFAULT, ub_hit=1.0, ub_miss=1.0, ub_store=1.0, read_latency=1000.0, write_latency=500.0,
    issue=0.0, scalar_issue=0.0, vector_head=0.0, vector_partial=0.0, launch_us=0.0,
    hand_over=100.0, hot_tb_s=1e6,
)  # fmt: skip


def run(made: Program, k: Constants = PLAIN, on: Chip = B1, **more: Any) -> Timeline:
    return simulate(made, on, constants=k, **more)


def one_core(b: Body, *gm: Gm) -> Program:
    return program("test", gm, Phase((b.function("vector", 1),)))


def test_reads_are_in_order_and_only_dependents_see_the_latency() -> None:
    b = Body()
    x = Gm("x", f32, (100_000,))
    ub = b.buffer("UB", f32, 6400, 0)
    for i in range(3):
        b.do("load", flat(ub, 250), flat(x, 250, 1000 * i))  # 1000 cycles each
    b.after("MTE2", "V")
    b.do("vabs", flat(ub, 6400), flat(ub, 6400))  # 100 repeats
    found = run(one_core(b, x))
    assert found.cycles == pytest.approx(3000 + 1000 + 100)
    v, mte2 = found.pipe("vector", "V"), found.pipe("vector", "MTE2")
    assert v is not None and mte2 is not None
    assert (v.busy, mte2.busy) == (pytest.approx(100), pytest.approx(4000))
    assert v.waits == {"MTE2": pytest.approx(4000)}
    assert found.traffic == {"GM->UB": 3000}
    spans = {(s.op, s.start, s.end, s.on) for s in found.spans if s.pipe == "V"}
    assert spans == {("vabs", 4000, 4100, "MTE2")}
    (arrow,) = found.arrows
    assert (arrow.src, arrow.dst, arrow.raised, arrow.taken) == ("MTE2", "V", 4000, 4000)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_double_buffering_hides_what_is_shorter(slots: int) -> None:
    tile, tiles = 8192, 12
    found = run(vector_add(tile * tiles, tile, 1, slots), replace(PLAIN, read_latency=100.0))
    load, add = 2 * 2 * tile, 2 * 2 * tile / 256  # 64 repeats of 2 cycles, in conflict
    store = 2 * tile + 500
    if slots == 1:  # the next load starts when the addition is done
        assert found.cycles == pytest.approx(tiles * (load + 100 + add) + store)
    else:
        assert found.cycles == pytest.approx(tiles * load + 100 + add + store)


def test_flags_of_one_pair_count_up_and_pipes_run_apart() -> None:
    b = Body()
    x = Gm("x", f32, (100_000,))
    ub = b.buffer("UB", f32, 6400, 0)
    b.do("vabs", flat(ub, 640), flat(ub, 640))  # 10 cycles
    b.set("V", "MTE3", 0)
    b.do("vabs", flat(ub, 6400), flat(ub, 6400))  # 100 more
    b.set("V", "MTE3", 1)
    b.wait("V", "MTE3", 0)
    b.do("store", flat(x, 25), flat(ub, 25))
    b.wait("V", "MTE3", 1)
    b.do("store", flat(x, 25), flat(ub, 25))
    starts = [s.start for s in run(one_core(b, x)).spans if s.pipe == "MTE3"]
    assert starts == [10, 110]


def test_a_barrier_waits_for_completion() -> None:
    b = Body()
    x = Gm("x", f32, (100_000,))
    ub = b.buffer("UB", f32, 6400, 0)
    b.do("load", flat(ub, 25), flat(x, 25))
    b.barrier("MTE2")
    b.do("load", flat(ub, 25), flat(x, 25))
    b.barrier("ALL")
    b.do("vabs", flat(ub, 64), flat(ub, 64))
    assert [s.start for s in run(one_core(b, x)).spans] == [0, 1100, 2200]


def test_the_scalar_unit_stalls_behind_a_full_queue() -> None:
    b = Body()
    x = Gm("x", f32, (100_000,))
    ub = b.buffer("UB", f32, 6400, 0)
    with b.loop(0, 5):
        b.do("load", flat(ub, 25), flat(x, 25))
    b.do("vabs", flat(ub, 64), flat(ub, 64))
    found = run(one_core(b, x), replace(PLAIN, queue_depth=2))
    # The fifth load is handed over when the third has started, at cycle 200.
    assert [s.start for s in found.spans if s.pipe == "V"] == [200]


def mixed(tiles: int, ahead: int) -> Program:
    """A cube core writes `tiles` results, its two vector cores read them; `ahead` slots."""
    c, v = Body(), Body()
    gm, out = Gm("w", f32, (ahead, 250), True), Gm("out", f32, (500,))
    l0c = c.buffer("L0C", f32, 256, 0)
    with c.loop(0, tiles):
        c.cross_wait(1, "FIX")
        c.do("fixpipe", rows(gm, (10, 25), 25), rows(l0c, (10, 25), 25))  # 1000 B
        c.cross_set(0, "FIX")
    ub = v.buffer("UB", f32, 256, 0)
    for _ in range(ahead):
        v.cross_set(1, "MTE2")
    with v.loop(0, tiles):
        v.cross_wait(0, "MTE2")
        v.do("load", flat(ub, 125), flat(gm, 125))  # 500 B each
        v.cross_set(1, "MTE2")
    phase = Phase((c.function("cube", 1), v.function("vector", 2)))
    return program("mixed", (gm, out), phase)


@pytest.mark.parametrize("skip", [False, True])
def test_cube_and_vector_cores_hand_tiles_over(skip: bool) -> None:
    k = replace(PLAIN, fix_store=1.0, write_latency=0.0, read_latency=50.0)
    one, two = (run(mixed(40, ahead), k, window_cycles=0 if skip else 1e9) for ahead in (1, 2))
    # A round trip: write, hand over, read, hand over. The first write waits for the first credit.
    turn = 1000 + 100 + 550 + 100
    assert one.cycles == pytest.approx(100 + 40 * turn - 100)
    # Two slots: a slot's round trip is shared by two tiles, the cube's writes are shorter.
    assert two.cycles == pytest.approx(100 + 40 * 1000 + 100 + 550)
    fix = one.pipe("cube", "FIX")
    assert fix is not None and fix.waits["vector"] == pytest.approx(100 + 39 * (turn - 1000))
    assert one.cores == {"cube": 1, "vector": 2}


def test_transfers_slow_down_to_what_hbm_gives() -> None:
    n = 48 * 64 * 8192
    found = run(vector_add(n, 8192, 48, 2), replace(DEFAULT, launch_us=0.0))
    moved = 2 * n * 2  # inputs miss; the result stays in L2
    cap = DEFAULT.hbm_share * B1.hbm_tb_s
    assert found.hbm_bytes == moved
    assert found.us == pytest.approx(moved / cap / 1e6, rel=0.03)
    assert found.throttle < 0.5
    assert found.hbm_bytes / found.cycles <= 1.003 * cap * 1e6 / B1.mhz


def test_writes_reach_hbm_when_l2_is_too_small_for_what_is_touched() -> None:
    n = 40 << 20
    made = vector_add(n, 8192, 48, 2)
    assert run(made, DEFAULT).hbm_bytes == 3 * 2 * n
    small = replace(B1, l2_bytes=64 << 20)
    assert run(vector_add(1 << 20, 8192, 48, 2), DEFAULT, small).hbm_bytes == 2 * 2 * (1 << 20)


def test_a_second_read_hits() -> None:
    x = Gm("x", f16, (48, 64 * KIB))

    def read() -> CoreFn:
        b = Body()
        ub = b.buffer("UB", f16, 16 * KIB, 0)
        with b.loop(0, 4) as i:
            at = add(mul(var("core"), 64 * KIB), mul(i, 16 * KIB))
            b.do("load", flat(ub, 16 * KIB), flat(x, 16 * KIB, at))
        return b.function("vector", 48)

    once = run(program("once", (x,), Phase((read(),))), DEFAULT)
    twice = run(program("twice", (x,), Phase((read(),)), Phase((read(),))), DEFAULT)
    assert once.hbm_bytes == twice.hbm_bytes == 2 * 48 * 64 * KIB
    assert twice.cycles < 1.7 * once.cycles


def test_a_part_that_no_phase_before_read_misses() -> None:
    x = Gm("x", f16, (96, 64 * KIB))

    def read(first: int) -> CoreFn:
        b = Body()
        ub = b.buffer("UB", f16, 16 * KIB, 0)
        with b.loop(add(var("core"), first), first + 48, 48) as row, b.loop(0, 4) as i:
            at = add(mul(row, 64 * KIB), mul(i, 16 * KIB))
            b.do("load", flat(ub, 16 * KIB), flat(x, 16 * KIB, at))
        return b.function("vector", 48)

    halves = [Phase((read(first),)) for first in (0, 48, 0)]
    found = run(program("halves", (x,), *halves), DEFAULT)
    assert found.hbm_bytes == 2 * 96 * 64 * KIB
    small = run(program("halves", (x,), *halves), DEFAULT, replace(B1, l2_bytes=8 << 20))
    assert small.hbm_bytes == 3 * 2 * 48 * 64 * KIB


def test_operands_are_read_again_when_l2_does_not_hold_them() -> None:
    made = product(1024, 2048, 1024, 4, (128, 256, 64))  # 8 x 8 tiles: two rounds a row of tiles
    a, b, c = 2 * 1024 * 1024, 2 * 2048 * 1024, 2 * 1024 * 2048
    assert run(made, DEFAULT).hbm_bytes == a + b
    # Too small for b: all of it is read for every row of tiles, of a each row once a round for four
    # cores, or once if a row of tiles stays while the rest of b passes by.
    small = run(made, DEFAULT, replace(B1, l2_bytes=3 << 20))
    assert small.hbm_bytes == a + 8 * b + c
    tiny = run(made, DEFAULT, replace(B1, l2_bytes=1 << 20))
    assert tiny.hbm_bytes == 2 * a + 8 * b + c


def test_cores_that_are_left_over_have_the_bandwidth_to_themselves() -> None:
    k = replace(DEFAULT, launch_us=0.0, read_latency=0.0)
    tile = 32 * KIB  # f16: 64 KiB a load

    def reader(blocks: int) -> Timeline:
        b, x = Body(), Gm("x", f16, (blocks * 64 * tile,))
        ub = b.buffer("UB", f16, tile, 0)
        with b.loop(var("core"), blocks, 48) as block, b.loop(0, 64) as i:
            at = make("add", mul(block, 64 * tile), mul(i, tile))
            b.do("load", flat(ub, tile), flat(x, tile, at))
        return run(program("read", (x,), Phase((b.function("vector", 48),))), k)

    all_cores, more = reader(48), reader(52)
    alone = 64 * 2 * tile / DEFAULT.ub_miss
    assert more.cycles == pytest.approx(all_cores.cycles + alone, rel=0.01)


@pytest.mark.parametrize("blocks", [3, 41, 47, 95, 97])
def test_cores_that_idle_do_not_matter(blocks: int) -> None:
    found = run(vector_add(blocks * 8192, 8192, 48, 2), DEFAULT)
    assert found.hbm_bytes == 2 * 2 * blocks * 8192
    rate = found.hbm_bytes / (found.us - found.launch_us) / 1e6
    assert rate < 1.003 * DEFAULT.hbm_share * B1.hbm_tb_s


def test_all_cores_on_one_address_share_its_rate() -> None:
    b, x = Body(), Gm("x", f16, (256 * KIB,))
    ub = b.buffer("UB", f16, 16 * KIB, 0)
    with b.loop(0, 16) as i:
        b.do("load", flat(ub, 16 * KIB), flat(x, 16 * KIB, make("mul", i, 16 * KIB)))
    found = run(program("hot", (x,), Phase((b.function("vector", 48),))), DEFAULT)
    seconds = 48 * 512 * KIB / (DEFAULT.hot_tb_s * 1e12)
    assert found.us == pytest.approx(seconds * 1e6 + DEFAULT.launch_us, rel=0.01)


def test_a_product_is_bound_by_the_cube_when_its_operands_come_fast() -> None:
    k = replace(DEFAULT, l1_hit=1e4, l1_miss=1e4, nd2nz_row=0.0, l0_head=0.0)
    found = run(product(1024, 2048, 8192, 8, (128, 256, 64)), k)
    macs = 1024 * 2048 * 8192 / 8 / 4096
    mac = found.pipe("cube", "M")
    assert mac is not None
    assert mac.busy == pytest.approx(macs * 514 / 512, rel=0.001)
    assert found.flops == 2 * 1024 * 2048 * 8192
    assert found.cube_bits == 16
    assert found.ratio("cube", "M") > 0.9


@pytest.mark.parametrize(("width", "runs"), [(256, 64), (64, 1)])
def test_rows_cost_a_move_to_nz(width: int, runs: int) -> None:
    b, x = Body(), Gm("x", f16, (64, width))
    l1 = b.buffer("L1", f16, 64 * 64, 0)
    b.do("nd2nz", rows(l1, (64, 64), 16), rows(x, (64, 64), width))
    made = program("nz", (x,), Phase((b.function("cube", 1),)))
    found = run(made, replace(DEFAULT, read_latency=0.0, scalar_issue=0.0))
    assert found.cycles == pytest.approx(runs * DEFAULT.nd2nz_row + 8192 / DEFAULT.l1_miss)


def test_rows_that_straddle_lines_cost_more_of_hbm() -> None:
    b, x = Body(), Gm("x", f16, (64, 1001))
    ub = b.buffer("UB", f16, 64 * 256, 0)
    b.do("load", rows(ub, (64, 256), 256), rows(x, (64, 256), 1001))
    found = run(one_core(b, x), DEFAULT)
    assert found.traffic["GM->UB"] == 64 * 512
    assert 1.9 < found.hbm_bytes / (64 * 512) <= 2.0


@pytest.mark.parametrize(
    ("at_y", "at_z", "more"),
    [
        (64 * KIB + 256, 128 * KIB, 0.0),  # sources half the bank groups apart
        (64 * KIB, 128 * KIB, DEFAULT.read_read),  # in the same groups
        (64 * KIB + 256, 16 * KIB + 256, DEFAULT.read_write),  # written to where x is read
        (64 * KIB + 256, 0, 0.0),  # the result starts where a source does: one repeat behind
    ],
)
def test_bank_conflicts_follow_from_addresses(at_y: int, at_z: int, more: float) -> None:
    b = Body()
    x, y, z = (b.buffer("UB", f32, 4096, at) for at in (0, at_y, at_z))
    b.do("vadd", flat(z, 4096), flat(x, 4096), flat(y, 4096))
    found = run(one_core(b))
    assert found.cycles == pytest.approx(64 * (1 + more), rel=0.05)
    assert found.conflicts == pytest.approx(64 * more, rel=0.05)


@pytest.mark.parametrize(
    ("rows", "columns", "pitch", "entries"),
    [
        (1, 64, 64, 1),  # one repeat
        (24, 256, 256, 1),  # one run of 96 repeats
        (128, 256, 256, 3),  # 512 repeats: 255 at most in one
        (24, 256, 320, 4),  # a gap between rows: one of 24 repeats for each 256 bytes of a row
        (3, 512, 600, 3),  # the same, one for each row
    ],
)
def test_a_vector_operation_is_several_instructions_in_its_queue(
    rows: int, columns: int, pitch: int, entries: int
) -> None:
    strides = (pitch, 1)
    shapes = (Shape((rows, columns), strides, 0),) * 2
    buffer = Body().buffer("UB", f32, rows * pitch, 0)
    view = View(buffer, (rows, columns), strides)
    assert queue_entries(Instr("vexp", view, (view,)), shapes) == entries + 1  # and a barrier


def test_a_flag_that_is_never_raised_is_named() -> None:
    b = Body()
    b.wait("V", "MTE3", 3)
    with pytest.raises(KernelError, match="pipe MTE3 waits for event 3 of pipe V"):
        run(one_core(b))


def test_a_cross_flag_that_is_never_raised_is_named() -> None:
    c, v = Body(), Body()
    c.cross_wait(4, "FIX")
    made = program("x", (), Phase((c.function("cube", 1), v.function("vector", 2))))
    with pytest.raises(KernelError, match="other cores' flag 4"):
        run(made)


def test_more_cores_than_there_are() -> None:
    with pytest.raises(KernelError, match="wants 50 vector cores, 910b1 has 48"):
        run(vector_add(1 << 20, 1024, 50, 2))
    with pytest.raises(KernelError, match="buffer level"):
        run(replace(vector_add(1 << 20, 1024, 4, 2), scheduled=False))
