import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import NUMPY, UNIT, Target, a8_rows, assert_close, empty

import terrazzo.lang as tz
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
