"""The arena planner: live buffers never overlap, plans keep their bounds, memory is checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrazzo.errors import MemoryShortage
from terrazzo.ir.lifetimes import Buffer, plan
from terrazzo.runtime import arena
from terrazzo.runtime.arena import Arena


@st.composite
def buffers(draw: st.DrawFn) -> list[Buffer]:
    made: list[Buffer] = []
    for i in range(draw(st.integers(0, 25))):
        first = draw(st.integers(0, 30))
        last = draw(st.integers(first, 31))
        ending = [b.name for b in made if b.last == first]
        replaces = draw(st.sampled_from([None, *ending]))
        made.append(Buffer(f"b{i}", draw(st.integers(0, 5000)), first, last, replaces))
    return made


@given(buffers())
def test_buffers_that_live_together_do_not_overlap(made: list[Buffer]) -> None:
    layout = plan(made)
    assert set(layout.offsets) == {b.name for b in made}
    assert layout == plan(made)  # the same every time
    for b in made:
        start = layout.offsets[b.name]
        assert start % 64 == 0 and start + b.size <= layout.size
        for other in made:
            pair = {(b.name, other.name), (other.name, b.name)}
            together = b.first <= other.last and other.first <= b.last
            if b is not other and together and not pair & set(layout.in_place):
                begin = layout.offsets[other.name]
                assert start + b.size <= begin or begin + other.size <= start
    assert layout.bound <= layout.size <= layout.unshared


@given(buffers())
def test_in_place_pairs_are_legal(made: list[Buffer]) -> None:
    layout = plan(made)
    by_name = {b.name: b for b in made}
    assert len({old for old, _ in layout.in_place}) == len(layout.in_place)
    for old, new in layout.in_place:
        assert by_name[new].replaces == old
        assert by_name[old].last == by_name[new].first
        assert layout.offsets[old] == layout.offsets[new]


def test_a_chain_of_layers_needs_two_buffers() -> None:
    chain = [Buffer(f"x{i}", 1000, i, i + 1) for i in range(30)]
    layout = plan(chain)
    assert (layout.size, layout.bound, layout.unshared) == (2048, 2048, 30 * 1024)
    assert layout.report() == (
        "arena: 30,720 B of buffers in 2,048 B (at least 2,048 B), 0 in place"
    )


def test_a_chain_in_place_needs_one() -> None:
    chain = [Buffer("x0", 1000, 0, 1)]
    chain += [Buffer(f"x{i}", 1000, i, i + 1, replaces=f"x{i - 1}") for i in range(1, 30)]
    layout = plan(chain)
    assert layout.size == layout.bound == 1024 and len(layout.in_place) == 29


def test_a_buffer_is_replaced_once_and_only_when_it_ends_and_is_large_enough() -> None:
    read_later = [Buffer("x", 64, 0, 3), Buffer("y", 64, 1, 2, replaces="x")]
    too_small = [Buffer("x", 64, 0, 1), Buffer("y", 128, 1, 2, replaces="x")]
    twice = [Buffer("x", 64, 0, 1), Buffer("y", 64, 1, 2, "x"), Buffer("z", 64, 1, 2, "x")]
    assert [len(plan(case).in_place) for case in (read_later, too_small, twice)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ([Buffer("x", -1, 0, 0)], "buffer x: -1 bytes"),
        ([Buffer("x", 1, 2, 1)], "steps 2 to 1"),
        ([Buffer("x", 1, 0, 0), Buffer("x", 1, 0, 0)], "same name"),
    ],
)
def test_wrong_descriptions(made: list[Buffer], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        plan(made)


def test_views_are_zeroed_and_checked() -> None:
    block = Arena(plan([Buffer("x", 24, 0, 1), Buffer("y", 100, 1, 2), Buffer("z", 24, 2, 3)]))
    x, y = block.view("x", (2, 3), np.float32), block.view("y", (100,), np.uint8)
    assert not x.any() and x.shape == (2, 3) and x.ctypes.data % 64 == 0
    x[:] = 7
    assert not y.any()
    assert np.shares_memory(x, block.view("z", (6,), np.float32))
    with pytest.raises(ValueError, match="buffer x has 24 B, 28 B asked for"):
        block.view("x", (7,), np.float32)


def test_shortage_is_said_before_memory_is_asked_for() -> None:
    layout = plan([Buffer("kv", 1 << 50, 0, 1)])
    text = r"^the KV cache needs 1,125,899,906,842,624 B of device memory, [\d,]+ B are available; "
    with pytest.raises(MemoryShortage, match=text):
        Arena(layout, "the KV cache")


def test_the_cgroup_s_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena.cgroups, "memory_left", lambda: 1000)
    assert arena.available_memory() == 1000
    with pytest.raises(MemoryShortage, match="needs 1,001 B of device memory, 1,000 B are"):
        arena.check_memory(1001, "it")
    arena.check_memory(1000, "it")
