"""Launches on a DaVinci chip: what may stand for a tensor, plans, options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import terrazzo.lang as tz
from terrazzo.errors import ArgumentError, OptionError
from terrazzo.kernels import linear, math, rope
from terrazzo.runtime import davinci
from terrazzo.targets.davinci.chips import chip
from terrazzo.targets.davinci.lowering.lower import Options
from terrazzo.targets.davinci.printer import text

B2 = chip("910b2")


def test_shapes_stand_for_tensors() -> None:
    x = np.zeros(5000, np.float32)
    by_array = davinci.lowered(math.add, (x, x, x), {}, B2)
    by_shape = davinci.lowered(math.add, 2 * [(tz.f32, 5000)], {"out": ("f32", 5000)}, B2)
    assert text(by_array.program) == text(by_shape.program)
    assert by_shape.spelt == dict.fromkeys(("a", "b", "out"), "f32[5000]")


def test_a_fixed_type_need_not_be_said() -> None:
    shapes = {"x": (tz.f16, 4, 2, 2, 32), "position": (4,), "cos": (64, 32), "sin": (64, 32),
              "out": (tz.f16, 4, 2, 2, 32)}  # fmt: skip
    low = davinci.lowered(rope.rope, (), shapes, B2)
    assert low.spelt["cos"] == "f32[64, 32]" and low.indices.keys() == {"position"}


@pytest.mark.parametrize("wrong", [(5000,), ("q8_0", 5000), ("f32", "n"), (), (tz.f32, -1)])
def test_what_is_no_shape(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"argument `a` of `add`: .* as in \(tz.f16, n\)"):
        davinci.lowered(math.add, (wrong, (tz.f32, 9), (tz.f32, 9)), {}, B2)


def test_rows_that_do_not_lie_densely() -> None:
    x = np.zeros((6, 8), np.float32)
    with pytest.raises(ArgumentError, match=r"argument `b` of `matmul`.*ascontiguousarray"):
        davinci.prepare(linear.matmul, (x, np.zeros((8, 16), np.float32)[:, :8], x), {}, B2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(cores=25), "option cores is 25; choose 1 to 24 on 910b2"),
        (Options(vector_cores=0), "option vector_cores is 0; choose 1 to 48 on 910b2"),
        (Options(ratio=3), "option ratio is 3; choose 1 to 2 on 910b2"),
        (Options(swizzle=0), "option swizzle is 0; choose at least 1"),
        (Options(bypass=frozenset({"TILE"})), "'TILE', which is no tensor of `add`"),
    ],
)
def test_options_out_of_range(options: Options, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        davinci.lowered(math.add, 3 * [(tz.f32, 100)], {}, B2, options)


def test_there_are_two_plans() -> None:
    with pytest.raises(OptionError, match="there is no plan 'best'; choose from own, vendor"):
        davinci.prepare(math.add, 3 * [(tz.f32, 100)], {}, B2, "best")
