"""Kernels of one elementwise expression, and operands for them: all types that the vector unit has
rules for, rows with tails, extreme values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from davinci_launch import Launch, launch_of

import terrazzo.lang as tz
from terrazzo.ir.types import DTYPES
from terrazzo.targets.davinci.lowering.lower import Options

m, n = tz.dims("m n")


def pointwise(f: Callable[..., Any], dtype: str, result: str) -> tz.Kernel:
    """out = f(x, y, row), x and y [m, n], row [n]."""
    T, R = DTYPES[dtype], DTYPES[result]

    @tz.kernel
    def pointwise(x: tz.gm[T, m, n], y: tz.gm[T, m, n], row: tz.gm[T, n], out: tz.gm[R, m, n]):  # type: ignore[valid-type]
        for i in tz.grid(m, step=8):
            out[i] = f(x[i], y[i], tz.load(row[:]))

    return pointwise


def values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Integers of all sizes, the extremes among them; floats around 0."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(DTYPES[dtype].numpy)
    if kind.kind not in "iu":
        return (rng.standard_normal(shape) * 4).astype(kind)
    info = np.iinfo(kind)
    out = rng.integers(info.min, info.max, shape, kind, endpoint=True)
    small = rng.integers(max(info.min, -3), 3, shape).astype(kind)
    extreme = np.where(rng.random(shape) < 0.5, info.min, info.max).astype(kind)
    return np.choose(rng.integers(0, 3, shape), [out, small, extreme])


def launch(
    f: Callable[..., Any], dtype: str, result: str | None = None, rows: int = 13, columns: int = 75
) -> Launch:
    kernel = pointwise(f, dtype, result or dtype)
    args: dict[str, Any] = {
        "x": values(dtype, (rows, columns), 1), "y": values(dtype, (rows, columns), 2),
        "row": values(dtype, (columns,), 3),
        "out": np.zeros((rows, columns), DTYPES[result or dtype].numpy),
    }  # fmt: skip
    return launch_of(kernel, args, Options(vector_cores=2))


ANY = {
    "vector": lambda x, y, row: x + y,
    "row": lambda x, y, row: x - row,
    "maximum": lambda x, y, row: tz.maximum(x, y),
    "minimum": lambda x, y, row: tz.minimum(row, x),
    "where": lambda x, y, row: tz.where(x < y, x, y),
    "where row": lambda x, y, row: tz.where(row >= 2, x, y),
    "where constants": lambda x, y, row: tz.where(x == y, x, 1),
    "masks": lambda x, y, row: tz.where((x <= y) & ~(y > 1) | (x != row), x, y),
    "scalar first": lambda x, y, row: 3 - x,
    "scalar second": lambda x, y, row: x - 3,
}
INTEGERS = {
    "and": lambda x, y, row: x & y,
    "and constant": lambda x, y, row: x & 15,
    "constant or": lambda x, y, row: 5 | x,
    "xor": lambda x, y, row: (x ^ y) ^ row,
    "xor constant": lambda x, y, row: x ^ 9,
    "shifts": lambda x, y, row: (x << 3) | (y >> 2),
}


FLOATS = {
    "divisions": lambda x, y, row: x / (y * y + 1) + 1 / (x * x + 1) - x / 3,
    "roots": lambda x, y, row: tz.sqrt(x * x) + tz.rsqrt(y * y + 1),
    "rounding": lambda x, y, row: tz.floor(x) + tz.round(y),
    "fma": lambda x, y, row: tz.fma(x, y, row),
    "signs": lambda x, y, row: -x + tz.abs(y),
    "exponentials": lambda x, y, row: tz.exp2(-tz.abs(x)) + tz.log2(y * y + 1),
    "sigmoids": lambda x, y, row: tz.tanh(x) + tz.erf(y),
}
# From one type to another: what is in range of both.
NARROW = {
    ("u8", "i8"): lambda x, y, row: tz.cast(x, tz.i8),
    ("i8", "u8"): lambda x, y, row: tz.cast(x ^ y, tz.u8),
    ("u8", "i32"): lambda x, y, row: x.to(tz.i32) - 255,
    ("i8", "f32"): lambda x, y, row: (x & 7).to(tz.f32) * 0.5,
    ("i8", "bf16"): lambda x, y, row: (x >> 1).to(tz.bf16),
    ("i32", "i8"): lambda x, y, row: (x & 127).to(tz.i8),
    ("i32", "f16"): lambda x, y, row: (x & 1023).to(tz.f16),
    ("i32", "bf16"): lambda x, y, row: (x & 255).to(tz.bf16),
    ("i32", "u32"): lambda x, y, row: x.to(tz.u32),
    ("u32", "i32"): lambda x, y, row: x.to(tz.i32),
    ("u32", "f32"): lambda x, y, row: (x ^ y).to(tz.f32),
    ("u32", "u8"): lambda x, y, row: (x & 127).to(tz.u8),
    ("f32", "i8"): lambda x, y, row: x.to(tz.i8),
    ("f32", "u8"): lambda x, y, row: (tz.abs(x) * 4).to(tz.u8),
    ("f32", "u32"): lambda x, y, row: tz.abs(x).to(tz.u32),
    ("f16", "i32"): lambda x, y, row: x.to(tz.i32),
    ("bf16", "f16"): lambda x, y, row: x.to(tz.f16),
    ("bf16", "i8"): lambda x, y, row: x.to(tz.i8),
    ("f16", "bf16"): lambda x, y, row: x.to(tz.bf16),
    ("f32", "i32"): lambda x, y, row: tz.bitcast(x, tz.i32),
    ("u32", "u32"): lambda x, y, row: tz.where(x == y, row, x),
}
# Of each row of x: the type of x, that of the result, and the reduction.
REDUCED = {
    "sum of bytes": ("u8", "i32", lambda x: tz.sum(x & 15, axis=n)),
    "maximum of bytes": ("i8", "i8", lambda x: tz.max(x, axis=n)),
    "minimum of bytes": ("u8", "u8", lambda x: tz.min(x ^ 255, axis=n)),
    "sum of integers": ("i32", "i32", lambda x: tz.sum(x & 1023, axis=n)),
    "maximum": ("f16", "f16", lambda x: tz.max(x, axis=n)),
}


def reduction(name: str, rows: int = 13, columns: int = 75) -> Launch:
    dtype, result, f = REDUCED[name]
    T, R = DTYPES[dtype], DTYPES[result]

    @tz.kernel
    def reduced(x: tz.gm[T, m, n], out: tz.gm[R, m]):  # type: ignore[valid-type]
        for i in tz.grid(m, step=8):
            out[i] = f(x[i])

    out = np.zeros(rows, R.numpy)
    args = {"x": values(dtype, (rows, columns), 4), "out": out}
    return launch_of(reduced, args, Options(vector_cores=2))
