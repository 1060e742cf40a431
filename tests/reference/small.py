"""Running a kernel of the language on the reference target."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import terrazzo.lang as tz
from terrazzo.lang.bind import bind
from terrazzo.targets import reference

NUMPY: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def run(kernel: tz.Kernel, consts: dict[str, Any] | None = None, **args: Any) -> None:
    """Specialise for the arguments and run with every check on."""
    b = bind(kernel, (), {**args, **(consts or {})})
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics)
    reference.run(ir, {n: t.array for n, t in b.tensors.items()}, b.scalars)
