"""Every elementwise op on every type it takes, on 16 lanes, in tails and as scalars: CPU against
reference. Sizes are run-time arguments, so a kernel is compiled once for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import twin
from hypothesis import given, settings
from hypothesis import strategies as st

import terrazzo.lang as tz

n, ops, words, arith, logic = tz.dims("n ops words arith logic")
F = tz.dtypes("F", tz.f32, tz.f16, tz.bf16)
INT = tz.dtypes("INT", tz.i32, tz.u32, tz.i8, tz.u8)
B1 = tz.dtypes("B1", tz.f32, tz.i32, tz.u32, tz.f16, tz.bf16, tz.i8, tz.u8)
B2 = tz.dtypes("B2", tz.f32, tz.i32, tz.u32, tz.f16, tz.bf16, tz.i8, tz.u8)

EXTENTS = [*range(71), 127, 128, 129, 255, 256, 257, 999, 1000, 1001]
FLOATS, INTS = ("f32", "f16", "bf16"), ("i32", "u32", "i8", "u8")
Shape = tuple[int, int | None]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, 3.0e38, -3.0e38,
           6.0e4, 1e-8, -1e-8, 1e-40, 2.0**-24, 2.0**-133]  # fmt: skip


@tz.kernel
def rounded_once(a: tz.gm[F, n], b: tz.gm[F, n], c: tz.gm[F, n], out: tz.gm[F, arith, n],
                 test: tz.gm[tz.bool_, logic, n], STEP: tz.const = 64):  # fmt: skip
    """Operations whose result is one rounding of the exact one (of f32's, for narrower types)."""
    for i in tz.grid(n, step=STEP):
        x, y, z = a[i], b[i], c[i]
        zero = tz.full(0.0, dtype=F)  # which of -0 and +0 is the larger is left open
        results = (x + y, x - y, x * y, x / y, -x, abs(x), tz.sqrt(abs(x)), tz.floor(x),
                   tz.round(x), tz.maximum(x, y) + zero, tz.minimum(x, y) + zero, tz.fma(x, y, z),
                   tz.where(x < y, x, z), x + 1.5, 2.0 - x, tz.maximum(x, 0.0) + zero,
                   x**2)  # fmt: skip
        for w in range(17):
            out[w, i] = results[w]
        tests = (x < y, x <= y, x > y, x >= y, x == y, x != y, (x < y) & (y < z), (x < y) | (y < z),
                 (x < y) ^ (y < z), ~(x < y), x < 0.5)  # fmt: skip
        for w in range(11):
            test[w, i] = tests[w]


@tz.kernel
def integers(a: tz.gm[INT, n], b: tz.gm[INT, n], by: tz.gm[INT, n], out: tz.gm[INT, arith, n],
             test: tz.gm[tz.bool_, logic, n], STEP: tz.const = 64):  # fmt: skip
    """`by` lies in 0..7, so that it shifts every type; b is not 0."""
    for i in tz.grid(n, step=STEP):
        x, y, s = a[i], b[i], by[i]
        results = (x + y, x - y, x * y, x // y, x % y, x // 8, x % 8, x // 7, x % 7, -x, abs(x), ~x,
                   x & y, x | y, x ^ y, x << s, x >> s, x << 3, x >> 3, tz.maximum(x, y),
                   tz.minimum(x, y), tz.where(x < y, x, s), 5 - x, 100 // y, x // 1,
                   x % 1)  # fmt: skip
        for w in range(26):
            out[w, i] = results[w]
        tests = (x < y, x <= y, x > y, x >= y, x == y, x != y, x < 3)
        for w in range(7):
            test[w, i] = tests[w]


@tz.kernel
def wide_products(a: tz.gm[tz.u32, n], b: tz.gm[tz.u32, n], out: tz.gm[tz.u32, arith, n],
                  STEP: tz.const = 64):  # fmt: skip
    for i in tz.grid(n, step=STEP):
        out[0, i] = tz.umulhi(a[i], b[i])
        out[1, i] = tz.umulhi(a[i], 0xD2511F53)


@tz.kernel
def negative_divisors(a: tz.gm[tz.i32, n], out: tz.gm[tz.i32, arith, n], STEP: tz.const = 64):
    for i in tz.grid(n, step=STEP):
        x = a[i]
        results = (x // -8, x % -8, x // -1, x % -7, x // -7, -9 % tz.maximum(x, 1))
        for w in range(6):
            out[w, i] = results[w]


@tz.kernel
def curves(a: tz.gm[F, n], out: tz.gm[F, arith, n], STEP: tz.const = 64):
    """Functions that are not rounded exactly; composites among them."""
    for i in tz.grid(n, step=STEP):
        x = a[i]
        p = abs(x) + 0.001
        results = (tz.exp(x), tz.exp2(x), tz.log(p), tz.log2(p), tz.rsqrt(p), tz.tanh(x), tz.erf(x),
                   tz.sin(x), tz.cos(x), tz.sigmoid(x), tz.silu(x))  # fmt: skip
        for w in range(11):
            out[w, i] = results[w]


@tz.kernel
def casts(a: tz.gm[B1, n], out: tz.gm[B2, n], flag: tz.gm[B2, n], STEP: tz.const = 64):
    for i in tz.grid(n, step=STEP):
        x = a[i]
        out[i] = x.to(B2)
        flag[i] = (x > 1).to(B2)


@tz.kernel
def bitcasts(a: tz.gm[B1, n], out: tz.gm[B2, n], STEP: tz.const = 64):
    for i in tz.grid(n, step=STEP):
        out[i] = tz.bitcast(a[i], B2)


@tz.kernel
def booleans(a: tz.gm[tz.bool_, n], b: tz.gm[tz.bool_, n], out: tz.gm[tz.bool_, logic, n],
             chosen: tz.gm[tz.f32, n], count: tz.gm[tz.i32, n], STEP: tz.const = 64):  # fmt: skip
    for i in tz.grid(n, step=STEP):
        x, y = a[i], b[i]
        results = (x & y, x | y, x ^ y, ~x, x == y, x != y, tz.where(x, y, ~y))
        for w in range(7):
            out[w, i] = results[w]
        chosen[i] = tz.where(x, 1.5, -1.0)
        count[i] = x.to(tz.i32) + y.to(tz.i32)


def floats(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    """Ordinary numbers, whole numbers, every exponent and the special ones."""
    x = rng.standard_normal(n) * 3
    kind = rng.integers(0, 8, n)
    x = np.where(kind == 0, rng.choice(SPECIAL, n), x)
    x = np.where(kind == 1, rng.integers(-9, 9, n), x)
    x = np.where(kind == 2, rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32), x)
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(np.float32).astype(twin.NUMPY[dtype])


def whole(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    """Small numbers and the whole range, ends included."""
    info = np.iinfo(twin.NUMPY[dtype])
    x = rng.integers(info.min, info.max, n, endpoint=True)
    small = rng.integers(-9 if info.min else 0, 9, n)
    ends = rng.choice([info.min, info.max, info.min + 1, 1], n)
    kind = rng.integers(0, 4, n)
    return np.where(kind == 0, ends, np.where(kind == 1, small, x)).astype(twin.NUMPY[dtype])


def sizes(test: Any) -> Any:
    """Extents by hypothesis, vectors (step 64) and scalars (None), 1 to 4 threads."""
    shape = st.one_of(
        st.tuples(st.sampled_from(EXTENTS), st.just(64)), st.tuples(st.integers(0, 40), st.none())
    )
    data = given(shape=shape, seed=st.integers(0, 2**32 - 1), threads=st.integers(1, 4))
    return settings(max_examples=25, deadline=None)(data(test))


@pytest.mark.parametrize("dtype", FLOATS)
@sizes
def test_float_arithmetic_is_exact(dtype: str, shape: Shape, seed: int, threads: int) -> None:
    n, step = shape
    rng = np.random.default_rng(seed)
    a, b, c = (floats(rng, n, dtype) for _ in range(3))
    twin.same(rounded_once, threads, a=a, b=b, c=c, out=twin.empty((17, n), dtype),
              test=twin.empty((11, n), "bool"), STEP=step)  # fmt: skip


@pytest.mark.parametrize("dtype", INTS)
@sizes
def test_integers(dtype: str, shape: Shape, seed: int, threads: int) -> None:
    n, step = shape
    rng = np.random.default_rng(seed)
    a, b = whole(rng, n, dtype), whole(rng, n, dtype)
    by = rng.integers(0, 8, n).astype(twin.NUMPY[dtype])
    b[b == 0] = 3
    twin.same(integers, threads, a=a, b=b, by=by, out=twin.empty((26, n), dtype),
              test=twin.empty((7, n), "bool"), STEP=step)  # fmt: skip


@sizes
def test_wide_products(shape: Shape, seed: int, threads: int) -> None:
    n, step = shape
    rng = np.random.default_rng(seed)
    a, b = whole(rng, n, "u32"), whole(rng, n, "u32")
    twin.same(wide_products, threads, a=a, b=b, out=twin.empty((2, n), "u32"), STEP=step)


@sizes
def test_negative_divisors(shape: Shape, seed: int, threads: int) -> None:
    n, step = shape
    a = whole(np.random.default_rng(seed), n, "i32")
    twin.same(negative_divisors, threads, a=a, out=twin.empty((6, n), "i32"), STEP=step)


@sizes
def test_booleans(shape: Shape, seed: int, threads: int) -> None:
    n, step = shape
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 2, n) > 0, rng.integers(0, 2, n) > 0
    twin.same(booleans, threads, a=a, b=b, out=twin.empty((7, n), "bool"), chosen=twin.empty(n),
              count=twin.empty(n, "i32"), STEP=step)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@sizes
def test_curves(dtype: str, shape: Shape, seed: int, threads: int) -> None:
    n, step = shape
    """Within 3 ulp of f32 (test_vecmath.py has each function's own bound), then one rounding."""
    x = floats(np.random.default_rng(seed), n, dtype)
    with np.errstate(invalid="ignore"):
        x = np.clip(np.nan_to_num(x, nan=0.5, posinf=9.0, neginf=-9.0), -80, 80).astype(x.dtype)
    twin.close(curves, lambda y: np.abs(y) * 8 * 2.0**-24 + 2.0**-126, threads, a=x,
               out=twin.empty((11, n), dtype), STEP=step)  # fmt: skip


PAIRS = [(a, b) for a in (*FLOATS, *INTS) for b in (*FLOATS, *INTS) if a != b]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0]}-{p[1]}")
def test_casts(pair: tuple[str, str]) -> None:
    """Floats to nearest even; to integers truncated and saturated, NaN to 0."""
    source, to = pair
    for seed, step, n in ((0, 64, 1000), (1, None, 37), (2, 64, 70)):
        rng = np.random.default_rng(seed)
        x = floats(rng, n, source) if source in FLOATS else whole(rng, n, source)
        twin.same(casts, 2, a=x, out=twin.empty(n, to), flag=twin.empty(n, to), STEP=step)


