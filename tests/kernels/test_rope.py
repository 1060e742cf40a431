import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import NUMPY, UNIT, Target, assert_close, empty

import terrazzo.lang as tz
from terrazzo.kernels import rope

POSITIONS, PAGE = 64, 16


def tables(half: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    angle = np.arange(POSITIONS)[:, None] * 10000.0 ** (-np.arange(half) / half)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32), angle


def turned(x: np.ndarray, position: np.ndarray, half: int, interleaved: bool) -> np.ndarray:
    """The oracle multiplies complex numbers: pair (a, b) is a + bi, turned by e^(i·angle)."""
    x = x.astype(np.float64)
    z = x[..., 0::2] + 1j * x[..., 1::2] if interleaved else x[..., :half] + 1j * x[..., half:]
    z = z * np.exp(1j * tables(half)[2][position])[:, None]
    out = np.empty_like(x)
    if interleaved:
        out[..., 0::2], out[..., 1::2] = z.real, z.imag
    else:
        out[..., :half], out[..., half:] = z.real, z.imag
    return out


def pairs(x: np.ndarray, interleaved: bool, axis: int = -1) -> np.ndarray:
    """View of the head dimension `axis` as the two dims the kernels want."""
    axis %= x.ndim
    half = x.shape[axis] // 2
    split = (half, 2) if interleaved else (2, half)
    return x.reshape(*x.shape[:axis], *split, *x.shape[axis + 1 :])


def slack(x: np.ndarray) -> float:
    return 6 * UNIT["f32"] * float(np.abs(x.astype(np.float64)).max(initial=0)) * 2


@pytest.mark.parametrize("interleaved", [False, True])
@settings(max_examples=15, deadline=None)
@given(
    tokens=st.integers(0, 7),
    heads=st.integers(1, 5),
    half=st.integers(1, 33),
    src=st.sampled_from(["f32", "f16"]),
    dst=st.sampled_from(["f32", "f16"]),
)
def test_rope(
    target: Target, interleaved: bool, tokens: int, heads: int, half: int, src: str, dst: str
) -> None:
    rng = np.random.default_rng(tokens + 10 * half)
    x = rng.standard_normal((tokens, heads, 2 * half)).astype(NUMPY[src])
    position = rng.integers(0, POSITIONS, tokens).astype(np.int32)
    cos, sin, _ = tables(half)
    out = empty(x.shape, dst)
    kernel: tz.Kernel = rope.rope_interleaved if interleaved else rope.rope
    target(
        kernel,
        x=pairs(x, interleaved),
        cos=cos,
        sin=sin,
        position=position,
        out=pairs(out, interleaved),
    )
    assert_close(out, turned(x, position, half, interleaved), slack(x))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("cache", ["f16", "f32"])
def test_rope_store(target: Target, interleaved: bool, cache: str) -> None:
    """q in place, k and v to shuffled slots, from slices of one tensor; other slots stay."""
    rng = np.random.default_rng(5)
    tokens, heads, kvheads, half, pages = 21, 6, 2, 8, 4
    d = 2 * half
    fused = rng.standard_normal((tokens, (heads + 2 * kvheads) * d)).astype(np.float32)
    parts = np.split(fused, [heads * d, (heads + kvheads) * d], axis=1)
    q, k, v = (p.reshape(tokens, -1, d).copy() for p in parts)
    position = rng.integers(0, POSITIONS, tokens).astype(np.int32)
    slot = rng.permutation(pages * PAGE)[:tokens].astype(np.int32)
    cos, sin, _ = tables(half)
    kcache, vcache = (
        empty((pages, kvheads, d, PAGE), cache),
        empty((pages, kvheads, PAGE, d), cache),
    )
    want_q, want_k = turned(q, position, half, interleaved), turned(k, position, half, interleaved)
    views = [
        fused[:, : heads * d],
        fused[:, heads * d : (heads + kvheads) * d],
        fused[:, -kvheads * d :],
    ]
    qv, kv, vv = (f.reshape(tokens, -1, d) for f in views)

    def grouped(x: np.ndarray) -> np.ndarray:
        return x.reshape(tokens, kvheads, heads // kvheads, *x.shape[2:])

    target(
        rope.rope_store_interleaved if interleaved else rope.rope_store,
        q=grouped(pairs(qv, interleaved)),
        k=pairs(kv, interleaved),
        v=vv,
        cos=cos,
        sin=sin,
        position=position,
        slot=slot,
        out=grouped(pairs(qv, interleaved)),
        kcache=pairs(kcache, interleaved, -2),
        vcache=vcache,
    )
    assert_close(qv, want_q, slack(q))
    page, lane = slot // PAGE, slot % PAGE
    assert_close(kcache[page, :, :, lane], want_k, slack(k))
    assert np.array_equal(vcache[page, :, lane], v.astype(NUMPY[cache]))
    assert np.count_nonzero(vcache != 77) == tokens * kvheads * d
    assert np.count_nonzero(kcache != 77) == tokens * kvheads * d
