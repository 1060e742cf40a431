"""The library's kernels through the vendor's compiler, lowered for each chip: they link, they fit,
and the vendor's plan computes what the reference target does. Needs the `ascend` extra.

The tolerance is `roundings` of the output's type (of f32 for an f32 output: 2^-23), of a value as
large as the output or a sixteenth of the largest one: operands cancel. Tails are in every shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from ascend_extra import needs_wheel
from core_interpret import run

from terrazzo.cli.kernel import arguments, find
from terrazzo.cli.kernel_inputs import copied
from terrazzo.ir.types import DType, bf16, f16, f32, i32
from terrazzo.runtime import davinci, launch
from terrazzo.targets.ascend.compile import compile
from terrazzo.targets.davinci.chips import chip

pytestmark = needs_wheel
CHIPS = ("910b1", "910b2", "910b3", "910b4", "910_9392")
ULP: dict[Any, float] = {f16: 2.0**-10, bf16: 2.0**-7, f32: 2.0**-23, i32: 0.0}
VECTOR, PRODUCT = frozenset({"UB"}), frozenset({"L1", "L0A", "L0B", "L0C"})
MIXED = VECTOR | PRODUCT


@dataclass(frozen=True)
class Case:
    kernel: str
    shape: str
    types: str = ""
    given: str = ""
    roundings: float = 2
    spaces: frozenset[str] = VECTOR

    def __str__(self) -> str:
        return " ".join((self.kernel, self.shape, self.types, self.given)).strip()


CASES = [
    Case("add_custom", "n=40009"),
    Case("silu_mul", "rows=60,dim=301", roundings=64),
    *(Case("rms_norm", "rows=130,dim=100", f"T={t},R={t}", roundings=16 if t == "f32" else 2)
      for t in ("f32", "f16", "bf16")),
    Case("softmax", "rows=110,dim=200", roundings=32),
    Case("rope", "tokens=50,heads=3,half=32", "T=f16,R=f16"),
    *(Case("matmul", "m=150,n=270,k=100", f"T={t},R={t}", spaces=PRODUCT) for t in ("f16", "bf16")),
    Case("linear", "m=150,n=300,k=200", "A=f32,W=f32,R=f32", "bias,residual", roundings=64,
         spaces=MIXED),
    Case("linear", "m=50,n=300,k=200", "A=bf16,W=bf16,R=bf16", "bias", spaces=MIXED),
    Case("matmul_i8", "m=50,n=300,k=200", "S=i32", spaces=PRODUCT),
    Case("matmul_i8", "m=50,n=300,k=200", "S=f32", "scale", spaces=MIXED),
    Case("matmul_int4", "m=40,n=70,groups=3,half=64", "R=f16", roundings=4, spaces=MIXED),
    Case("matmul_bias_gelu", "m=150,n=200,k=100", "T=f16,R=f16", roundings=4, spaces=MIXED),
    Case("flash_attention", "heads=4,kvheads=2,s=70,t=330,d=32", "Q=f16,R=f16", roundings=16,
         spaces=MIXED),
    Case("flash_attention", "heads=4,kvheads=4,s=1,t=600,d=64", "Q=f16,R=f16", roundings=16,
         spaces=MIXED),
    Case("decode_attention", "ctx=300", "Q=f16,R=f16", roundings=16, spaces=MIXED),
]  # fmt: skip


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel(case: Case, target: str) -> None:
    kernel, at = find(case.kernel), chip(target)
    args = arguments(kernel, [case.shape], [case.types] if case.types else None,
                     [case.given] if case.given else None, None)  # fmt: skip
    ours, theirs = ({n: copied(x) for n, x in args.items()} for _ in range(2))
    low = davinci.lowered(kernel, (), ours, at)
    made = compile(low.program, at)
    assert made.missing == () and made.warnings == [] and made.target == at.target
    (phase,) = made.phases
    assert phase.peak.keys() == case.spaces
    assert all(0 < n <= at.capacity[space] for space, n in phase.peak.items())
    cores = {f.kind: f.cores for f in phase.planned.functions}
    assert cores == {k: at.cores(k) for k in cores}
    launch.reference(kernel, (), theirs)
    with np.errstate(all="ignore"):
        run(made.planned, low.tensors, low.binding.scalars)
    for out in low.ir.stored():
        got, want = (x[out].astype(np.float64) for x in (ours, theirs))
        dtype = low.ir.param(out).dtype
        assert isinstance(dtype, DType)
        large = np.maximum(np.abs(want), np.abs(want).max() / 16)
        error = np.abs(got - want)
        assert (error <= case.roundings * ULP[dtype] * large).all(), (out, error.max())


def test_prepare_gives_the_vendors_plan() -> None:
    kernel, at = find("silu_mul"), chip("910b3")
    shape = (f16, 64, 512)
    given = {p.name: shape for p in kernel.params if p.kind == "tensor"}
    program, low = davinci.prepare(kernel, (), given, at, "vendor")
    assert program.scheduled and program.name == "silu_mul"
    (function,) = program.phases[0].functions
    assert function.cores == 40 and all(b.addresses for b in function.buffers)
    assert set(low.spelt.values()) == {"f16[64, 512]"}
