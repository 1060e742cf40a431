"""Launches of kernels as core programs, and what the reference target makes of the same arguments.

The tolerance is `roundings` of the output's type (of f32 for an f32 output: 2^-23), of a value as
large as the output or a sixteenth of the largest one: operands cancel. What the chip computes in
another way than the reference (exp2, tanh, f32 sums in order, weights in f16) costs more than one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import core_interpret
import numpy as np

from terrazzo.cli.kernel import arguments, find
from terrazzo.cli.kernel_inputs import copied
from terrazzo.ir.types import DType, bf16, f16, f32
from terrazzo.lang.bind import bind
from terrazzo.lang.kernel import Kernel
from terrazzo.runtime import launch as launches
from terrazzo.targets.davinci.chips import chip
from terrazzo.targets.davinci.lowering.lower import Options, lower
from terrazzo.targets.davinci.numbers.execute import run
from terrazzo.targets.davinci.program import Program
from terrazzo.targets.davinci.scheduling.schedule import schedule

CHIP = chip("910b2")
TINY = Options(cores=2, vector_cores=3)  # several blocks a core, whatever the shape
_ULP = {f16: 2.0**-10, bf16: 2.0**-7, f32: 2.0**-23}  # integers are exact


@dataclass(frozen=True)
class Launch:
    """`want`: each tensor that is stored, as the reference leaves it, with its type."""

    program: Program
    tensors: dict[str, Any]
    scalars: dict[str, Any]
    want: dict[str, tuple[Any, DType]]

    @property
    def args(self) -> dict[str, Any]:
        return {**self.tensors, **self.scalars}

    def holds(self, roundings: float = 2) -> None:
        """The numbers are right at the buffer level, by the executor and by the tests' own slow
        interpreter, and of the scheduled program."""
        self.interpreted(self.program, roundings)
        for program in (self.program, schedule(self.program, CHIP)):
            self.compare(run(program, CHIP, self.tensors, self.scalars), roundings)

    def interpreted(self, program: Program, roundings: float = 2) -> None:
        """Runs `program`, which is to do the same, by the slow interpreter, and compares."""
        tensors = {n: np.array(x) for n, x in self.tensors.items()}
        with np.errstate(all="ignore"):
            core_interpret.run(program, tensors, self.scalars)
        self.compare(tensors, roundings)

    def compare(self, got: Mapping[str, Any], roundings: float = 2) -> None:
        for name, (reference, dtype) in self.want.items():
            mine, want = got[name].astype(np.float64), reference.astype(np.float64)
            size = np.maximum(np.abs(want), np.abs(want).max(initial=0) / 16)
            same = (mine == want) | (np.isnan(mine) & np.isnan(want))
            with np.errstate(invalid="ignore"):
                off = np.abs(mine - want)
            assert (same | (off <= roundings * _ULP.get(dtype, 0) * size)).all(), (name, off.max())


def launched(name: str, shape: str, types: str = "", given: str = "", consts: str = "",
             options: Options = TINY, seed: int = 0) -> Launch:  # fmt: skip
    """One launch of a kernel of the library, its options as on the command line."""
    kernel = find(name)
    args = arguments(kernel, [shape], [types] if types else None, [given] if given else None,
                     [consts] if consts else None, seed)  # fmt: skip
    return launch_of(kernel, args, options)


def launch_of(kernel: Kernel, args: Mapping[str, Any], options: Options = TINY) -> Launch:
    """One launch of any kernel, with these arguments by name."""
    ours, theirs = ({n: copied(x) for n, x in args.items()} for _ in range(2))
    launches.reference(kernel, (), theirs)
    b = bind(kernel, (), ours)
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics, "davinci")
    program = lower(ir, b.dims, CHIP, options)
    want = {}
    for out in ir.stored():
        dtype = ir.param(out).dtype
        assert isinstance(dtype, DType)
        want[out] = theirs[out], dtype
    return Launch(program, {n: t.array for n, t in b.tensors.items()}, b.scalars, want)
