"""Scalars of a core program: what the core's scalar unit computes at run time.

An expression is an `int`, a `float` or an `Expr`. They are sizes, offsets, loop bounds, slots,
events and scalar operands. Integer division rounds down, as in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Expr:
    """`op` applied to `args`.

    var(name): a loop variable, a `Let`, or one of the core's own: "core" (its number among the
        cores of its kind), "half" (0 or 1, a vector core's number beside its cube core) ·
    arg(name): a scalar parameter · load(name, i, j, …): element of an index tensor in GM ·
    add sub mul div mod min max · lt le eq ne and or (0 or 1) · select(c, a, b) ·
    float operations on scalar parameters: fdiv sqrt neg
    """

    op: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        if self.op in ("var", "arg"):
            return str(self.args[0])
        if self.op == "load":
            return f"{self.args[0]}[{', '.join(map(str, self.args[1:]))}]"
        if self.op in _SIGNS:
            return f"({self.args[0]} {_SIGNS[self.op]} {self.args[1]})"
        return f"{self.op}({', '.join(map(str, self.args))})"


Scalar = int | float | Expr
Env = Mapping[str, Any]

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%", "lt": "<", "le": "<=",
          "eq": "==", "ne": "!=", "fdiv": "/"}  # fmt: skip
_MEANING: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "fdiv": lambda a, b: a / b,
    "min": min,
    "max": max,
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "and": lambda a, b: int(bool(a and b)),
    "or": lambda a, b: int(bool(a or b)),
    "select": lambda c, a, b: a if c else b,
    "neg": lambda a: -a,
    "sqrt": lambda a: a**0.5,
}
# The same for whole arrays of values at a time.
_ARRAYS: dict[str, Callable[..., Any]] = {
    "min": np.minimum,
    "max": np.maximum,
    "lt": lambda a, b: np.less(a, b) * 1,
    "le": lambda a, b: np.less_equal(a, b) * 1,
    "eq": lambda a, b: np.equal(a, b) * 1,
    "ne": lambda a, b: np.not_equal(a, b) * 1,
    "and": lambda a, b: np.logical_and(a, b) * 1,
    "or": lambda a, b: np.logical_or(a, b) * 1,
    "select": np.where,
    "neg": np.negative,
    "sqrt": np.sqrt,
}


def var(name: str) -> Expr:
    return Expr("var", (name,))


def make(op: str, *args: Scalar) -> Scalar:
    """`op(args)`, computed at once where it can be."""
    if not any(isinstance(a, Expr) for a in args):
        return _MEANING[op](*args)
    match op, args:
        case ("add", (0, x)) | ("add", (x, 0)) | ("sub", (x, 0)):
            return x
        case ("mul", (1, x)) | ("mul", (x, 1)) | ("div", (x, 1)):
            return x
        case ("mul", (0, _)) | ("mul", (_, 0)) | ("mod", (_, 1)):
            return 0
        case ("min" | "max", (x, y)) if x == y:
            return x
    return Expr(op, args)


def add(a: Scalar, b: Scalar) -> Scalar:
    return make("add", a, b)


def sub(a: Scalar, b: Scalar) -> Scalar:
    return make("sub", a, b)


def mul(a: Scalar, b: Scalar) -> Scalar:
    return make("mul", a, b)


def ceil_div(a: Scalar, b: int) -> Scalar:
    return make("div", add(a, b - 1), b)


def compiled(e: Scalar) -> Callable[[Env, Any], Any]:
    """`e` as a function of (variables and scalar parameters by name, index tensors by name). An
    index tensor is indexed with one tuple. Raises KeyError for a name that is not there."""
    if not isinstance(e, Expr):
        return lambda env, gm, value=e: value
    code = f"lambda env, gm, f=f: {_source(e)}"
    return eval(code, {"f": _MEANING})  # noqa: S307 - our own text, names are quoted


def compiled_all(
    exprs: Iterable[Scalar], arrays: bool = False
) -> Callable[[Env, Any], tuple[Any, ...]]:
    """All of `exprs` at once, as `compiled`. With `arrays` a variable may be an integer array, and
    what depends on it is one (a condition that chooses is evaluated on both sides)."""
    parts = "".join(f"{_source(e, arrays)}, " for e in exprs)
    meaning = _ARRAYS if arrays else _MEANING
    return eval(f"lambda env, gm, f=f, np=np: ({parts})", {"f": meaning, "np": np})  # noqa: S307


def _source(e: Scalar, arrays: bool = False) -> str:
    if not isinstance(e, Expr):
        return repr(e)
    if e.op in ("var", "arg"):
        return f"env[{e.args[0]!r}]"
    if e.op == "load":
        element = f"gm[{e.args[0]!r}][{''.join(_source(a, arrays) + ', ' for a in e.args[1:])}]"
        return f"np.asarray({element}, np.int64)" if arrays else f"int({element})"
    if e.op in ("add", "sub", "mul", "div", "mod", "fdiv"):
        return f"({_source(e.args[0], arrays)} {_SIGNS[e.op]} {_source(e.args[1], arrays)})"
    return f"f[{e.op!r}]({', '.join(_source(a, arrays) for a in e.args)})"


def names(e: Scalar) -> set[str]:
    """Variables (not parameters) that `e` reads."""
    if not isinstance(e, Expr):
        return set()
    if e.op == "var":
        return {e.args[0]}
    rest = e.args[1:] if e.op in ("load", "arg") else e.args
    return set().union(*map(names, rest)) if rest else set()
