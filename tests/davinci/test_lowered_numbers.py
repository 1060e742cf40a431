"""The library's kernels as buffer-level core programs against the reference target (tolerances:
davinci_launch.py), run by the executor and by the tests' own slow interpreter: shapes with tails,
all element types."""

from __future__ import annotations

import pytest
from davinci_launch import TINY, launched
from hypothesis import given, settings
from hypothesis import strategies as st

from terrazzo.errors import OptionError
from terrazzo.targets.davinci.lowering.lower import Options


def compare(name: str, shape: str, types: str = "", given: str = "", consts: str = "",
            options: Options = TINY, roundings: float = 2) -> None:  # fmt: skip
    launched(name, shape, types, given, consts, options).holds(roundings)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("n", [1, 63, 1000, 20_011])
def test_add(n: int, dtype: str) -> None:
    compare("add", f"n={n}", f"T={dtype}")


@pytest.mark.parametrize("n", [5, 8192, 100_003])
def test_add_custom(n: int) -> None:
    compare("add_custom", f"n={n}")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "add_rms_norm"])
def test_norms(name: str, dtype: str) -> None:
    compare(name, "rows=13,dim=100", f"T={dtype},R={dtype}", roundings=16 if dtype == "f32" else 2)


@settings(max_examples=10)
@given(st.integers(1, 30), st.integers(1, 200))
def test_softmax(rows: int, dim: int) -> None:
    compare("softmax", f"rows={rows},dim={dim}", roundings=32)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh", "silu_mul"])
def test_activations(name: str) -> None:
    """erf is right to 1.5e-7, tanh to an ulp of 1: beside small results that is many roundings."""
    compare(name, "rows=7,dim=301", roundings=64)


def test_rope() -> None:
    compare("rope", "tokens=5,heads=3,half=32", "T=f16,R=f16")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", ["m=1,n=16,k=16", "m=130,n=270,k=100", "m=20,n=600,k=333"])
def test_matmul(shape: str, dtype: str) -> None:
    compare("matmul", shape, f"T={dtype},R={dtype}", roundings=64 if dtype == "f32" else 2)


def test_matmul_swizzled() -> None:
    compare("matmul", "m=500,n=1100,k=70", "T=f16,R=f16", options=Options(cores=3, swizzle=2))


@pytest.mark.parametrize("given", ["", "bias", "residual", "bias,residual"])
def test_linear(given: str) -> None:
    compare("linear", "m=50,n=300,k=200", "A=f16,W=f16,R=f16", given)


def test_product_with_bias_and_gelu() -> None:
    compare("matmul_bias_gelu", "m=150,n=200,k=100", "T=f16,R=f16", roundings=4)


@pytest.mark.parametrize(("result", "given"), [("i32", ""), ("f16", "scale"), ("f32", "scale")])
def test_product_of_bytes(result: str, given: str) -> None:
    compare("matmul_i8", "m=50,n=300,k=200", f"S={result}", given)


@settings(max_examples=10)
@given(st.integers(1, 40), st.integers(1, 4), st.sampled_from([16, 48, 64]), st.integers(1, 300),
       st.sampled_from(["f32", "f16"]))  # fmt: skip
def test_products_with_four_bit_weights(m: int, groups: int, half: int, n: int, dst: str) -> None:
    """Two products a trip into one sum; nibbles unpacked by the vector cores."""
    shape = f"m={m},groups={groups},half={half},n={n}"
    compare("matmul_int4", shape, f"R={dst}", roundings=64 if dst == "f32" else 2)


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("shape", ["heads=2,kvheads=1,s=70,t=70,d=32",
                                   "heads=3,kvheads=3,s=33,t=600,d=16",
                                   "heads=2,kvheads=2,s=1,t=800,d=64"])  # fmt: skip
def test_flash_attention(shape: str, ahead: int) -> None:
    options = Options(cores=2, ahead=ahead)
    compare("flash_attention", shape, "Q=f16,R=f16", options=options, roundings=16)


@pytest.mark.parametrize(("dtype", "roundings"), [("f32", 64), ("f16", 16), ("bf16", 16)])
def test_decode_attention(dtype: str, roundings: float) -> None:
    compare("decode_attention", "ctx=300", f"Q={dtype},R={dtype}", roundings=roundings)


@pytest.mark.parametrize("shape", ["m=150,n=700,k=100", "m=3,n=270,k=40", "m=257,n=512,k=64"])
def test_a_block_too_large_for_the_vector_core_goes_in_parts(shape: str) -> None:
    """The cube's tile is larger than what fits UB with gelu's temporaries."""
    compare("matmul_bias_gelu", shape, "T=f16,R=f16", consts="M=128,N=256", roundings=4)


@pytest.mark.parametrize("part", [1, 7, 24, 500])
def test_a_vector_core_takes_as_many_rows_as_it_is_told(part: int) -> None:
    options = Options(cores=2, part=part)
    compare("matmul_bias_gelu", "m=150,n=300,k=100", "T=f16,R=f16", options=options, roundings=4)


def test_parts_inside_of_a_loop_are_refused() -> None:
    with pytest.raises(OptionError, match="option part: .* inside of its loops"):
        launched("flash_attention", "heads=1,kvheads=1,s=8,t=8,d=16", "Q=f16,R=f16",
                 options=Options(part=4)).holds(1)  # fmt: skip
