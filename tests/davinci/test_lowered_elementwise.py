"""Elementwise operations one by one on the vector unit, with numbers, against the reference
target."""

from __future__ import annotations

import pytest
from pointwise import ANY, FLOATS, INTEGERS, NARROW, REDUCED, launch, reduction

import terrazzo.lang as tz
from terrazzo.errors import KernelError
from terrazzo.targets.davinci.program import For, Instr, Program, walk


@pytest.mark.parametrize("dtype", ["u8", "i8", "i32", "f16", "f32", "bf16"])
@pytest.mark.parametrize("name", ANY)
def test_any_type(name: str, dtype: str) -> None:
    launch(ANY[name], dtype).holds()


@pytest.mark.parametrize("dtype", ["u8", "i8", "i32", "u32"])
@pytest.mark.parametrize("name", INTEGERS)
def test_bits(name: str, dtype: str) -> None:
    launch(INTEGERS[name], dtype).holds()


@pytest.mark.parametrize("dtype", ["f16", "f32", "bf16"])
@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str, dtype: str) -> None:
    """f16 arithmetic rounds every step, as the reference's does; tanh, erf and exp2 cost more."""
    launch(FLOATS[name], dtype).holds(roundings=64 if name in ("sigmoids", "exponentials") else 4)


@pytest.mark.parametrize(("source", "result"), NARROW)
def test_casts(source: str, result: str) -> None:
    launch(NARROW[source, result], source, result).holds()


@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name: str) -> None:
    reduction(name).holds()


def in_loops(program: Program) -> list[Instr]:
    """Instructions that run once a block."""
    (f,) = program.phases[0].functions
    return [s for loop in f.body if isinstance(loop, For) for s in walk(loop.body)
            if isinstance(s, Instr)]  # fmt: skip


def test_constants_are_one_block_made_once() -> None:
    program = launch(lambda x, y, row: (x & 15) | (y & 15), "i32").program
    assert "vbrc" not in [s.op for s in in_loops(program)]
    (f,) = program.phases[0].functions
    (constant,) = [b for b in f.buffers if b.name.startswith("const")]
    assert constant.bytes == 32


def test_a_byte_is_widened_once() -> None:
    """The kernel's own cast and the one that logic needs are one."""
    made = launch(lambda x, y, row: x.to(tz.f16) - (x & 15).to(tz.f16), "u8", "f16")
    assert [s.op for s in in_loops(made.program)][-6:] == [
        "vcast", "vcast", "vand", "vcast", "vsub", "store",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("f", "dtype"),
    [
        (lambda x, y, row: x * y, "u8"),
        (lambda x, y, row: tz.umulhi(x, y), "u32"),
        (lambda x, y, row: tz.where(x < y, x, y), "u32"),
        (lambda x, y, row: x << y, "i32"),
        (lambda x, y, row: x // y, "i32"),
        (lambda x, y, row: tz.sin(x), "f32"),
    ],
)
def test_what_has_no_rule_names_its_line(f: object, dtype: str) -> None:
    with pytest.raises(KernelError, match=r"pointwise\.py:\d+|test_lowered_elementwise\.py:\d+"):
        launch(f, dtype)  # type: ignore[arg-type]
