import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import NUMPY, UNIT, Target, a8_rows, assert_close, empty

import terrazzo.lang as tz
from terrazzo.ir import formats
from terrazzo.kernels import activation, quantize

erf = np.vectorize(math.erf, otypes=[np.float64])


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


CASES = [(activation.silu, silu), (activation.gelu, gelu), (activation.gelu_tanh, gelu_tanh)]


@pytest.mark.parametrize(("kernel", "oracle"), CASES)
@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(0, 9), dim=st.integers(1, 70), dtype=st.sampled_from(["f32", "f16", "bf16"])
)
def test_alone(target: Target, kernel: tz.Kernel, oracle, rows: int, dim: int, dtype: str) -> None:
    x = (np.random.default_rng(dim).standard_normal((rows, dim)) * 4).astype(NUMPY[dtype])
    out = empty(x.shape, dtype)
    target(kernel, x=x, out=out)
    # 1 + erf and 1 + tanh cancel for negative x: an absolute error of a few u · |x|.
    assert_close(out, oracle(x.astype(np.float64)), 16 * UNIT["f32"] * np.abs(x.astype(np.float64)))


@pytest.mark.parametrize("kernel", [k for k, _ in CASES])
def test_limits(target: Target, kernel: tz.Kernel) -> None:
    x = np.array([[0.0, -0.0, np.inf, -100.0, 100.0, 1e30, 1e-30, np.nan]], np.float32)
    out = empty(x.shape)
    target(kernel, x=x, out=out)
    assert np.array_equal(
        out[0, [0, 1, 2, 3, 4, 5]], np.array([0, 0, np.inf, 0, 100, 1e30], np.float32)
    )
    assert out[0, 6] == np.float32(5e-31) and np.isnan(out[0, 7])


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 9), dim=st.integers(1, 70), act=st.sampled_from(["silu", "gelu"]))
def test_gate(target: Target, rows: int, dim: int, act: str) -> None:
    rng = np.random.default_rng(dim)
    g, u = (rng.standard_normal((rows, dim)).astype(np.float32) for _ in "gu")
    out = empty(g.shape)
    fn, oracle = (tz.silu, silu) if act == "silu" else (tz.gelu, gelu)
    target(activation.silu_mul, gate=g, up=u, out=out, act=fn)
    slack = 16 * UNIT["f32"] * np.abs(g.astype(np.float64) * u)
    assert_close(out, oracle(g.astype(np.float64)) * u, slack)


def test_gate_into_a8(target: Target) -> None:
    rng = np.random.default_rng(0)
    g, u = (rng.standard_normal((5, 96)).astype(np.float32) for _ in "gu")
    out = a8_rows(*g.shape)
    target(activation.silu_mul, gate=g, up=u, out=out)
    exact = (silu(g.astype(np.float64)) * u).reshape(5, 6, 16)
    got = formats.decode("a8", out.data, g.shape).reshape(5, 6, 16)
    assert (np.abs(got - exact) <= np.abs(exact).max(-1, keepdims=True) / 127 * 0.501).all()


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(0, 9), groups=st.integers(1, 4), dtype=st.sampled_from(["f32", "f16"]))
def test_quantize(target: Target, rows: int, groups: int, dtype: str) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 32 * groups)).astype(NUMPY[dtype])
    out = a8_rows(*x.shape)
    target(quantize.quantize, x=x, out=out)
    q, scale, total = formats.a8_parts(out.data)
    if not rows:
        return
    each = x.shape[1] // scale.shape[1]  # values that share a scale
    wide = x.astype(np.float64).reshape(rows, -1, each)
    top = np.abs(wide).max(-1)
    assert np.allclose(scale, top / 127, rtol=2 * UNIT["f32"], atol=0)
    steps = q.reshape(wide.shape).astype(np.float64)
    assert (np.abs(steps - wide * 127 / top[..., None]) <= 0.5 + 1e-4).all()
    sums = (scale * steps.sum(-1)).reshape(*total.shape, -1).sum(-1)
    assert np.allclose(total, sums, rtol=0, atol=4 * UNIT["f32"] * np.abs(wide).sum() / rows)
