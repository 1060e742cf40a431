from math import erf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import NUMPY, UNIT, Target, a8_rows, assert_close, empty

import terrazzo.lang as tz
from terrazzo.errors import KernelError
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.kernels import linear

Operand = np.ndarray | Packed
PACKED = ["q8_0", "q4_0", "q4_1", "q6_k"]


def make(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> tuple[Operand, np.ndarray]:
    """A random operand of an element type or format, and its exact values."""
    x = rng.standard_normal(shape).astype(np.float32)
    if kind in NUMPY:
        y = x.astype(NUMPY[kind])
        return y, y.astype(np.float64)
    fmt = formats.FORMATS[kind]
    data = formats.encode(fmt, x)
    return Packed(fmt, shape, data), formats.decode(fmt, data, shape).astype(np.float64)


def slack(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """f32 sum of k products in any order: (k + a few) · u · Σ|a·b|."""
    return (a.shape[-1] + 4) * UNIT["f32"] * (np.abs(a) @ np.abs(b))


@settings(max_examples=20, deadline=None)
@given(
    m=st.integers(0, 40),
    n=st.integers(1, 40),
    k=st.integers(0, 70),
    src=st.sampled_from(["f32", "f16", "bf16"]),
    dst=st.sampled_from(["f32", "f16", "bf16"]),
    tiles=st.sampled_from([(128, 256, 64), (8, 16, 16)]),
)
def test_matmul(
    target: Target, m: int, n: int, k: int, src: str, dst: str, tiles: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(m + 100 * n)
    (a, a64), (b, b64) = make(rng, (m, k), src), make(rng, (k, n), src)
    out = empty((m, n), dst)
    target(linear.matmul, a=a, b=b, out=out, M=tiles[0], N=tiles[1], K=tiles[2])
    assert_close(out, a64 @ b64, slack(a64, b64))


def exact_gelu(x: np.ndarray, act: str) -> np.ndarray:
    if act == "gelu":
        return 0.5 * x * (1 + np.vectorize(erf, otypes=[float])(x / np.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@settings(max_examples=20, deadline=None)
@given(
    m=st.integers(0, 40),
    n=st.integers(1, 40),
    k=st.integers(0, 70),
    src=st.sampled_from(["f32", "f16", "bf16"]),
    dst=st.sampled_from(["f32", "f16", "bf16"]),
    act=st.sampled_from(["gelu", "gelu_tanh"]),
)
def test_matmul_bias_gelu(
    target: Target, m: int, n: int, k: int, src: str, dst: str, act: str
) -> None:
    rng = np.random.default_rng(m + 100 * n)
    (a, a64), (b, b64) = make(rng, (m, k), src), make(rng, (k, n), src)
    bias, out = rng.standard_normal(n).astype(np.float32), empty((m, n), dst)
    tiles = {"M": 16, "N": 8, "K": 16}
    target(linear.matmul_bias_gelu, a=a, b=b, bias=bias, out=out, act=getattr(tz, act), **tiles)
    sums = a64 @ b64 + bias
    # gelu's slope is below 1.13; its own steps round to a few units of what they add.
    wide = 1.13 * slack(a64, b64) + 8 * UNIT["f32"] * (np.abs(sums) + 1)
    assert_close(out, exact_gelu(sums, act), wide)


@settings(max_examples=20, deadline=None)
@given(
    m=st.integers(0, 40),
    n=st.integers(1, 40),
    k=st.integers(0, 70),
    tiles=st.sampled_from([(128, 128, 128), (8, 16, 16), (8, 16, 1024)]),
    edge=st.booleans(),
)
def test_matmul_i8_is_exact(
    target: Target, m: int, n: int, k: int, tiles: tuple[int, int, int], edge: bool
) -> None:
    rng = np.random.default_rng(m + 100 * n)
    a, b = (rng.integers(-128, 128, shape, np.int8) for shape in ((m, k), (k, n)))
    if edge:
        a[:], b[:] = -128, rng.choice(np.array([-128, 127], np.int8), (k, n))
    out = np.full((m, n), 77, np.int32)
    target(linear.matmul_i8, a=a, b=b, out=out, M=tiles[0], N=tiles[1], K=tiles[2])
    assert np.array_equal(out, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("k", [1024, 5000])
def test_matmul_i8_sums_beyond_what_f32_holds(target: Target, k: int) -> None:
    a, b = np.full((3, k), -128, np.int8), np.full((k, 2), -128, np.int8)
    a[:, 0], b[0] = 1, 1
    out = np.full((3, 2), 77, np.int32)
    target(linear.matmul_i8, a=a, b=b, out=out)
    assert (out == (k - 1) * 128 * 128 + 1).all()


@pytest.mark.parametrize("dst", ["f32", "f16", "bf16"])
def test_matmul_i8_scaled(target: Target, dst: str) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-128, 128, shape, np.int8) for shape in ((9, 100), (100, 33)))
    scale, out = rng.random(33).astype(np.float32) * 1e-3, empty((9, 33), dst)
    target(linear.matmul_i8, a=a, b=b, out=out, scale=scale)
    exact = (a.astype(np.int64) @ b.astype(np.int64)) * scale.astype(np.float64)
    assert_close(out, exact, 2 * UNIT["f32"] * np.abs(exact))  # to f32, times scale


def test_long_sums_of_bytes_are_refused() -> None:
    a, b = np.zeros((2, 4000), np.int8), np.zeros((4000, 2), np.int8)
    with pytest.raises(KernelError, match=r"up to 2,048 products along `p`; .*up to 1,024") as e:
        linear.matmul_i8(a, b, np.zeros((2, 2), np.int32), K=2048)
    assert e.value.where.partition(":")[0].endswith("linear.py") and "^^^" in e.value.caret


@pytest.mark.parametrize("weights", ["f32", "f16", "bf16", *PACKED])
@pytest.mark.parametrize("activations", ["f32", "f16", "a8"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 33, 256), (7, 64, 512), (19, 5, 768)])
def test_linear(target: Target, activations: str, weights: str, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    (a, a64), (w, w64) = make(rng, (m, k), activations), make(rng, (n, k), weights)
    out = empty((m, n))
    target(linear.linear, a=a, w=w, out=out, M=8, N=32)
    assert_close(out, a64 @ w64.T, slack(a64, w64.T))


@settings(max_examples=20, deadline=None)
@given(
    m=st.integers(1, 9),
    n=st.integers(1, 40),
    bias=st.booleans(),
    residual=st.booleans(),
    act=st.booleans(),
    dst=st.sampled_from(["f32", "f16"]),
)
def test_epilogues(
    target: Target, m: int, n: int, bias: bool, residual: bool, act: bool, dst: str
) -> None:
    rng = np.random.default_rng(m + 10 * n)
    (a, a64), (w, w64) = make(rng, (m, 64), "a8"), make(rng, (n, 64), "q4_1")
    b, r = rng.standard_normal(n).astype(np.float32), rng.standard_normal((m, n)).astype(NUMPY[dst])
    out = empty((m, n), dst)
    given = {"bias": b} if bias else {}
    given |= {"residual": r} if residual else {}
    given |= {"act": tz.silu} if act else {}
    target(linear.linear, a=a, w=w, out=out, K=64, **given)
    sums = a64 @ w64.T + (b if bias else 0)
    exact = sums / (1 + np.exp(-sums)) if act else sums
    exact = exact + (r.astype(np.float64) if residual else 0)
    # silu's slope is below 1.1; each epilogue step rounds once more, relative to what it adds.
    assert_close(
        out, exact, 1.1 * slack(a64, w64.T) + 8 * UNIT["f32"] * (np.abs(sums) + np.abs(exact) + 4)
    )


def test_residual_in_place(target: Target) -> None:
    rng = np.random.default_rng(3)
    (a, a64), (w, w64) = make(rng, (5, 64), "f32"), make(rng, (40, 64), "f32")
    x = rng.standard_normal((5, 40)).astype(np.float32)
    exact = a64 @ w64.T + x
    target(linear.linear, a=a, w=w, out=x, residual=x)
    assert_close(x, exact, slack(a64, w64.T) + 2 * UNIT["f32"] * np.abs(exact))


@pytest.mark.parametrize(("m", "n"), [(1, 96), (9, 64)])
@pytest.mark.parametrize("dst", ["f32", "a8"])
def test_gated_linear(target: Target, m: int, n: int, dst: str) -> None:
    rng = np.random.default_rng(m)
    a, a64 = make(rng, (m, 128), "a8")
    (g, g64), (u, u64) = make(rng, (n, 128), "q4_0"), make(rng, (n, 128), "q4_0")
    gate, up = a64 @ g64.T, a64 @ u64.T
    exact = gate / (1 + np.exp(-gate)) * up
    if dst == "f32":
        out = empty((m, n))
        target(linear.gated_linear, a=a, gate=g, up=u, out=out, N=32)
        wide = 1.1 * slack(a64, g64.T) * np.abs(up) + slack(a64, u64.T) * np.abs(gate)
        assert_close(out, exact, wide + 8 * UNIT["f32"] * np.abs(exact) + 1e-9)
    else:
        packed = a8_rows(m, n)
        target(linear.gated_linear, a=a, gate=g, up=u, out=packed, N=32)
        top = np.abs(exact).reshape(m, -1, 16).max(-1).repeat(16, -1)
        assert (np.abs(formats.decode("a8", packed.data, (m, n)) - exact) <= top / 127 * 0.51).all()
