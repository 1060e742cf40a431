"""Scheduling: events, slots, addresses, and what is given up where memory is short. Numbers and the
absence of races are tested in test_lowered_numbers.py and test_check_right.py."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from davinci_launch import CHIP, launched

from terrazzo.errors import CapacityError
from terrazzo.targets.davinci.chips import CAPACITY, EVENTS
from terrazzo.targets.davinci.program import Instr, Program, SetFlag, WaitFlag, walk
from terrazzo.targets.davinci.scheduling.schedule import schedule, scheduled


def made(name: str, shape: str, types: str = "", **more: Any) -> Program:
    return schedule(launched(name, shape, types, **more).program, CHIP)


def buffers(p: Program) -> dict[str, Any]:
    return {b.name: b for phase in p.phases for f in phase.functions for b in f.buffers}


def test_what_a_pipe_waits_for_is_raised() -> None:
    p = made("rope", "tokens=5,heads=3,half=32", "T=f16,R=f16")
    (f,) = p.phases[0].functions
    raised = {(s.src, s.dst) for s in walk(f.body) if isinstance(s, SetFlag)}
    waited = {(s.src, s.dst) for s in walk(f.body) if isinstance(s, WaitFlag)}
    assert raised == waited == {("MTE2", "V"), ("V", "MTE2"), ("V", "MTE3"), ("MTE3", "V")}


def test_products_are_spelt_out_with_both_halves_of_l0() -> None:
    p = made("matmul", "m=300,n=600,k=500", "T=f16,R=f16")
    ops = Counter(s.op for s in walk(p.phases[0].functions[0].body) if isinstance(s, Instr))
    assert ops == {"nd2nz": 2, "l1_to_l0a": 1, "l1_to_l0b": 1, "mmad": 1, "fixpipe": 1}
    b = buffers(p)
    assert b["l0a1"].addresses == (0, CAPACITY["L0A"] // 2)
    assert b["a"].slots == b["b"].slots == 2  # stages=2 in the kernel


def test_elementwise_results_take_the_place_of_what_dies() -> None:
    launch = launched("silu_mul", "rows=700,dim=301")
    p, memories = scheduled(launch.program, CHIP)
    b = buffers(p)
    assert b["t"].addresses == b["t2"].addresses == b["t3"].addresses
    (ub,) = memories[0, "vector"]
    assert ub.in_place >= 3 and ub.size < ub.unshared and ub.places < len(b) + 3


def test_sources_of_an_instruction_lie_in_different_bank_groups() -> None:
    b = buffers(made("add", "n=100000", "T=f32"))
    assert {x % 512 for x in b["a"].addresses} != {x % 512 for x in b["b"].addresses}


def test_a_second_slot_that_nobody_asked_for_is_given_up_with_a_note() -> None:
    p = made("flash_attention", "heads=1,kvheads=1,s=256,t=512,d=128", "Q=f16,R=f16")
    assert any("has one slot: UB is full" in note for note in p.notes)


@pytest.mark.parametrize("name", ["layer_norm", "add_rms_norm"])
def test_no_pair_of_pipes_has_more_events_than_there_are(name: str) -> None:
    p = made(name, "rows=13,dim=100", "T=f16,R=f16")
    for f in p.phases[0].functions:
        used = [s for s in f.body if isinstance(s, WaitFlag)]
        assert all(isinstance(s.event, int) and s.event < EVENTS for s in used)


def test_what_does_not_fit_is_an_error_with_tiles_and_lines() -> None:
    with pytest.raises(CapacityError) as e:
        made("matmul", "m=2048,n=2048,k=2048", "T=f32,R=f32", consts="M=128,N=256,K=512")
    text = str(e.value)
    assert "of L1, 910b2 has 524,288 B" in text and "linear.py" in text
    assert "x 2 slots" in text and "blocks smaller" in text
