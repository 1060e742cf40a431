"""Formats against definitions written out value by value, and encoders against their error
bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terrazzo.ir import formats

WEIGHTS = tuple(formats.SPECS)


def f16(raw: np.ndarray, at: int) -> float:
    return float(raw[at : at + 2].copy().view(np.float16)[0])


def by_hand(name: str, b: np.ndarray) -> list[float]:
    """One block, value by value, from the published description of the format."""
    if name == "q8_0":
        return [f16(b, 0) * int(np.int8(b[2 + i])) for i in range(32)]
    if name in ("q4_0", "q4_1"):
        at = 2 if name == "q4_0" else 4
        out = [0.0] * 32
        for i in range(16):
            for half, code in enumerate((int(b[at + i]) & 15, int(b[at + i]) >> 4)):
                d = f16(b, 0)
                out[i + 16 * half] = (
                    d * (code - 8) if name == "q4_0" else float(np.float32(d * code)) + f16(b, 2)
                )
        return out
    out = [0.0] * 256
    for half in range(2):
        low, high, sub = b[64 * half :], b[128 + 32 * half :], b[192 + 8 * half :].view(np.int8)
        for i in range(32):
            codes = (
                (int(low[i]) & 15) | (int(high[i]) & 3) << 4,
                (int(low[i + 32]) & 15) | (int(high[i]) >> 2 & 3) << 4,
                (int(low[i]) >> 4) | (int(high[i]) >> 4 & 3) << 4,
                (int(low[i + 32]) >> 4) | (int(high[i]) >> 6 & 3) << 4,
            )
            for quarter, code in enumerate(codes):
                scale = f16(b, 208) * int(sub[2 * quarter + i // 16])
                out[128 * half + 32 * quarter + i] = scale * (code - 32)
    return out


def random_blocks(name: str, count: int, seed: int = 0) -> np.ndarray:
    """Every byte random, scales and mins finite."""
    rng = np.random.default_rng(seed)
    s = formats.SPECS[name]
    blocks = rng.integers(0, 256, (count, s.bytes), dtype=np.uint8)
    for at in (s.scale, s.min):
        if at is not None:
            half = rng.standard_normal((count, 1)).astype(np.float16)
            blocks[:, at : at + 2] = half.view(np.uint8)
    return blocks


@pytest.mark.parametrize("name", WEIGHTS)
def test_decode_is_the_definition(name: str) -> None:
    blocks = random_blocks(name, 3)
    got = formats.decode(name, blocks, (3, formats.SPECS[name].block))
    want = np.array([by_hand(name, b) for b in blocks], np.float32)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("name", WEIGHTS)
def test_codes_pack_back(name: str) -> None:
    s = formats.SPECS[name]
    blocks = random_blocks(name, 5)
    again = blocks.copy()
    again[:, [b for p in s.planes for b in range(p.offset, p.offset + s.block * p.bits // 8)]] = 0
    formats.pack_codes(s, formats.codes(s, blocks), again)
    assert np.array_equal(again, blocks)


@pytest.mark.parametrize(
    ("name", "steps"),
    [("q8_0", 0.563 / 127), ("q4_0", 1.02 / 8), ("q4_1", 1.02 / 15), ("q6_k", 1.02 / 31)],
)
def test_encode_error_is_within_the_step(name: str, steps: float) -> None:
    """Half a step of the grid, plus 2^-11 of the span for the f16 scale; whole steps at the rim of
    the asymmetric grids."""
    x = np.random.default_rng(1).standard_normal((7, 512), dtype=np.float32)
    raw = formats.encode(name, x)
    assert raw.shape == (7, formats.bytes_per_row(name, 512))
    block = formats.SPECS[name].block
    span = np.abs(x.reshape(7, -1, block)).max(-1, keepdims=True)
    error = np.abs(formats.decode(name, raw, x.shape) - x).reshape(7, -1, block)
    assert (error <= span * steps * (2 if name == "q4_1" else 1)).all()


@pytest.mark.parametrize("name", formats.FORMATS)
def test_zeros_and_group(name: str) -> None:
    x = np.zeros((2, 256), np.float32)
    assert not formats.decode(name, formats.encode(name, x), x.shape).any()
    with pytest.raises(ValueError, match="multiple"):
        formats.encode(name, np.zeros((1, 48), np.float32))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-40, 38))
def test_a8_bound(seed: int, exponent: float) -> None:
    """|x - scale q| <= scale / 2 plus two roundings of x / scale, each 2^-24 relative."""
    x = np.random.default_rng(seed).standard_normal((1, 64), dtype=np.float32)
    x *= np.float32(10) ** np.float32(exponent) / np.float32(8)
    row = formats.encode("a8", x)
    q, scale, total = formats.a8_parts(row)
    assert np.abs(q.astype(int)).max() <= 127
    half = scale * q.reshape(1, 4, 16).sum(-1).astype(np.float32)
    assert np.array_equal(total, half[:, ::2] + half[:, 1::2])
    live = np.repeat(scale > 0, 16, -1)
    error = np.abs(formats.decode("a8", row, x.shape).astype(np.float64) - x)
    assert (error[live] <= np.repeat(scale, 16, -1)[live] * 0.50002).all()
    assert (np.abs(x[~live]) < formats.A8_TINY).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a8_keeps_what_is_not_finite_visible(bad: float) -> None:
    x = np.ones((1, 64), np.float32)
    x[0, 3] = bad
    q, scale, total = formats.a8_parts(formats.encode("a8", x))
    assert not np.isfinite(scale[0, 0]) and np.isnan(total[0, 0]) and not q[0, :16].any()
    assert (scale[0, 1:] == np.float32(1) / np.float32(127)).all() and np.isfinite(total[0, 1])
