"""Every sample kernel prints, parses back exactly, and verifies."""

import pytest
import sample as s

import terrazzo.lang as tz
from terrazzo.ir import ops, parser, printer, verify

KERNELS = {
    "add": lambda: s.add.specialise(),
    "rms_norm_f16": lambda: s.rms_norm.specialise({"T": tz.f16}),
    "softmax": lambda: s.softmax.specialise({"T": tz.f32}),
    "matmul": lambda: s.matmul.specialise({"T": tz.bf16}, {"K": 32}),
    "linear": lambda: s.linear.specialise({"A": tz.f32, "W": tz.f32, "T": tz.f32}),
    "linear_q4": lambda: s.linear.specialise(
        {"A": tz.a8, "W": tz.q4_1, "T": tz.f32}, {"act": tz.silu}, {"bias", "residual"}
    ),
    "flash": lambda: s.flash.specialise(statics={"d": 64}),
}


@pytest.mark.parametrize("name", KERNELS)
def test_round_trip(name: str) -> None:
    kernel: ops.Kernel = KERNELS[name]()
    text = printer.format(kernel)
    assert parser.parse(text) == kernel
    assert printer.format(parser.parse(text)) == text


@pytest.mark.parametrize("name", KERNELS)
def test_verifies(name: str) -> None:
    verify.verify(KERNELS[name](), "traced")
