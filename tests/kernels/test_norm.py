import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import NUMPY, UNIT, Target, a8_rows, assert_close, empty

from terrazzo.ir import formats
from terrazzo.kernels import norm

EPS = 1e-5
floats = st.sampled_from(["f32", "f16", "bf16"])


def rms(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPS) * w


def slack(exact: np.ndarray, dim: int) -> np.ndarray:
    """f32 sums of dim squares (relative error dim · u, halved by the root), then a few f32 ops."""
    return np.abs(exact) * (dim / 2 + 8) * UNIT["f32"]


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(0, 19),
    dim=st.integers(1, 140),
    src=floats,
    dst=floats,
    seed=st.integers(0, 99),
)
def test_rms_norm(target: Target, rows: int, dim: int, src: str, dst: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, dim)).astype(NUMPY[src])
    w = rng.standard_normal(dim).astype(np.float32)
    out = empty(x.shape, dst)
    target(norm.rms_norm, x=x, weight=w, out=out, eps=EPS)
    exact = rms(x, w)
    assert_close(out, exact, slack(exact, dim))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-3, 1e15])
def test_rms_norm_of_extreme_rows(target: Target, scale: float) -> None:
    x = (np.random.default_rng(1).standard_normal((3, 64)) * scale).astype(np.float32)
    w, out = np.ones(64, np.float32), empty((3, 64))
    target(norm.rms_norm, x=x, weight=w, out=out, eps=EPS)
    exact = rms(x, w)
    assert_close(out, exact, slack(exact, 64) + 2.0**-126)  # denormal squares may vanish


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 9), groups=st.integers(1, 5), seed=st.integers(0, 99))
def test_rms_norm_into_a8_is_the_quantised_norm(
    target: Target, rows: int, groups: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, w = (
        rng.standard_normal((rows, 32 * groups)).astype(np.float32),
        np.ones(32 * groups, np.float32),
    )
    out = a8_rows(*x.shape)
    target(norm.rms_norm, x=x, weight=w, out=out, eps=EPS)
    exact = rms(x, w)
    top = np.abs(exact).reshape(rows, 2 * groups, 16).max(-1, keepdims=True)
    got = formats.decode("a8", out.data, x.shape).reshape(rows, 2 * groups, 16)
    # Half a step of top/127; a little more for values whose f32 norm lay across a rounding
    # boundary.
    assert (np.abs(got - exact.reshape(got.shape)) <= top / 127 * 0.501).all()


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 19), dim=st.integers(1, 80), dtype=floats, seed=st.integers(0, 99))
def test_add_rms_norm(target: Target, rows: int, dim: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal((rows, dim)).astype(NUMPY[dtype]) for _ in "xy")
    w = rng.standard_normal(dim).astype(np.float32)
    total, out = empty(x.shape, dtype), empty(x.shape, "f32")
    target(norm.add_rms_norm, x=x, y=y, weight=w, total=total, out=out, eps=EPS)
    assert np.array_equal(total, (x.astype(np.float64) + y.astype(np.float64)).astype(NUMPY[dtype]))
    exact = rms(total, w)
    assert_close(out, exact, slack(exact, dim))


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 19), dim=st.integers(1, 80), bias=st.booleans(), seed=st.integers(0, 99))
def test_layer_norm(target: Target, rows: int, dim: int, bias: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, dim)) + 3).astype(np.float32)
    w, b = (rng.standard_normal(dim).astype(np.float32) for _ in "wb")
    out = empty(x.shape)
    target(norm.layer_norm, x=x, weight=w, out=out, eps=EPS, **({"bias": b} if bias else {}))
    c = x - x.astype(np.float64).mean(-1, keepdims=True)
    deviation = np.sqrt((c * c).mean(-1, keepdims=True) + EPS)
    exact = c / deviation * w + (b if bias else 0)
    # The mean's error, dim · u · max|x|, moves every centred value; it weighs most where all are
    # equal.
    shift = (dim + 8) * UNIT["f32"] * np.abs(x).max(-1, keepdims=True) / deviation * np.abs(w)
    assert_close(out, exact, slack(exact, dim) + 2 * shift * (1 + np.abs(c) / deviation))
