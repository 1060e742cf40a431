"""The vendor's own plans of the library's kernels: nothing is found in them, and their numbers are
right. Needs the `ascend` extra."""

from __future__ import annotations

import pytest
from ascend_extra import needs_wheel
from davinci_launch import CHIP
from right_launches import CASES, Case

from terrazzo.targets.ascend.compile import compile
from terrazzo.targets.davinci.checking.check import check
from terrazzo.targets.davinci.checking.finding import report
from terrazzo.targets.davinci.numbers.execute import run

pytestmark = needs_wheel
FIRST = list({c.kernel: c for c in reversed(CASES)}.values())  # one launch a kernel


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_nothing_is_found_in_the_vendors_plan(case: Case) -> None:
    launch = case.launch()
    planned = compile(launch.program, CHIP).planned
    assert report(check(planned, CHIP, launch.args)) == ""
    launch.compare(run(planned, CHIP, launch.tensors, launch.scalars), 2 * case.roundings)