SIZES = {"f32": 4, "i32": 4, "u32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1}


@pytest.mark.parametrize(
    "pair", [p for p in PAIRS if SIZES[p[0]] == SIZES[p[1]]], ids=lambda p: f"{p[0]}-{p[1]}"
)
def test_bitcasts(pair: tuple[str, str]) -> None:
    source, to = pair
    for seed, step, n in ((0, 64, 500), (1, None, 19)):
        raw = np.random.default_rng(seed).integers(0, 256, n * SIZES[to], np.uint8)
        x = raw.view(twin.NUMPY[source])
        twin.same(bitcasts, 2, a=x, out=twin.empty(n, to), STEP=step)


def test_limits_of_activations() -> None:
    """No NaN where the exact result is a number."""
    x = np.array([-100, 100, -1e4, 1e4, -3e38, 3e38, 0, -0.0, -88.8, 88.8, -1e-40], np.float32)
    out = twin.on_cpu(curves, a=x, out=twin.empty((11, len(x))), STEP=64)["out"]
    names = ("exp", "exp2", "log", "log2", "rsqrt", "tanh", "erf", "sin", "cos", "sigmoid", "silu")
    by_name = dict(zip(names, out, strict=True))
    assert not np.isnan(out).any()
    assert (by_name["sigmoid"][[0, 1, 4, 5]] == [0, 1, 0, 1]).all()
    expected = np.array([100, 0, 1e4, 3e38, 0], np.float32)
    assert (by_name["silu"][[1, 2, 3, 5, 6]] == expected).all()
    assert (by_name["tanh"][[4, 5]] == [-1, 1]).all()
