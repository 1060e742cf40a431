"""Values computed ahead of a grid: every thread makes them for itself; a8 tiles as operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import twin
from hypothesis import given, settings
from hypothesis import strategies as st

import terrazzo.lang as tz
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed

m, n, k = tz.dims("m n k")
W = tz.dtypes("W", tz.f32, tz.f16, tz.q8_0, tz.q4_1)


def normalised(t: Any) -> Any:
    return t * tz.rsqrt(tz.mean(t * t, axis=k) + 1e-5)


@tz.kernel
def normed_product(
    x: tz.gm[tz.f32, m, k], w: tz.gm[W, n, k], out: tz.gm[tz.f32, m, n], int8: tz.const, N: tz.const
):
    """out = norm(x) @ wᵀ, for few rows: all of them on every core."""
    t = normalised(tz.load(x, space=tz.UB))
    t = tz.quantize(t, tz.a8) if int8 else t
    for j in tz.grid(n, step=N):
        out[:, j] = t @ tz.load(w[j], space=tz.L1)


@tz.kernel
def in_two_steps(x: tz.gm[tz.f32, m, k], t: tz.gm[tz.a8, m, k], w: tz.gm[W, n, k],
                 out: tz.gm[tz.f32, m, n], N: tz.const):  # fmt: skip
    """The same through memory."""
    for i in tz.grid(m):
        t[i] = tz.quantize(normalised(tz.load(x[i], space=tz.UB)), tz.a8)
    for j in tz.grid(n, step=N):
        out[:, j] = tz.load(t, space=tz.L1) @ tz.load(w[j], space=tz.L1)


def weights(rng: np.random.Generator, name: str, rows: int, width: int) -> Any:
    x = rng.standard_normal((rows, width)).astype(np.float32)
    if name in twin.NUMPY:
        return x.astype(twin.NUMPY[name])
    return Packed(formats.FORMATS[name], x.shape, formats.encode(name, x))


@pytest.mark.parametrize("dtype", ["f32", "f16", "q8_0", "q4_1"])
@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 9), cols=st.sampled_from([1, 16, 17, 48, 100, 260]),
    width=st.sampled_from([32, 64, 96, 288]), tile=st.sampled_from([16, 32, 256]),
    threads=st.integers(1, 5), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_computed_ahead_of_a_grid(
    dtype: str, rows: int, cols: int, width: int, tile: int, threads: int, seed: int
) -> None:
    """Close to the reference target; in a8, the bits of the two-step version."""
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((rows, width)).astype(np.float32), weights(rng, dtype, cols, width)
    out, int8 = twin.empty((rows, cols)), dtype in formats.FORMATS
    args: dict[str, Any] = {"x": x, "w": w, "out": out, "N": tile}
    t = np.abs(x) / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-5)
    plain = np.abs(formats.decode(dtype, w.data, w.shape) if int8 else w.astype(np.float32))
    slack = 2.0**-24 * (2 * width + 32) * (t @ plain.T)
    if int8:  # two values may fall to the other side of a rounding
        slack += 2 * t.max() / 127 * plain.max()
    twin.close(normed_product, lambda _: slack, threads, int8=int8, **args)
    if int8:
        size = formats.bytes_per_row("a8", width)
        packed = Packed(formats.A8, x.shape, np.zeros((rows, size), np.uint8))
        got = twin.on_cpu(normed_product, threads, int8=True, **args)["out"]
        assert np.array_equal(got, twin.on_cpu(in_two_steps, threads, t=packed, **args)["out"])
