"""One launch of a kernel as a core program of the davinci target, beside the reference target's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from core_interpret import run

from terrazzo.cli.kernel import arguments, find
from terrazzo.cli.kernel_inputs import copied
from terrazzo.ir.types import DType, bf16, f16, f32
from terrazzo.lang.bind import bind
from terrazzo.lang.kernel import Kernel
from terrazzo.runtime import launch
from terrazzo.targets.davinci.chips import chip
from terrazzo.targets.davinci.lower import Options, lower
from terrazzo.targets.davinci.program import Program

_ULP = {f16: 2.0**-10, bf16: 2.0**-7, f32: 2.0**-23}


@dataclass
class Launch:
    """`tensors` are what a run of `program` works on; `expected`: outputs by name."""

    program: Program
    tensors: dict[str, Any]
    scalars: dict[str, Any]
    expected: dict[str, tuple[DType, np.ndarray]]

    def check(self, program: Program | None = None, roundings: float = 2) -> None:
        """Runs the program, or another one that is to do the same, on fresh outputs, and compares.
        Tolerance: `roundings` of the output's type, of a value as large as the output or a
        sixteenth of the largest one; integers are exact."""
        tensors = {n: np.array(x) for n, x in self.tensors.items()}
        with np.errstate(all="ignore"):
            run(program or self.program, tensors, self.scalars)
            for out, (dtype, expected) in self.expected.items():
                got, want = (x.astype(np.float64) for x in (tensors[out], expected))
                large = np.maximum(np.abs(want), np.abs(want).max(initial=0) / 16)
                same = (got == want) | (np.isnan(got) & np.isnan(want))
                near = np.abs(got - want) <= roundings * _ULP.get(dtype, 0) * large
                assert (same | near).all(), (out, np.abs(got - want).max())


def library(
    name: str, shape: str, types: str = "", given: str = "", consts: str = "",
    options: Options | None = None,
) -> Launch:  # fmt: skip
    """Of a kernel of the library, its options as on the command line."""
    kernel = find(name)
    args = arguments(kernel, [shape], [types] if types else None, [given] if given else None,
                     [consts] if consts else None)  # fmt: skip
    return launched(kernel, args, options)


def launched(kernel: Kernel, args: Mapping[str, Any], options: Options | None = None) -> Launch:
    ours, theirs = ({n: copied(x) for n, x in args.items()} for _ in range(2))
    launch.reference(kernel, (), theirs)
    b = bind(kernel, (), ours)
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics, "davinci")
    program = lower(ir, b.dims, chip("910b2"), options)
    expected = {}
    for name in ir.stored():
        dtype = ir.param(name).dtype
        assert isinstance(dtype, DType)
        expected[name] = dtype, theirs[name]
    return Launch(program, {n: t.array for n, t in b.tensors.items()}, b.scalars, expected)
