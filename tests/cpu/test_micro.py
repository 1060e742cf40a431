"""Micro-kernels against NumPy: bit for bit where the contract fixes every rounding, else in
float64."""

from __future__ import annotations

import re

import micro_harness as h
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_harness import fma

from terrazzo.ir import formats
from terrazzo.ir.types import DType, bf16, f16, f32
from terrazzo.targets.cpu import codegen, layouts, micro
from terrazzo.targets.cpu import isa as isas
from terrazzo.targets.cpu.isa import Isa

ISAS = h.testable()
WEIGHTS = tuple(layouts.P16S)
each_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda i: i.name)
each_format = pytest.mark.parametrize("name", WEIGHTS)


def activations(m: int, k: int, seed: int = 0) -> np.ndarray:
    """a8 rows with extremes (32 values of +-127, 16 zeros) among random ones."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, k), dtype=np.float32) * np.exp(rng.standard_normal((m, 1))).astype(
        np.float32
    )
    x[-1, :32] = rng.choice([-3.0, 3.0], 32)
    x[0, -16:] = 0
    return formats.encode("a8", x)


def weights(name: str, n: int, k: int, seed: int = 1) -> np.ndarray:
    """GGUF rows whose code bytes take every value (also those no encoder writes), scales finite."""
    rng = np.random.default_rng(seed)
    s = formats.SPECS[name]
    blocks = rng.integers(0, 256, (n, k // s.block, s.bytes), dtype=np.uint8)
    for at in (s.scale, s.min):
        if at is not None:
            blocks[..., at : at + 2] = (
                rng.standard_normal((n, k // s.block, 1)).astype(np.float16).view(np.uint8)
            )
    if name == "q8_0":
        blocks[0, :, s.planes[0].offset :] = 128  # -128: whose magnitude is no i8
    if name == "q6_k":
        blocks[0, :, 192:208] = 128
        blocks[0, :, :192] = 0
    return blocks.reshape(n, -1)


def integers(name: str, raw: np.ndarray, n: int, k: int) -> np.ndarray:
    """i64 [n, k]: code + bias, times the subscale."""
    s = formats.SPECS[name]
    blocks = raw.reshape(n, k // s.block, s.bytes)
    code = formats.codes(s, blocks)
    value = (code.view(np.int8) if s.signed else code).astype(np.int64)
    if s.sub is not None:
        sub = blocks[..., s.sub : s.sub + s.block // 16].view(np.int8).astype(np.int64)
        value = (value + s.bias) * np.repeat(sub, 16, -1)
    return value.reshape(n, k)


def dot_by_contract(name: str, a: np.ndarray, raw: np.ndarray, n: int, k: int) -> np.ndarray:
    """The sequence of roundings that `dot_q` promises, in NumPy."""
    s = formats.SPECS[name]
    q, scale, total = formats.a8_parts(a)
    groups = k // 32
    left = q.astype(np.int64).reshape(len(a), groups, 2, 16)
    right = integers(name, raw, n, k).reshape(n, groups, 2, 16)
    exact = np.einsum("mghi,nghi->ghmn", left, right)
    assert np.abs(exact).max() < 2**24
    blocks = raw.reshape(n, k // s.block, s.bytes)
    d = np.repeat(formats.f16_at(blocks, s.scale)[..., 0], s.block // 32, -1)
    low = None
    if s.min is not None:
        low = formats.f16_at(blocks, s.min)[..., 0]
    elif name == "q4_0":
        low = np.float32(-8) * d
    acc = np.zeros((len(a), n), np.float32)
    for g in range(groups):
        low_half, high_half = exact[g].astype(np.float32)
        t = low_half * scale[:, 2 * g, None]
        t = fma(high_half, scale[:, 2 * g + 1, None], t)
        acc = fma(t, d[None, :, g], acc)
        if low is not None:
            acc = fma(low[None, :, g], total[:, g, None], acc)
    return acc


@each_isa
@each_format
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 100, 512), (2, 17, 256), (7, 33, 256), (19, 70, 512), (50, 17, 4352)]
)
def test_dot_q_bits(isa: Isa, name: str, m: int, n: int, k: int) -> None:
    a, raw = activations(m, k), weights(name, n, k)
    packed = layouts.repack(name, raw, n, k)
    got = h.dot_q(isa, formats.FORMATS[name], a, packed, n, k)
    assert np.array_equal(got[:, :n], dot_by_contract(name, a, raw, n, k))
    assert not np.isnan(got).any()


@each_isa
@each_format
@pytest.mark.parametrize("m", [1, 3, 13])
def test_extremes_do_not_saturate(isa: Isa, name: str, m: int) -> None:
    """All codes at an end of their range or alternating between both, with activations of +-127:
    the largest sums a format has. (Sums of pairs of u8 x i8 saturate in 16 bits: 255 * 127 * 2.)"""
    n, k = 32, 512
    raw, s = weights(name, n, k), formats.SPECS[name]
    blocks = raw.reshape(n, k // s.block, s.bytes)
    ends = np.array([[0, 0], [255, 255], [0, 255], [127, 127], [128, 128], [128, 127]], np.uint8)
    pattern = np.resize(ends[np.arange(n) % len(ends)], (n, 2))
    for plane in s.planes:
        size = s.block * plane.bits // 8
        blocks[..., plane.offset : plane.offset + size] = np.tile(pattern, size // 2)[:, None]
    if s.sub is not None:
        blocks[..., s.sub : s.sub + s.block // 16] = [128, 127] * (s.block // 32)
    x = np.full((m, k), 3, np.float32)
    x[1::3] = -3
    x[2::3, ::2] = -3
    a = formats.encode("a8", x)
    assert set(np.unique(formats.a8_parts(a)[0])) <= {-127, 127}
    got = h.dot_q(isa, formats.FORMATS[name], a, layouts.repack(name, raw, n, k), n, k)
    assert np.array_equal(got, dot_by_contract(name, a, raw, n, k))


@each_isa
@each_format
def test_dot_q_is_close_to_the_real_product(isa: Isa, name: str) -> None:
    """Roundings are 2^-24 of the magnitudes summed: one or (with a min) two of all so far for every
    group, and of the group itself two of its products and two of its activation sum."""
    m, n, k = 3, 40, 512
    a, raw = (
        activations(m, k),
        formats.encode(name, np.random.default_rng(3).standard_normal((n, k))),
    )
    x, w = (
        formats.decode("a8", a, (m, k)).astype(np.float64),
        formats.decode(name, raw, (n, k)).astype(np.float64),
    )
    got = h.dot_q(isa, formats.FORMATS[name], a, layouts.repack(name, raw, n, k), n, k)[:, :n]
    codes = np.abs(x) @ (np.abs(w) + 16 * np.abs(w).max(-1, keepdims=True) / 7).T
    assert (np.abs(got - x @ w.T) <= codes * ((k // 32 * 2 + 4) * 2.0**-24)).all()


@each_isa
@each_format
def test_rows_and_ranges_do_not_change_a_bit(isa: Isa, name: str) -> None:
    fmt, n, k = formats.FORMATS[name], 50, 768
    a, packed = activations(17, k), layouts.repack(name, weights(name, n, k), n, k)
    whole = h.dot_q(isa, fmt, a, packed, n, k)
    for i in range(17):
        assert np.array_equal(h.dot_q(isa, fmt, a[i : i + 1], packed, n, k)[0], whole[i])
    for split in (256, 512):
        part = h.dot_q(isa, fmt, a, packed, n, k, span=split)
        part = h.dot_q(isa, fmt, a, packed, n, k, part, k0=split, span=k - split)
        assert np.array_equal(part, whole)
    assert not h.dot_q(isa, fmt, a, packed, n, k, span=0).any()
    assert np.array_equal(h.dot_q(isa, fmt, a, packed, n, k, whole, span=0), whole)


@each_isa
def test_dot_q_shows_what_is_not_finite(isa: Isa) -> None:
    x = np.ones((2, 64), np.float32)
    x[1, 40] = np.inf
    raw = formats.encode("q8_0", np.ones((3, 64), np.float32))
    out = h.dot_q(
        isa, formats.FORMATS["q8_0"], h.quantize(isa, x), layouts.repack("q8_0", raw, 3, 64), 3, 64
    )
    assert np.isfinite(out[0]).all() and np.isnan(out[1, :3]).all()


@each_isa
@pytest.mark.parametrize("dtype", [f32, f16, bf16], ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 100, 37), (3, 17, 5), (7, 33, 64), (19, 130, 33), (2, 16, 0)]
)
def test_dot_f32_bits(isa: Isa, dtype: DType, m: int, n: int, k: int) -> None:
    """Exactly the chain c = fma(a, b, c), k ascending, from 0 and from C."""
    rng = np.random.default_rng(m)
    a = rng.standard_normal((m, k), dtype=np.float32)
    b = rng.standard_normal((n, k)).astype(dtype.numpy)
    start = rng.standard_normal((m, h.up16(n)), dtype=np.float32)
    for c in (None, start):
        want = np.zeros((m, n), np.float32) if c is None else start[:, :n].copy()
        for j in range(k):
            want = fma(a[:, j, None], b[None, :, j].astype(np.float32), want)
        got = h.dot_f32(isa, a, layouts.pack_float(b), n, dtype, c)
        assert np.array_equal(got[:, :n], want)


@each_isa
def test_dot_f32_rows_do_not_depend_on_neighbours(isa: Isa) -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((17, 100), dtype=np.float32),
        rng.standard_normal((70, 100), dtype=np.float32),
    )
    panels = layouts.pack_float(b)
    whole = h.dot_f32(isa, a, panels, 70)
    for i in range(17):
        assert np.array_equal(h.dot_f32(isa, a[i : i + 1], panels, 70)[0], whole[i])


@each_isa
def test_halves_of_every_pattern(isa: Isa) -> None:
    """All 65536 f16 patterns through the conversion that dots use (K = 1, a = 1; NaNs stay NaN)."""
    b = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(-1, 1)
    got = h.dot_f32(isa, np.ones((1, 1), np.float32), layouts.pack_float(b), len(b), f16)[0]
    assert np.array_equal(got, b[:, 0].astype(np.float32), equal_nan=True)


@each_isa
@each_format
def test_decode_matches_the_format(isa: Isa, name: str) -> None:
    fmt, n, k = formats.FORMATS[name], 37, 768
    raw = weights(name, n, k)
    values = formats.decode(name, raw, (n, k))
    packed = layouts.repack(name, raw, n, k)
    panel = layouts.panel_bytes(name, k)
    for p, k0, span in ((0, 0, k), (1, 256, 512), (2, 512, 256)):
        out = h.aligned((span, 16))
        h.call(isa, micro.decode_panel(isa, fmt), "ppii", packed[p * panel :], out, k0, span)
        rows = values[16 * p : 16 * p + 16, k0 : k0 + span]
        assert np.array_equal(out[:, : len(rows)], rows.T)
    for i in (0, 15, 16, 36):
        out = np.zeros(k, np.float32)
        h.call(isa, micro.decode_row(isa, fmt), "piipi", packed, panel, i, out, k)
        assert np.array_equal(out, values[i])


@each_isa
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.floats(-45, 38))
def test_quantize_bits(isa: Isa, seed: int, groups: int, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 32 * groups), dtype=np.float32)
    x[1] = np.rint(x[1] * 20) / 2  # many ties
    x *= np.float32(10.0**exponent / 8)
    assert np.array_equal(h.quantize(isa, x), formats.encode("a8", x))


@each_isa
def test_quantize_edges(isa: Isa) -> None:
    x = np.zeros((6, 64), np.float32)
    x[1, 5], x[2, 5], x[3, 5], x[4, 5], x[5] = np.nan, np.inf, -np.inf, 1e-40, -0.0
    got = h.quantize(isa, x)
    want = formats.encode("a8", x)
    for part, other in zip(formats.a8_parts(got), formats.a8_parts(want), strict=True):
        assert np.array_equal(part, other, equal_nan=part.dtype == np.float32)


CROSS = [
    ("avx512vnni", "icelake-server", "x86_64-unknown-linux-gnu", "vpdpbusd"),
    ("avx512", "skylake-avx512", "x86_64-unknown-linux-gnu", "zmm"),
    ("avxvnni", "alderlake", "x86_64-unknown-linux-gnu", "vpdpbusd"),
    ("avx2", "haswell", "x86_64-unknown-linux-gnu", "vpmaddubsw"),
    ("plain", "x86-64", "x86_64-unknown-linux-gnu", ""),
    ("neon_i8mm", "neoverse-v1", "aarch64-unknown-linux-gnu", "smmla"),
    ("neon_dot", "neoverse-n1", "aarch64-unknown-linux-gnu", "sdot"),
    ("plain", "generic", "aarch64-unknown-linux-gnu", "fmla"),
]


@pytest.mark.parametrize(("name", "cpu", "triple", "needs"), CROSS, ids=lambda v: str(v)[:12])
def test_compiles_for_other_machines(name: str, cpu: str, triple: str, needs: str) -> None:
    isa = isas.cross(name, cpu, half="aarch64" in triple or name != "plain")
    fmt = formats.FORMATS["q6_k"]
    parts = [micro.dot_q(isa, fmt), micro.dot_f32(isa, f16), micro.decode_panel(isa, fmt),
             micro.decode_row(isa, fmt), micro.quantize_a8(isa)]  # fmt: skip
    text = micro.module_text([*parts, *parts]).replace("define internal", "define")
    code = codegen.assembly(text, isa, triple)
    assert needs in code
    called = set(re.findall(r"\b(?:call|callq|bl|jmp|b)\s+([A-Za-z_]\w*)(?:@PLT)?$", code, re.M))
    ours = {m.group(1) for m in re.finditer(r"^define void @(\w+)\(", text, re.M)}
    # no run-time library is linked; x86 before FMA and SSE4.1 takes these two from libm
    assert called - ours <= ({"fmaf", "rintf"} if cpu == "x86-64" else set())


def test_micro_kernels_are_deterministic() -> None:
    isa = isas.detect()
    assert micro.dot_q(isa, formats.FORMATS["q4_1"]) == micro.dot_q(isa, formats.FORMATS["q4_1"])
    assert micro.dot_f32(isa, f32) == micro.dot_f32(isa, f32)
