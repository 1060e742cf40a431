"""Small kernels for the tests of the reference target, and how to run them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import terrazzo.lang as tz
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import DTYPES, DType
from terrazzo.targets import reference

NUMPY: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ELEMENT: dict[np.dtype, DType] = {d.numpy: d for d in DTYPES.values()}


def run(kernel: tz.Kernel, consts: dict[str, Any] | None = None, **args: Any) -> None:
    """Specialise for the arguments' types and run with every check on."""
    types, tensors, scalars = {}, {}, {}
    for p in kernel.params:
        if p.kind == "const" or p.name not in args:
            continue
        value = args[p.name]
        (tensors if p.kind == "tensor" else scalars)[p.name] = value
        if p.kind == "tensor" and isinstance(p.dtype, tz.TypeVar):
            types[p.dtype.name] = (
                value.format if isinstance(value, Packed) else ELEMENT[value.dtype]
            )
    reference.run(kernel.specialise(types, consts), tensors, scalars)
