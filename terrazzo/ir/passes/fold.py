"""Constant folding: an elementwise op on scalar constants, rounded as its element type is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from terrazzo.ir.types import DType

Number = int | float | bool

_UNARY: dict[str, Callable[[Any], Any]] = {"neg": np.negative, "abs": np.abs, "not": np.invert}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": np.floor_divide, "mod": np.mod, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


def fold(op: str, args: list[Number], dtype: DType, to: DType) -> Number | None:
    """The value of `op` on constants of `dtype`, as a `to`; None where it is left to run time.

    Only operations that IEEE 754 or two's complement define exactly are folded, so that every
    target agrees. Integer division by zero is left alone.
    """
    if op in ("floordiv", "mod") and args[1] == 0:
        return None
    table: dict[str, Any] = _UNARY if len(args) == 1 else _BINARY
    with np.errstate(all="ignore"):
        values = [np.asarray(a).astype(dtype.numpy) for a in args]
        if op == "cast":
            return _cast(values[0], dtype, to)
        if op not in table or (op in _UNARY and dtype.kind == "bool" and op != "not"):
            return None
        return _number(np.asarray(table[op](*values)).astype(to.numpy))


def _cast(value: np.ndarray, dtype: DType, to: DType) -> Number | None:
    if dtype.kind == "float" and to.kind != "float":
        number = float(value)
        info = np.iinfo(to.numpy)
        if not math.isfinite(number) or not info.min <= math.trunc(number) <= info.max:
            return None
    return _number(value.astype(to.numpy))


def _number(value: np.ndarray) -> Number:
    number = value.astype(np.float64).item() if value.dtype.kind in "fV" else value.item()
    return math.nan if isinstance(number, float) and math.isnan(number) else number
