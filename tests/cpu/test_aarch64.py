"""Code for 64-bit ARM, run by qemu-user: micro-kernels bit for bit as their contracts say, whole
kernels bit for bit as on this machine and close to the reference target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import guest
import numpy as np
import pytest
from test_micro import activations, dot_by_contract, fma, weights

import terrazzo.lang as tz
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import DType, bf16, f16, f32
from terrazzo.kernels import attention, linear, norm, sampling
from terrazzo.runtime import launch
from terrazzo.targets.cpu import layouts, micro
from terrazzo.targets.cpu.isa import Isa, detect

pytestmark = pytest.mark.skipif(
    bool(guest.MISSING), reason=f"no {' and '.join(guest.MISSING)}: {guest.PACKAGES}"
)
each_isa = pytest.mark.parametrize("isa", guest.ISAS, ids=lambda i: i.name)


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    guest.clear()
    yield


@each_isa
@pytest.mark.parametrize("name", layouts.P16S)
@pytest.mark.parametrize(("m", "n"), [(1, 100), (2, 17), (7, 33)])
def test_dot_q_bits(isa: Isa, name: str, m: int, n: int) -> None:
    """One token (sdot) and several (smmla, with one left over), with codes and activations at the
    ends of their ranges."""
    k, wide = 512, (n + 15) // 16 * 16
    fmt = formats.FORMATS[name]
    raw, a = weights(name, n, k), guest.array(activations(m, k))
    packed = guest.array(layouts.repack(name, raw, n, k))
    out = guest.array(np.full((m, wide), np.nan, np.float32))
    guest.call(isa, micro.dot_q(isa, fmt), "piiipipiiiib", a, a.shape[1], k, k + k // 4, packed,
               layouts.panel_bytes(fmt, k), out, wide, m, n, k, True)  # fmt: skip
    assert np.array_equal(out[:, :n], dot_by_contract(name, a, raw, n, k))
    assert not np.isnan(out).any()


@each_isa
@pytest.mark.parametrize("dtype", [f32, f16, bf16], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 100, 37), (19, 40, 33)])
def test_dot_f32_bits(isa: Isa, dtype: DType, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m)
    a = guest.array(rng.standard_normal((m, k), dtype=np.float32))
    b = rng.standard_normal((n, k)).astype(dtype.numpy)
    want = np.zeros((m, n), np.float32)
    for j in range(k):
        want = fma(a[:, j, None], b[None, :, j].astype(np.float32), want)
    wide = (n + 15) // 16 * 16
    panels = guest.array(layouts.pack_float(b))
    out = guest.array(np.full((m, wide), np.nan, np.float32))
    guest.call(isa, micro.dot_f32(isa, dtype), "pipiipiiiib", a, k, panels, panels.strides[0], 16,
               out, wide, m, n, k, True)  # fmt: skip
    assert np.array_equal(out[:, :n], want)


@each_isa
def test_quantize_bits(isa: Isa) -> None:
    k = 256
    x = np.random.default_rng(0).standard_normal((1, k), dtype=np.float32)
    x[0, 32:48], x[0, 50], x[0, 80] = 0, 1e-40, 3e38
    row = guest.array(np.zeros(formats.bytes_per_row("a8", k), np.uint8))
    guest.call(isa, micro.quantize_a8(isa), "ppppi", guest.array(x), row, row[k:],
               row[k + k // 4 :], k)  # fmt: skip
    assert np.array_equal(row, formats.encode("a8", x)[0])


RNG = np.random.default_rng(1)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def packed(name: str, n: int, k: int) -> Packed:
    data = layouts.repack(name, formats.encode(name, normal(n, k)), n, k)
    rows = data.reshape(-1, layouts.panel_bytes(name, k))
    return Packed(layouts.packed(formats.FORMATS[name]), (n, k), rows)


def a8(m: int, k: int) -> Packed:
    return Packed(formats.A8, (m, k), formats.encode("a8", normal(m, k)))


def pages() -> dict[str, Any]:
    """Two sequences in a paged cache: a prompt of 20 from position 0 and one that decodes at 37."""
    return {
        "q": normal(21, 3, 2, 64), "kcache": normal(5, 3, 64, 16, dtype=np.float16),
        "vcache": normal(5, 3, 16, 64, dtype=np.float16),
        "table": np.array([[0, 1, 0], [2, 3, 4]], np.int32), "seq": np.array([0, 1], np.int32),
        "first": np.array([0, 20], np.int32), "count": np.array([20, 1], np.int32),
        "position": np.array([0, 37], np.int32), "scale": 0.125,
    }  # fmt: skip


CALLS: dict[str, tuple[tz.Kernel, dict[str, Any], tuple[int, ...]]] = {
    "matmul": (linear.matmul, {"a": normal(9, 70), "b": normal(70, 50)}, (9, 50)),
    "linear_q8_0": (linear.linear, {"a": a8(5, 128), "w": packed("q8_0", 40, 128)}, (5, 40)),
    "linear_q4_0": (linear.linear, {"a": a8(1, 128), "w": packed("q4_0", 40, 128)}, (1, 40)),
    "rms_norm": (
        norm.rms_norm, {"x": normal(3, 100), "weight": normal(100), "eps": 1e-5}, (3, 100)
    ),
    "softmax": (sampling.softmax, {"x": normal(3, 101), "scale": 0.7}, (3, 101)),
    "flash_attention": (
        attention.flash_attention,
        {"q": normal(4, 30, 64), "k": normal(2, 40, 64), "v": normal(2, 40, 64), "scale": 0.125},
        (4, 30, 64),
    ),
    "attention": (attention.attention, pages(), (21, 3, 2, 64)),
}  # fmt: skip


def inside(x: Any) -> Any:
    if isinstance(x, Packed):
        return Packed(x.format, x.shape, guest.array(x.data))
    return guest.array(x) if isinstance(x, np.ndarray) else x


@each_isa
@pytest.mark.parametrize("name", CALLS)
def test_kernels(isa: Isa, name: str) -> None:
    """The order of every sum is the same on every machine without matrix tiles, so the bits are.
    Against the reference the error is that of f32 sums in another order, a8's being exact: 2^-18 of
    the largest value."""
    kernel, args, shape = CALLS[name]
    here = np.full(shape, np.nan, np.float32)
    chain = detect("avx512vnni") if detect().matrix else detect()
    launch.run(launch.prepare(kernel, (), {**args, "out": here}, isa=chain), 1)
    out = guest.array(np.full(shape, np.nan, np.float32))
    guest.kernel(isa, kernel, **{n: inside(x) for n, x in args.items()}, out=out)
    assert np.array_equal(out, here)
    if not any(isinstance(x, Packed) for x in args.values()):
        want = np.full(shape, np.nan, np.float32)
        kernel.reference(**args, out=want)
        assert np.abs(out - want).max() <= 2.0**-18 * np.abs(want).max()
    else:
        a, w = args["a"], args["w"]
        x = formats.decode("a8", a.data, a.shape).astype(np.float64)
        rows = layouts.unpack(w.format, w.data.reshape(-1), *w.shape)
        want = x @ formats.decode(w.format.name, rows, w.shape).astype(np.float64).T
        assert np.abs(out - want).max() <= 2.0**-18 * np.abs(want).max()
