"""Buffer-level programs as AscendNPU-IR text, without the vendor's compiler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ascend_programs import (
    Builder,
    add_program,
    gelu,
    gelu_program,
    matmul_program,
    matrix,
    nz,
    ring_program,
    row,
    softmax_program,
    zoo,
    zoo_program,
)
from core_interpret import run

from terrazzo.errors import KernelError
from terrazzo.ir.types import bool_, f16, f32, i8, i32, u8
from terrazzo.targets.ascend.mlir_writer import Writer, literal
from terrazzo.targets.ascend.print_hivm import print_phase
from terrazzo.targets.davinci.expr import add, make, sub, var
from terrazzo.targets.davinci.program import Gm, Phase, Program, SetFlag, View

GOLDEN = Path(__file__).parent / "golden"
PROGRAMS = {
    "add": add_program(5000),
    "softmax": softmax_program(37, 200),
    "matmul": matmul_program(100, 150, 130),
    "gelu": gelu_program(256, 64, 96),
    "zoo": zoo_program(),
    "ring": ring_program(640),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str, golden) -> None:
    golden(GOLDEN / f"{name}.mlir", print_phase(PROGRAMS[name], 0).text)


def test_arguments_of_a_mixed_phase() -> None:
    module = print_phase(PROGRAMS["gelu"], 0)
    assert module.arguments == ("ffts", "ws", "a", "w", "bias", "c")
    assert module.functions == {"cube": "gelu_mix_aic", "vector": "gelu_mix_aiv"}


def test_the_hand_written_programs_are_right() -> None:
    """The programs that the vendor's plan is compared with, themselves."""
    rng = np.random.default_rng(1)
    a = (rng.standard_normal((256, 96)) / 4).astype(np.float16)
    w = rng.standard_normal((96, 64)).astype(np.float16)
    bias, c = rng.standard_normal(64).astype(np.float32), np.zeros((256, 64), np.float16)
    run(PROGRAMS["gelu"], {"a": a, "w": w, "bias": bias, "c": c}, {})
    np.testing.assert_allclose(c, gelu(a, w, bias), rtol=2**-10, atol=2**-12)
    x = (rng.standard_normal((300, 40)) * 8).astype(np.float32)
    words = rng.integers(-(2**31), 2**31, (300, 40)).astype(np.int32)
    table = rng.permutation(75).astype(np.int32)
    z, q = np.zeros_like(x), np.zeros(x.shape, np.float16)
    run(PROGRAMS["zoo"], {"x": x, "w": words, "table": table, "z": z, "q": q}, {"low": -1.25})
    np.testing.assert_array_equal(z, zoo(x, words, table, -1.25))


# -- scalars ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1, "f32", "1.0"),
        (-1.702, "f32", "-1.7020000219345093"),
        (1e-30, "f32", "1.0000000031710769e-30"),
        (0.1, "f16", "0.0999755859375"),
        (0.1, "bf16", "0.10009765625"),
        (float("-inf"), "f16", "0xFC00"),
        (1e6, "f16", "0x7C00"),
        (float("nan"), "f32", "0x7FC00000"),
        (7, "i16", "7"),
    ],
)
def test_literals(value: float, kind: str, text: str) -> None:
    assert literal(value, kind) == text


def test_nothing_is_computed_twice_and_division_rounds_down() -> None:
    w = Writer()
    w.bind("n", "%n", "i32")
    w.bind("i", "%i")
    e = make("div", sub(var("i"), 5), 4)
    assert w.index(e) == w.index(e)
    assert sum("divsi" in line for line in w.lines) == 1
    assert sum("remsi" in line for line in w.lines) == 1  # i - 5 may be negative
    before = len(w.lines)
    w.index(make("div", add(var("i"), 5), 4))
    assert [line.split()[2] for line in w.lines[before:]] == ["arith.addi", "arith.divsi"]


def test_an_unknown_name_is_an_error_at_the_line() -> None:
    b = Builder("k")
    x = Gm("x", f32, (64,))
    b.op("load", row(b.buffer("u", "UB", f32, 64), var("n")), row(x, var("n")))
    with pytest.raises(KernelError, match=r"k\.py:2:5: n has no value here"):
        print_phase(_program(b, x), 0)


# -- what HIVM does not have ------------------------------------------------------------------


def _program(b: Builder, *gm: Gm) -> Program:
    return Program(b.name, gm, (), (Phase((b.fn("vector", 1),)),))


def test_flags_are_the_vendors_to_insert() -> None:
    b = Builder("k")
    b.body.append(SetFlag("MTE2", "V", 0, b.place()))
    with pytest.raises(KernelError, match="before it is scheduled"):
        print_phase(_program(b), 0)


def test_l0_buffers_do_not_exist() -> None:
    b = Builder("k")
    left, l0 = b.buffer("left", "L1", f16, 256), b.buffer("l0", "L0A", f16, 256)
    b.op("l1_to_l0a", nz(l0, 16, 16, 16), nz(left, 16, 16, 16))
    with pytest.raises(KernelError, match="no buffers in L0A, where l0 lies"):
        print_phase(_program(b), 0)


def test_fixpipe_has_no_scale() -> None:
    b = Builder("k")
    c = Gm("c", f16, (16, 16))
    acc = b.buffer("acc", "L0C", i32, 256)
    b.op("fixpipe", matrix(c, 16, 16, 16), nz(acc, 16, 16, 16), scale=0.5)
    with pytest.raises(KernelError, match=r"k\.py:2:5: .*no scale"):
        print_phase(_program(b, c), 0)


def test_masks_stay_on_the_core() -> None:
    b = Builder("k")
    z = Gm("z", bool_, (64,))
    b.op("store", row(z, 64), row(b.buffer("m", "UB", bool_, 64), 64))
    with pytest.raises(KernelError, match="masks do not leave the core"):
        print_phase(_program(b, z), 0)


def test_forms_that_the_library_lacks() -> None:
    b = Builder("k")
    u = row(b.buffer("u", "UB", i32, 64), 64)
    b.op("vand", u, u, 7)
    with pytest.raises(KernelError, match=r"k\.py:2:5: vand takes no scalar"):
        print_phase(_program(b), 0)
    b = Builder("k")
    x, m = (matrix(b.buffer(n, "UB", d, 64), 2, 8, 8) for n, d in (("x", f32), ("m", bool_)))
    b.op("vcmp", m, x, View(b.buffer("r", "UB", f32, 8), (2, 8), (0, 1)), mode="lt")
    with pytest.raises(KernelError, match="vcmp repeats no operand; repeat it by vbrc first"):
        print_phase(_program(b), 0)


def test_bytes_fill_through_their_signless_type() -> None:
    b = Builder("k")
    b.op("vbrc", row(b.buffer("u", "UB", u8, 64), 64), 200)
    text = print_phase(_program(b), 0).text
    assert "hivm.hir.bitcast" in text and "arith.constant -56 : i8" in text


def test_a_signed_byte_is_printed_as_it_is() -> None:
    b = Builder("k")
    b.op("vbrc", row(b.buffer("u", "UB", i8, 64), 64), -3)
    assert "bitcast" not in print_phase(_program(b), 0).text
