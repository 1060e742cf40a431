"""Lowered kernels through the vendor's own passes: they take every one, all calls link, nothing is
a loop of the scalar unit, and the plan computes the right numbers. Needs the `ascend` extra."""

from __future__ import annotations

import pytest
from ascend_extra import needs_wheel
from davinci_launch import TINY, Launch, launched
from paged import attention_launch, sums_launch
from pointwise import ANY, FLOATS, INTEGERS, NARROW, REDUCED, launch, reduction

from terrazzo.targets.ascend.compile import compile
from terrazzo.targets.davinci.chips import chip

pytestmark = needs_wheel


def through(made: Launch, roundings: float = 2) -> None:
    compiled = compile(made.program, chip("910b2"))
    assert compiled.missing == () and compiled.warnings == []
    made.interpreted(compiled.planned, roundings)


@pytest.mark.parametrize("dtype", ["u8", "i8", "i32", "f16", "f32", "bf16"])
@pytest.mark.parametrize("name", ANY)
def test_any_type(name: str, dtype: str) -> None:
    through(launch(ANY[name], dtype))


@pytest.mark.parametrize("dtype", ["u8", "i8", "i32", "u32"])
@pytest.mark.parametrize("name", INTEGERS)
def test_bits(name: str, dtype: str) -> None:
    through(launch(INTEGERS[name], dtype))


@pytest.mark.parametrize("dtype", ["f16", "f32", "bf16"])
@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str, dtype: str) -> None:
    through(launch(FLOATS[name], dtype), 64 if name in ("sigmoids", "exponentials") else 4)


@pytest.mark.parametrize(("source", "result"), NARROW)
def test_casts(source: str, result: str) -> None:
    through(launch(NARROW[source, result], source, result))


@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name: str) -> None:
    through(reduction(name))


@pytest.mark.parametrize("shape", ["m=20,groups=3,half=64,n=300", "m=1,groups=1,half=16,n=17",
                                   "m=130,groups=2,half=48,n=129"])  # fmt: skip
def test_products_with_four_bit_weights(shape: str) -> None:
    through(launched("matmul_int4", shape, "R=f16", options=TINY))


@pytest.mark.parametrize(
    ("lengths", "group", "width", "cache", "bq"),
    [
        ([(600, 1), (15, 1), (0, 1)], 4, 64, "f16", 1),
        ([(300, 40), (0, 17)], 2, 16, "f16", 16),
        ([(100, 40)], 1, 64, "bf16", 7),
        ([(513, 1)], 8, 64, "f32", 1),
    ],
)
def test_paged_attention(
    lengths: list[tuple[int, int]], group: int, width: int, cache: str, bq: int
) -> None:
    through(attention_launch(lengths, 2, group, width, cache, bq), roundings=64)


def test_pages_to_the_vector_core() -> None:
    through(sums_launch([1, 47, 48, 49, 200], 50), roundings=64)


@pytest.mark.parametrize(
    ("name", "shape", "types"),
    [
        ("softmax", "rows=7,dim=100", ""),
        ("layer_norm", "rows=13,dim=100", "T=bf16,R=bf16"),
        ("rope", "tokens=5,heads=3,half=32", "T=f16,R=f16"),
        ("matmul_bias_gelu", "m=50,n=70,k=100", "T=f16,R=f16"),
        ("flash_attention", "heads=2,kvheads=1,s=70,t=70,d=32", "Q=f16,R=f16"),
        ("decode_attention", "ctx=300", "Q=f16,R=f16"),
    ],
)
def test_kernels_of_the_launched(name: str, shape: str, types: str) -> None:
    through(launched(name, shape, types, options=TINY), roundings=32)
