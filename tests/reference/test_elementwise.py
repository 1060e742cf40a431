"""Each elementwise op against NumPy in float64, at ordinary and special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import NUMPY, run

import terrazzo.lang as tz

(n,) = tz.dims("n")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)
N = tz.dtypes("N", tz.i32, tz.u32)

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-38,
    1e-45,
    3.4e38,
    -3.4e38,
    65504.0,
    0.5,
    2.5,
    88.0,
]
UNARY: dict[str, tuple[Callable, Callable]] = {
    "neg": (lambda x: -x, np.negative), "abs": (tz.abs, np.abs), "exp": (tz.exp, np.exp),
    "exp2": (tz.exp2, np.exp2), "log": (tz.log, np.log), "log2": (tz.log2, np.log2),
    "sqrt": (tz.sqrt, np.sqrt), "rsqrt": (tz.rsqrt, lambda x: 1 / np.sqrt(x)),
    "tanh": (tz.tanh, np.tanh),
    "erf": (tz.erf, np.vectorize(math.erf, otypes=[np.float64])), "sin": (tz.sin, np.sin),
    "cos": (tz.cos, np.cos), "floor": (tz.floor, np.floor), "round": (tz.round, np.rint),
}  # fmt: skip
BINARY: dict[str, tuple[Callable, Callable]] = {
    "add": (lambda a, b: a + b, np.add), "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply), "div": (lambda a, b: a / b, np.divide),
    "max": (tz.maximum, np.maximum), "min": (tz.minimum, np.minimum),
}  # fmt: skip


@tz.kernel
def unary(x: tz.gm[T, n], out: tz.gm[T, n], fn: tz.const):
    """out = fn(x)."""
    for i in tz.grid(n, step=8):
        out[i] = fn(x[i])


@tz.kernel
def binary(a: tz.gm[T, n], b: tz.gm[T, n], out: tz.gm[T, n], fn: tz.const):
    """out = fn(a, b)."""
    for i in tz.grid(n, step=8):
        out[i] = fn(a[i], b[i])


@tz.kernel
def integers(a: tz.gm[N, n], b: tz.gm[N, n], out: tz.gm[N, n], fn: tz.const):
    """out = fn(a, b)."""
    for i in tz.grid(n, step=8):
        out[i] = fn(a[i], b[i])


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bits; any NaN equals any other."""
    signs = np.signbit(got) == np.signbit(want)
    return bool((np.isnan(got) & np.isnan(want) | (got == want) & signs).all())


@pytest.mark.parametrize("dtype", list(NUMPY))
@pytest.mark.parametrize("name", list(UNARY))
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_unary(name: str, dtype: str) -> None:
    fn, oracle = UNARY[name]
    rng = np.random.default_rng(0)
    x = (
        np.concatenate([np.array(SPECIAL), rng.standard_normal(40) * 10])
        .astype(np.float32)
        .astype(NUMPY[dtype])
    )
    out = np.zeros_like(x)
    run(unary, {"fn": fn}, x=x, out=out)
    with np.errstate(all="ignore"):
        # One rounding to f32, another to the narrow type: the documented order.
        want = np.asarray(oracle(x.astype(np.float64))).astype(np.float32).astype(x.dtype)
    assert same(out, want), (x, out, want)


