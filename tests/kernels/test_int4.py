"""Weights of four bits against their definition, decoded one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import UNIT, Target, assert_close, empty

from terrazzo.kernels import int4


def packed(codes: np.ndarray, half: int) -> np.ndarray:
    """Codes [k, n] -> bytes [groups, half, n]; code r and code r + half of a group in a byte."""
    k, n = codes.shape
    low, high = codes.reshape(k // (2 * half), 2, half, n).swapaxes(0, 1)
    return low | high << 4


def decoded(w: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Bytes to weights [k, n], k after k, in float64, each difference and product rounded to f16
    as the kernel's contract has it."""
    groups, half, n = w.shape
    out = np.empty((groups * 2 * half, n))
    for row in range(len(out)):
        g, place = divmod(row, 2 * half)
        byte = w[g, place % half]
        code = (byte >> 4 if place >= half else byte & 15).astype(np.float64)
        out[row] = ((code - zero[g]).astype(np.float16) * scale[g].astype(np.float64)).astype(
            np.float16
        )
    return out


@settings(max_examples=20, deadline=None)
@given(
    m=st.integers(1, 40),
    n=st.integers(1, 40),
    groups=st.integers(1, 4),
    half=st.sampled_from([16, 64]),
    dst=st.sampled_from(["f32", "f16", "bf16"]),
    whole=st.booleans(),
    tiles=st.sampled_from([{}, {"M": 8, "N": 16}]),
)
def test_matmul_int4(
    target: Target,
    m: int,
    n: int,
    groups: int,
    half: int,
    dst: str,
    whole: bool,
    tiles: dict[str, int],
) -> None:
    rng = np.random.default_rng(m + 100 * n)
    codes = rng.integers(0, 16, (groups * 2 * half, n), np.uint8)
    a = rng.standard_normal((m, len(codes))).astype(np.float16)
    scale = (0.1 * rng.random((groups, n))).astype(np.float16)
    zero = rng.integers(0, 16, (groups, n)) if whole else 16 * rng.random((groups, n))
    zero = zero.astype(np.float16)
    w, out = packed(codes, half), empty((m, n), dst)
    args = {"a": a.reshape(m, groups, 2, half), "w": w, "scale": scale, "zero": zero, "out": out}
    target(int4.matmul_int4, **args, **tiles)
    a64, w64 = a.astype(np.float64), decoded(w, scale, zero)
    bound = (len(codes) + 4) * UNIT["f32"] * (np.abs(a64) @ np.abs(w64))
    assert_close(out, a64 @ w64, bound)


@pytest.mark.parametrize("code", range(16))
def test_every_code(target: Target, code: int) -> None:
    """One weight at a time, low and high half, its neighbour in the byte all ones."""
    for place in (0, 16):
        codes = np.full((32, 1), 15, np.uint8)
        codes[place] = code
        a = np.zeros((1, 1, 2, 16), np.float16)
        a[0, 0, place // 16, 0] = 1
        one, out = np.ones((1, 1), np.float16), empty((1, 1))
        target(int4.matmul_int4, a=a, w=packed(codes, 16), scale=one, zero=8 * one, out=out)
        assert out[0, 0] == code - 8
