"""Loads through a table of pages: a transfer a page, to L1 for the Cube or to UB."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paged import attention_launch, sums_launch

from terrazzo.errors import KernelError
from terrazzo.targets.davinci.program import Instr, View, walk


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("context", [1, 15, 16, 17, 255, 256, 257, 800])
def test_decode_at_page_and_block_edges(context: int, ahead: int) -> None:
    attention_launch([(context - 1, 1)], 1, 3, 16, "f16", 1, ahead).holds(roundings=16)


def ragged(blocks: list[int]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return given(
        lengths=st.lists(
            st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=3
        ),
        kvheads=st.integers(1, 2), group=st.integers(1, 3), width=st.sampled_from([16, 64]),
        cache=st.sampled_from(["f16", "f32", "bf16"]), bq=st.sampled_from(blocks),
    )  # fmt: skip


@settings(max_examples=6, deadline=None)
@ragged([1, 7, 32])
def test_ragged_batches(
    lengths: list[tuple[int, int]], kvheads: int, group: int, width: int, cache: str, bq: int
) -> None:
    roundings = 64 if cache == "bf16" else 16
    launch = attention_launch(lengths, kvheads, group, width, cache, bq)
    launch.interpreted(launch.program, roundings)


@settings(max_examples=6, deadline=None)
@ragged([1, 7, 16])
def test_ragged_batches_scheduled(
    lengths: list[tuple[int, int]], kvheads: int, group: int, width: int, cache: str, bq: int
) -> None:
    """32 queries of three heads each want 201,600 B of UB."""
    roundings = 64 if cache == "bf16" else 16
    attention_launch(lengths, kvheads, group, width, cache, bq).holds(roundings)


def test_each_page_is_one_transfer_from_a_place_in_the_table() -> None:
    program = attention_launch([(299, 1)], 1, 3, 16, "f16", 1).program
    cube = next(f for f in program.phases[0].functions if f.kind == "cube")
    moves = [s for s in walk(cube.body) if isinstance(s, Instr) and s.op == "nd2nz"]
    tables = [v.memory.name for s in moves for v in s.ins if isinstance(v, View)
              and "table[" in str(v.offset)]  # fmt: skip
    assert tables == ["kcache", "vcache"]


@pytest.mark.parametrize("width", [1, 50, 64])
def test_pages_to_the_vector_core(width: int) -> None:
    sums_launch([1, 47, 48, 49, 200], width).holds(roundings=64)


def test_blocks_that_begin_within_a_page_are_refused_with_their_line() -> None:
    with pytest.raises(KernelError, match="need not begin with a page of 16; .*multiple of 16"):
        sums_launch([60], 16, begin=8)