@pytest.mark.parametrize("dtype", list(NUMPY))
@pytest.mark.parametrize("name", list(BINARY))
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_binary(name: str, dtype: str) -> None:
    fn, oracle = BINARY[name]
    special = np.array(SPECIAL).astype(np.float32)
    a, b = (x.reshape(-1).astype(NUMPY[dtype]) for x in np.meshgrid(special, special))
    out = np.zeros_like(a)
    run(binary, {"fn": fn}, a=a, b=b, out=out)
    with np.errstate(all="ignore"):
        want = oracle(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    if name in ("max", "min"):  # which zero is not defined
        assert np.array_equal(out, want, equal_nan=True)
    else:
        assert same(out, want)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3),
        min_size=1,
        max_size=8,
    )
)
@pytest.mark.filterwarnings("ignore:overflow encountered in nextafter")
def test_fma_rounds_once(rows: list[tuple[float, float, float]]) -> None:
    @tz.kernel
    def fused(a: tz.gm[tz.f32, n], b: tz.gm[tz.f32, n], c: tz.gm[tz.f32, n], out: tz.gm[tz.f32, n]):
        """out = a · b + c."""
        for i in tz.grid(n, step=8):
            out[i] = tz.fma(a[i], b[i], c[i])

    a, b, c = (np.array(col, np.float32) for col in zip(*rows, strict=True))
    out = np.zeros_like(a)
    run(fused, a=a, b=b, c=c, out=out)
    for x, y, z, got in zip(*(v.tolist() for v in (a, b, c, out)), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103:
            assert abs(got) == np.inf
            continue
        near = [np.nextafter(np.float32(got), np.float32(s)) for s in (-np.inf, np.inf)]
        distance = abs(exact - Fraction(got))
        for other in (float(v) for v in near if np.isfinite(v)):
            assert distance <= abs(exact - Fraction(other))


WRAP = 2**32


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_integers_wrap_and_floor(dtype: type) -> None:
    edge = [0, 1, 2, 7, 31, 2**31 - 1] + (
        [-1, -2, -7, -(2**31)] if dtype is np.int32 else [2**31, 2**32 - 1]
    )
    a, b = (x.reshape(-1) for x in np.meshgrid(np.array(edge, dtype), np.array(edge, dtype)))

    def wrapped(x: int) -> int:
        x %= WRAP
        return x - WRAP if dtype is np.int32 and x >= WRAP // 2 else x

    ops: list[tuple[Callable, Callable, Callable]] = [
        (lambda p, q: p + q, lambda p, q: p + q, lambda p, q: True),
        (lambda p, q: p - q, lambda p, q: p - q, lambda p, q: True),
        (lambda p, q: p * q, lambda p, q: p * q, lambda p, q: True),
        (lambda p, q: p // q, lambda p, q: p // q, lambda p, q: q != 0),
        (lambda p, q: p % q, lambda p, q: p % q, lambda p, q: q != 0),
        (lambda p, q: p & q, lambda p, q: p & q, lambda p, q: True),
        (lambda p, q: p | q, lambda p, q: p | q, lambda p, q: True),
        (lambda p, q: p ^ q, lambda p, q: p ^ q, lambda p, q: True),
        (lambda p, q: p << q, lambda p, q: p << q, lambda p, q: 0 <= q < 32),
        (lambda p, q: p >> q, lambda p, q: p >> q, lambda p, q: 0 <= q < 32),
        (tz.maximum, max, lambda p, q: True),
    ]
    for fn, oracle, valid in ops:
        ok = np.array([valid(p, q) for p, q in zip(a.tolist(), b.tolist(), strict=True)])
        x, y, out = a[ok], b[ok], np.zeros_like(a[ok])
        run(integers, {"fn": fn}, a=x, b=y, out=out)
        assert out.tolist() == [
            wrapped(oracle(p, q)) for p, q in zip(x.tolist(), y.tolist(), strict=True)
        ]


def test_umulhi() -> None:
    a = np.array([0, 1, 2**31, 2**32 - 1, 0xD2511F53], np.uint32)
    b = np.array([5, 2**32 - 1, 2, 2**32 - 1, 0x9E3779B9], np.uint32)
    out = np.zeros_like(a)
    run(integers, {"fn": tz.umulhi}, a=a, b=b, out=out)
    assert out.tolist() == [(x * y) >> 32 for x, y in zip(a.tolist(), b.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("to", "x", "want"),
    [
        (
            tz.i32,
            [1.9, -1.9, 0.5, 3e9, -3e9, np.nan, np.inf],
            [1, -1, 0, 2**31 - 1, -(2**31), 0, 2**31 - 1],
        ),
        (tz.i8, [127.9, 200.0, -128.5, -0.9], [127, 127, -128, 0]),
        (tz.u8, [255.5, 256.0, -1.0, 3.99], [255, 255, 0, 3]),
    ],
)
def test_float_to_integer_truncates_and_saturates(
    to: object, x: list[float], want: list[int]
) -> None:
    @tz.kernel
    def convert(x: tz.gm[tz.f32, n], out: tz.gm[tz.i32, n], to: tz.const):
        """out = x as `to`."""
        for i in tz.grid(n, step=8):
            out[i] = x[i].to(to).to(tz.i32)

    out = np.zeros(len(x), np.int32)
    run(convert, {"to": to}, x=np.array(x, np.float32), out=out)
    assert out.tolist() == want


def test_narrow_types_round_after_each_operation() -> None:
    """In f16, (2048 + 1) - 2048 is 0: the sum rounds to even before the difference."""
    x = np.array([2048, 2048, 2050], np.float16)
    out = np.zeros_like(x)
    run(unary, {"fn": lambda t: (t + 1.0) - 2048.0}, x=x, out=out)
    assert out.tolist() == [0, 0, 4]  # 2051 ties to 2052


def test_bitcast_and_compare() -> None:
    @tz.kernel
    def sign(x: tz.gm[tz.f32, n], out: tz.gm[tz.u32, n]):
        """out = 1 where x's sign bit is set and x < 1."""
        for i in tz.grid(n, step=8):
            bits = tz.bitcast(x[i], tz.u32)
            one = tz.full(1, dtype=tz.u32)
            out[i] = tz.where(x[i] < 1.0, bits >> 31, one - 1)

    x = np.array([-0.0, 0.0, -5, 5, np.nan, -np.inf], np.float32)
    out = np.full(6, 9, np.uint32)
    run(sign, x=x, out=out)
    assert out.tolist() == [1, 0, 1, 0, 0, 1]
