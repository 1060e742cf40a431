"""Kernels of the library, compiled: loops multiplied out give what the full replay gives."""

from __future__ import annotations

import pytest
from davinci_launch import CHIP
from right_launches import CASES, Case

from terrazzo.targets.davinci.scheduling.schedule import schedule
from terrazzo.targets.davinci.timing.classes import trace
from terrazzo.targets.davinci.timing.simulate import timed


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_kernels(case: Case) -> None:
    launch = case.launch()
    program = schedule(launch.program, CHIP)
    traced = trace(program, CHIP, launch.scalars, launch.tensors)
    fast = timed(program, traced, CHIP, window_cycles=0)
    full = timed(program, traced, CHIP, window_cycles=1e9, skip=False)
    assert fast.cycles == pytest.approx(full.cycles, rel=1e-3)
    assert fast.traffic == full.traffic
    # Every instruction has its span, on one core of each class.
    assert {(s.kind, s.pipe) for s in full.spans} == {(p.kind, p.pipe) for p in full.pipes}
    assert max(s.end for s in full.spans) <= full.cycles * (1 + 1e-9)
    for use in full.pipes:
        assert 0 < use.busy <= full.cycles * (1 + 1e-9)
