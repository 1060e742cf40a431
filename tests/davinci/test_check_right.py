"""Right programs: nothing is found in them, and their numbers are the reference's."""

from __future__ import annotations

import numpy as np
import pytest
from core_examples import (
    EXAMPLES,
    Example,
    mixed_example,
    phases_example,
    product_example,
    softmax_example,
    sum_example,
)
from davinci_launch import CHIP, launched
from hypothesis import given, settings
from hypothesis import strategies as st
from right_launches import CASES, Case

from terrazzo.targets.davinci.checking.check import check
from terrazzo.targets.davinci.checking.finding import report
from terrazzo.targets.davinci.numbers.execute import run
from terrazzo.targets.davinci.scheduling.schedule import schedule


def holds(e: Example) -> None:
    assert report(check(e.program, CHIP, e.args)) == ""
    got = run(e.program, CHIP, e.args, e.args)
    for name, want in e.want.items():
        assert np.allclose(got[name].astype(np.float64), want, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples(name: str) -> None:
    holds(EXAMPLES[name]())


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5000), st.sampled_from([64, 256, 512]), st.integers(1, 5))
def test_sums(n: int, tile: int, cores: int) -> None:
    holds(sum_example(n, tile, cores))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 20), st.integers(1, 120), st.integers(1, 120))
def test_softmax(rows: int, columns: int, keep: int) -> None:
    holds(softmax_example(rows, columns, keep))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 100), st.integers(1, 6), st.integers(1, 150))
def test_products(m: int, n: int, k: int) -> None:
    holds(product_example(m, 16 * n, k))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.integers(1, 6), st.integers(1, 8))
def test_mixed(m: int, n: int, k: int) -> None:
    holds(mixed_example(m, 16 * n, 16 * k))


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6))
def test_phases(tile: int, cores: int) -> None:
    holds(phases_example(8 * tile, cores))


def test_there_are_enough() -> None:
    assert len(CASES) >= 200 and len({str(c) for c in CASES}) >= 200


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels(case: Case) -> None:
    launch = case.launch()
    program = schedule(launch.program, CHIP)
    assert report(check(program, CHIP, launch.args)) == ""
    got = run(program, CHIP, launch.tensors, launch.scalars)
    launch.compare(got, case.roundings)


FULL: dict[str, tuple[str, str, str]] = {
    "matmul_bias_gelu": ("m=300,n=300,k=200", "T=f16,R=f16", ""),
    "linear": ("m=300,n=520,k=300", "A=f16,W=f16,R=f16", "bias"),
    "gated_linear": ("m=300,n=300,k=300", "A=f16,W=f16,Q=f16", ""),
    "rms_norm": ("rows=30,dim=2048", "T=f32,R=f32", ""),
    "silu_mul": ("rows=30,dim=3000", "T=f16,R=f16", ""),
    "flash_attention": ("heads=2,kvheads=2,s=70,t=1100,d=128", "Q=f16,R=f16", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FULL)
def test_kernels_that_fill_a_memory(name: str) -> None:
    """Where slots are given up, the events follow."""
    launch = launched(name, *FULL[name])
    program = schedule(launch.program, CHIP)
    assert report(check(program, CHIP, launch.args)) == ""
    launch.compare(run(program, CHIP, launch.tensors, launch.scalars), 32)


def test_some_of_these_give_up_slots() -> None:
    notes = [n for name in FULL for n in schedule(launched(name, *FULL[name]).program, CHIP).notes]
    assert any("has one slot" in n for n in notes)
