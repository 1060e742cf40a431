"""The nest IR of the library's main kernels: which loops, buffers and products they become.

`pytest --update-goldens` writes the files anew; review them as the decisions they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import terrazzo.lang as tz
from terrazzo.ir import formats
from terrazzo.ir.types import ElemType, bf16, f16, f32, i8
from terrazzo.kernels import activation, attention, embedding, int4, linear, norm, rope, sampling
from terrazzo.targets.cpu import layouts, nest
from terrazzo.targets.cpu.compile import prepare
from terrazzo.targets.cpu.schedule import schedule

A8 = formats.FORMATS["a8"]
Q4 = layouts.packed(formats.FORMATS["q4_1"])

CASES: dict[str, tuple[tz.Kernel, Mapping[str, ElemType], Mapping[str, Any]]] = {
    "rms_norm": (norm.rms_norm, {"T": f16, "R": f16}, {}),
    "rms_norm_a8": (norm.rms_norm, {"T": f32, "R": A8}, {}),
    "add_rms_norm": (norm.add_rms_norm, {"T": f32, "R": f32}, {}),
    "layer_norm": (norm.layer_norm, {"T": bf16, "R": bf16}, {"present": ("bias",)}),
    "silu_mul": (activation.silu_mul, {"T": f32, "R": A8}, {}),
    "softmax": (sampling.softmax, {"T": f32}, {}),
    "argmax": (sampling.argmax, {}, {}),
    "candidates": (sampling.candidates, {}, {}),
    "embedding_q4_1": (embedding.embedding, {"W": Q4, "T": f32}, {}),
    "matmul_f32": (linear.matmul, {"T": f32, "R": f32}, {}),
    "matmul_int4": (int4.matmul_int4, {"R": f32}, {}),
    "linear_a8_q4_1": (linear.linear, {"A": A8, "W": Q4, "R": f32}, {"present": ("residual",)}),
    "linear_f32_q4_1": (linear.linear, {"A": f32, "W": Q4, "R": f32}, {"present": ("bias",)}),
    "gated_linear": (linear.gated_linear, {"A": A8, "W": Q4, "Q": A8}, {}),
    "rope_store": (
        rope.rope_store_interleaved,
        {"T": f32, "R": f32, "C": f16},
        {"statics": {"half": 32, "two": 2, "d": 64, "group": 3}},
    ),
    "attention": (
        attention.attention,
        {"Q": f32, "C": f16, "R": f32},
        {"statics": {"group": 3, "d": 64}},
    ),
    "attention_i8": (
        attention.attention,
        {"Q": f32, "C": i8, "R": f32},
        {"statics": {"group": 3, "d": 64}, "present": ("kscale", "vscale")},
    ),
    "flash_attention": (
        attention.flash_attention,
        {"Q": f16, "R": f16},
        {"statics": {"d": 64, "group": 1}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nest(name: str, golden: Callable[[Path, str], None]) -> None:
    kernel, types, more = CASES[name]
    text = nest.format(schedule(prepare(kernel.specialise(types, **more)), matrix=False))
    golden(Path(__file__).parent / "golden" / f"{name}.txt", text)
