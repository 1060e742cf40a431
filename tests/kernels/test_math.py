import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import NUMPY, Target, assert_close, empty

from terrazzo.kernels import math

sizes = st.one_of(st.integers(0, 70), st.sampled_from([4095, 4096, 4097, 9000]))
floats = st.sampled_from(["f32", "f16", "bf16"])


@settings(max_examples=25, deadline=None)
@given(n=sizes, dtype=floats, seed=st.integers(0, 99))
def test_add_and_mul_round_once(target: Target, n: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(n).astype(NUMPY[dtype]) for _ in "ab")
    for kernel, fn in ((math.add, np.add), (math.mul, np.multiply)):
        out = empty((n,), dtype)
        target(kernel, a=a, b=b, out=out)
        # f16 and bf16 sums and products are exact in f64 before this single rounding.
        assert np.array_equal(
            out, fn(a.astype(np.float64), b.astype(np.float64)).astype(NUMPY[dtype])
        )


@settings(max_examples=25, deadline=None)
@given(n=sizes, src=floats, dst=floats)
def test_copy_casts_to_nearest(target: Target, n: int, src: str, dst: str) -> None:
    x = (np.random.default_rng(n).standard_normal(n) * 3).astype(NUMPY[src])
    out = empty((n,), dst)
    target(math.copy, x=x, out=out)
    assert_close(out, x.astype(np.float64))
    assert np.array_equal(out, x.astype(np.float32).astype(NUMPY[dst]))


def test_copy_keeps_special_values(target: Target) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, 65520.0, 1e-8, 3.4e38], np.float32)
    out = empty(x.shape, "f16")
    target(math.copy, x=x, out=out)
    want = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, np.inf, 0.0, np.inf], np.float16)
    assert np.array_equal(out, want, equal_nan=True)
    assert np.signbit(out[1])


def test_add_in_place(target: Target) -> None:
    a, b = np.arange(5000, dtype=np.float32), np.ones(5000, np.float32)
    target(math.add, a=a, b=b, out=a)
    assert np.array_equal(a, np.arange(5000) + 1)


@settings(max_examples=20, deadline=None)
@given(n=sizes, dtype=floats, tiles=st.sampled_from([(65536, 4096), (1000, 128), (7, 3)]))
def test_add_custom(target: Target, n: int, dtype: str, tiles: tuple[int, int]) -> None:
    """Blocks and their tiles both have tails; each sum is rounded once."""
    rng = np.random.default_rng(n)
    x, y = (rng.standard_normal(n).astype(NUMPY[dtype]) for _ in "xy")
    z = empty((n,), dtype)
    target(math.add_custom, x=x, y=y, z=z, BLOCK=tiles[0], TILE=tiles[1])
    assert np.array_equal(z, (x.astype(np.float64) + y.astype(np.float64)).astype(NUMPY[dtype]))
