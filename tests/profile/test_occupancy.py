"""Which bytes hold a tile when, on programs whose spans are known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import simulate
from programs import CHIP, gemm, vector_add

from terrazzo.ir.types import f16
from terrazzo.profile import picture
from terrazzo.profile.occupancy import occupancy
from terrazzo.profile.replay import Inputs, replay, start, trips, uses
from terrazzo.profile.report import Report
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    For,
    Gm,
    Instr,
    Phase,
    PipeBarrier,
    Program,
    View,
)

Make = Callable[..., Report]


def test_slots_are_held_from_load_to_last_read() -> None:
    program = vector_add(n=4 * 16384, cores=1)
    t = simulate(program, CHIP)
    (room,) = occupancy(t, program)
    loads = [s for s in t.spans if s.op == "load"][::2]
    adds = [s for s in t.spans if s.op == "vadd"]
    held = [h for h in room.held if h.buffer.name == "t0"]
    assert [(h.start, h.end) for h in held] == [
        (a.start, b.end) for a, b in zip(loads, adds, strict=True)
    ]
    assert [h.slot for h in held] == [0, 1, 0, 1]
    assert [h.address for h in held] == [0, 32768, 0, 32768]
    assert room.space == "UB" and room.peak == 6 * 32768


def test_accumulator_is_one_tile() -> None:
    """Steps along k read and write it; the tile ends with its store."""
    program = gemm(m=256, n=256, cores=1)
    t = simulate(program, CHIP)
    room = next(r for r in occupancy(t, program) if r.space == "L0C")
    stores = [s for s in t.spans if s.op == "fixpipe"]
    assert [h.end for h in room.held] == [s.end for s in stores]
    assert room.most == 128 << 10


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), st.sampled_from([1024, 4096, 8192]), st.integers(1, 9))
def test_rectangles_never_overlap(stages: int, elements: int, blocks: int) -> None:
    """A plan without a race holds one tile at a place and time, within the capacity."""
    program = vector_add(n=blocks * elements, elements=elements, stages=stages, cores=1)
    (room,) = occupancy(simulate(program, CHIP), program)
    assert len(room.held) == 3 * blocks
    for h in room.held:
        assert h.address >= 0 and h.address + h.buffer.bytes <= room.peak <= room.capacity
        assert h.start < h.end
    for a, b in combinations(room.held, 2):
        apart = a.address + a.buffer.bytes <= b.address or b.address + b.buffer.bytes <= a.address
        assert apart or a.end <= b.start or b.end <= a.start


def test_pool_figures() -> None:
    """Two tiles of 64 KiB at one place and one beside them: 192 KiB asked, 128 KiB planned."""
    size = 32768
    gm = Gm("x", f16, (size,))
    buffers = [Buffer(n, "UB", f16, size, 1, (at,)) for n, at in (("a", 0), ("b", 65536), ("c", 0))]
    a, b, c = (View(x, (size,), (1,)) for x in buffers)
    body = (
        Instr("load", a, (View(gm, (size,), (1,)),)),
        Instr("vexp", b, (a,)),
        PipeBarrier("ALL"),
        Instr("vabs", c, (b,)),
    )
    fn = CoreFn("vector", body, tuple(buffers), 1)
    program = Program("p", (gm,), (), (Phase((fn,)),), True)
    (room,) = occupancy(simulate(program, CHIP), program)
    assert (room.asked, room.peak, room.saved) == (196608, 131072, 65536)
    assert room.json()["fragmentation"] == room.fragmentation
    assert "128 KiB of 192 KiB planned for 192 KiB of tiles" in picture.summary(room)


def test_replay_counts_what_is_executed() -> None:
    program = gemm(m=256, n=512, k=1024, cores=3)
    (phase,) = program.phases
    fn = phase.functions[0]
    total = 0
    for core in range(3):
        env = start(core, phase, fn, Inputs())
        total += sum(s.op == "mmad" for s in replay(fn.body, env, Inputs()))
    assert total == 2 * 2 * 4 * 4
    first = {u.instr.op: u for u in uses(phase, fn, Inputs())}
    assert first["mmad"].times == 2 * 4 * 4 and first["fixpipe"].times == 2
    assert first["mmad"].sizes == (128, 256) and first["mmad"].sources[0] == (128, 64)
    loop = next(s for s in fn.body if isinstance(s, For))
    assert trips(loop, {"core": 1}, Inputs()) == 1


def test_picture(gemm_report: Make) -> None:
    rooms = gemm_report().rooms
    l1 = rooms[0]
    end = picture.window(rooms)
    assert 0 < end < l1.until
    grid = picture.grid(l1, 8, 60, end)
    text = ["".join(c for c, _ in row) for row in grid]
    assert set("".join(text)) == set("ABab·")
    assert text[0] == "·" * 60 and text[-1].startswith("A")  # 384 of 512 KiB; a at the bottom
    assert picture.top(l1) == 512 << 10 and picture.top(rooms[1]) == 32 << 10


def test_needs_its_inputs() -> None:
    program = vector_add()
    with pytest.raises(KeyError):
        list(replay(program.phases[0].functions[0].body, {}, Inputs()))
