"""Reports of hand-written programs, each made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from machine import simulate
from programs import ADD_LISTING, CHIP, GEMM_LISTING, gemm, vector_add

from terrazzo.profile.report import Report, report

Make = Callable[..., Report]


@cache
def _gemm(timeline: tuple[tuple[str, Any], ...], program: tuple[tuple[str, Any], ...]) -> Report:
    made = gemm(**dict(program))
    return report(replace(simulate(made, CHIP), **dict(timeline)), made, GEMM_LISTING)


@cache
def _add(timeline: tuple[tuple[str, Any], ...], program: tuple[tuple[str, Any], ...]) -> Report:
    made = vector_add(**dict(program))
    return report(replace(simulate(made, CHIP), **dict(timeline)), made, ADD_LISTING)


@pytest.fixture
def gemm_report() -> Make:
    """`gemm_report(stages=1)`: of a GEMM; `timeline={…}` replaces fields of the timeline."""
    return lambda timeline=(), **program: _gemm(tuple(dict(timeline).items()),
                                                tuple(program.items()))  # fmt: skip


@pytest.fixture
def add_report() -> Make:
    """The same of a vector add."""
    return lambda timeline=(), **program: _add(tuple(dict(timeline).items()),
                                               tuple(program.items()))  # fmt: skip
