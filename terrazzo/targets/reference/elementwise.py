"""What each elementwise operation means, on NumPy arrays that already broadcast.

Rounding, the same for every operation:
* f32 add, sub, mul, div, sqrt, fma, floor, round: IEEE 754 binary32, one rounding (fma: one in
  all).
* f32 exp, exp2, log, log2, rsqrt, tanh, erf, sin, cos: computed in binary64, then rounded to f32
  (wrong by at most one unit in the last place, and only where the binary64 result lies next to a
  tie).
* f16 and bf16: the arguments widen to f32 exactly, the f32 operation above, one more rounding.
* Rounding is to nearest, ties to even; denormals are kept. `round` rounds ties to even too.
* Integers wrap. `floordiv` and `mod` floor (the remainder has the divisor's sign).
* `max` and `min` give NaN if an argument is NaN. A target may give the other argument instead;
  kernels do not rely on either.
* Float -> integer truncates, saturates, and makes NaN 0. Integer -> f16/bf16 goes through f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from terrazzo.ir.types import DType

Array = np.ndarray
_erf64 = np.frompyfunc(math.erf, 1, 1)


def widen(x: Array) -> Array:
    """An f16 or bf16 array as f32 (exact); anything else unchanged."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def via_f64(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`fn` computed in binary64 and rounded to f32."""
    return lambda x: np.asarray(fn(x.astype(np.float64))).astype(np.float32)


def erf(x: Array) -> Array:
    return np.asarray(_erf64(x)).astype(np.float64)


def invert(x: Array) -> Array:
    return np.logical_not(x) if x.dtype == np.bool_ else np.invert(x)


def umulhi(a: Array, b: Array) -> Array:
    """The upper 32 bits of the 64-bit product of two u32."""
    return ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a·b + c in f32 with one rounding.

    The product is exact in binary64; the sum is made round-to-odd there (its error term by the
    two-sum of Knuth), so that the rounding to f32 that follows is the only one (Boldo and
    Melquiond, 2008).
    """
    p, q = np.broadcast_arrays(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    s = np.asarray(p + q)
    bb = s - p
    err = (p - (s - bb)) + (q - bb)
    inexact_even = np.isfinite(s) & (err != 0) & ((s.view(np.int64) & 1) == 0)
    odd = np.nextafter(s, np.where(err > 0, np.inf, -np.inf))
    return np.where(inexact_even, odd, s).astype(np.float32)


def cast(x: Array, to: DType) -> Array:
    """x converted to element type `to`, see the rules on top."""
    target = to.numpy
    if x.dtype == target:
        return x
    x = widen(x)
    if to.kind == "bool":
        return x != 0
    if to.kind == "float":
        return x.astype(np.float32).astype(target)
    if x.dtype.kind == "f":
        info = np.iinfo(target)
        bounded = np.clip(np.trunc(x.astype(np.float64)), info.min, info.max)
        return np.where(np.isnan(x), 0, bounded).astype(target)
    return x.astype(target)


UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": via_f64(np.exp),
    "exp2": via_f64(np.exp2),
    "log": via_f64(np.log),
    "log2": via_f64(np.log2),
    "sqrt": np.sqrt,
    "rsqrt": via_f64(lambda x: 1.0 / np.sqrt(x)),
    "tanh": via_f64(np.tanh),
    "erf": via_f64(erf),
    "sin": via_f64(np.sin),
    "cos": via_f64(np.cos),
    "floor": np.floor,
    "round": np.rint,
    "not": invert,
}

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,  # logical on u32 and u8, arithmetic on signed integers
    "umulhi": umulhi,
}

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
