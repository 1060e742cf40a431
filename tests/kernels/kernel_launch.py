"""Calls a kernel of the language on arrays, on the target a test asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import terrazzo.lang as tz
from terrazzo.ir import ops
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import DTYPES, DType, ElemType
from terrazzo.runtime import launch
from terrazzo.targets import reference

ELEMENT: dict[np.dtype, DType] = {d.numpy: d for d in DTYPES.values()}
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}  # relative error of one rounding
TINY = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}  # smallest denormal
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

Target = Callable[..., None]


def element(x: np.ndarray | Packed) -> ElemType:
    return x.format if isinstance(x, Packed) else ELEMENT[x.dtype]


def specialise(
    kernel: tz.Kernel, args: dict[str, Any]
) -> tuple[ops.Kernel, dict[str, Any], dict[str, Any]]:
    """The IR for these arguments, and the arguments split into tensors and scalars."""
    types: dict[str, ElemType] = {}
    statics: dict[str, int] = {}
    tensors, scalars, consts = {}, {}, {}
    for p in kernel.params:
        if p.name not in args:
            continue
        value = args[p.name]
        if p.kind == "tensor":
            tensors[p.name] = value
            if isinstance(p.dtype, tz.TypeVar):
                types[p.dtype.name] = element(value)
            statics.update(
                {d.name: n for d, n in zip(p.dims, value.shape, strict=True) if d.static}
            )
        else:
            (scalars if p.kind == "scalar" else consts)[p.name] = value
    optional = [p.name for p in kernel.params if p.optional and p.name in tensors]
    return kernel.specialise(types, consts, optional, statics), tensors, scalars


def on_reference(kernel: tz.Kernel, **args: Any) -> None:
    ir, tensors, scalars = specialise(kernel, args)
    reference.run(ir, tensors, scalars)


def on_cpu(kernel: tz.Kernel, **args: Any) -> None:
    """Two threads, whatever the machine has: blocks must not depend on who runs them."""
    launch.run(launch.prepare(kernel, (), args), threads=2)


TARGETS: dict[str, Target] = {"reference": on_reference, "cpu": on_cpu}


def empty(shape: tuple[int, ...], dtype: str = "f32") -> np.ndarray:
    """An output whose old contents would be seen."""
    return np.full(shape, 77, NUMPY[dtype])


def assert_close(got: np.ndarray, exact: np.ndarray, slack: np.ndarray | float = 0.0) -> None:
    """|got - exact| <= slack + one rounding to got's element type. `slack` is an absolute bound."""
    name = ELEMENT[got.dtype].name
    error = np.abs(got.astype(np.float64) - exact)
    bound = slack + (np.abs(exact) + slack) * UNIT[name] + TINY[name]
    worst = np.max(error - bound, initial=-np.inf)
    assert got.shape == exact.shape
    assert not np.isnan(error).any() and worst <= 0, f"{np.nanmax(error)} against {bound.max()}"
