"""Calls a kernel of the language on arrays, on the target a test asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import terrazzo.lang as tz
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import DTYPES, DType
from terrazzo.lang.bind import bind
from terrazzo.runtime import launch
from terrazzo.targets import reference

ELEMENT: dict[np.dtype, DType] = {d.numpy: d for d in DTYPES.values()}
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}  # relative error of one rounding
TINY = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}  # smallest denormal
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

Target = Callable[..., None]


def on_reference(kernel: tz.Kernel, **args: Any) -> None:
    b = bind(kernel, (), args)
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics)
    reference.run(ir, {n: t.array for n, t in b.tensors.items()}, b.scalars)


def on_cpu(kernel: tz.Kernel, threads: int = 2, **args: Any) -> None:
    """Two threads, whatever the machine has: blocks must not depend on who runs them."""
    launch.run(launch.prepare(kernel, (), args), threads)


TARGETS: dict[str, Target] = {"reference": on_reference, "cpu": on_cpu}


def empty(shape: tuple[int, ...], dtype: str = "f32") -> np.ndarray:
    """An output whose old contents would be seen."""
    return np.full(shape, 77, NUMPY[dtype])


def a8_rows(rows: int, k: int) -> Packed:
    """An a8 output of zeros."""
    return Packed(formats.A8, (rows, k), np.zeros((rows, formats.bytes_per_row("a8", k)), np.uint8))


def assert_close(got: np.ndarray, exact: np.ndarray, slack: np.ndarray | float = 0.0) -> None:
    """|got - exact| <= slack + one rounding to got's element type. `slack` is an absolute bound."""
    name = ELEMENT[got.dtype].name
    error = np.abs(got.astype(np.float64) - exact)
    bound = slack + (np.abs(exact) + slack) * UNIT[name] + TINY[name]
    worst = np.max(error - bound, initial=-np.inf)
    assert got.shape == exact.shape
    assert not np.isnan(error).any() and worst <= 0, f"{np.nanmax(error)} against {bound.max()}"
