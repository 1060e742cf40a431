"""The `arith` of a planned module as scalars of a core program."""

from __future__ import annotations

from collections.abc import Callable

from terrazzo.targets.ascend.mlir_text import MlirError, Op
from terrazzo.targets.davinci.expr import Expr, Scalar, add, make, mul, sub

_INTEGER_ORDER = ("eq", "ne", "lt", "le", "gt", "ge")  # signed predicates 0 to 5; 6 to 9 unsigned
_FLOAT_ORDER = {1: "eq", 2: "gt", 3: "ge", 4: "lt", 5: "le", 13: "ne"}
_SWAPPED = {"gt": "lt", "ge": "le"}


def _compare(order: str, a: Scalar, b: Scalar) -> Scalar:
    return make(_SWAPPED[order], b, a) if order in _SWAPPED else make(order, a, b)


def _integers(op: Op, xs: list[Scalar]) -> Scalar:
    predicate = op.attrs["predicate"]
    assert isinstance(predicate, int)
    if predicate > 5:  # unsigned: sizes and indices are not negative
        predicate -= 4
    return _compare(_INTEGER_ORDER[predicate], xs[0], xs[1])


def _floats(op: Op, xs: list[Scalar]) -> Scalar:
    order = _FLOAT_ORDER.get(op.attrs["predicate"])  # type: ignore[arg-type]
    if order is None:
        raise MlirError(f"a float comparison of kind {op.attrs['predicate']}")
    return _compare(order, xs[0], xs[1])


def _constant(op: Op, xs: list[Scalar]) -> Scalar:
    value = op.attrs["value"]
    if not isinstance(value, (int, float)):
        raise MlirError(f"a constant {value}")
    return int(value) if isinstance(value, bool) else value


def _narrow(op: Op, xs: list[Scalar]) -> Scalar:
    """To fewer bits: one bit is what is left of an even or odd number; wider types hold it all."""
    return make("mod", xs[0], 2) if op.result_types[0] == "i1" else xs[0]


def _logic(name: str) -> Callable[[Op, list[Scalar]], Scalar]:
    def read(op: Op, xs: list[Scalar]) -> Scalar:
        if op.result_types[0] != "i1":
            raise MlirError(f"{op.name} on {op.result_types[0]}")
        return make(name, *xs)

    return read


def _binary(make_it: Callable[[Scalar, Scalar], Scalar]) -> Callable[[Op, list[Scalar]], Scalar]:
    return lambda op, xs: make_it(xs[0], xs[1])


def _named(name: str) -> Callable[[Op, list[Scalar]], Scalar]:
    return lambda op, xs: make(name, *xs)


def _same(op: Op, xs: list[Scalar]) -> Scalar:
    return xs[0]


def _select(op: Op, xs: list[Scalar]) -> Scalar:
    condition, a, b = xs
    return (a if condition else b) if not isinstance(condition, Expr) else make("select", *xs)


def _ceil_div(a: Scalar, b: Scalar) -> Scalar:
    return make("div", add(a, sub(b, 1)), b)


SCALARS: dict[str, Callable[[Op, list[Scalar]], Scalar]] = {
    "arith.constant": _constant,
    "arith.addi": _binary(add), "arith.subi": _binary(sub), "arith.muli": _binary(mul),
    "arith.divsi": _named("div"), "arith.divui": _named("div"), "arith.floordivsi": _named("div"),
    "arith.remsi": _named("mod"), "arith.remui": _named("mod"),
    "arith.ceildivsi": _binary(_ceil_div), "arith.ceildivui": _binary(_ceil_div),
    "arith.minsi": _named("min"), "arith.maxsi": _named("max"),
    "arith.minui": _named("min"), "arith.maxui": _named("max"),
    "arith.addf": _binary(add), "arith.subf": _binary(sub), "arith.mulf": _binary(mul),
    "arith.divf": _named("fdiv"), "arith.negf": _named("neg"), "math.sqrt": _named("sqrt"),
    "arith.minimumf": _named("min"), "arith.maximumf": _named("max"),
    "arith.cmpi": _integers, "arith.cmpf": _floats,
    "arith.andi": _logic("and"), "arith.ori": _logic("or"), "arith.xori": _logic("ne"),
    "arith.index_cast": _narrow, "arith.index_castui": _narrow, "arith.trunci": _narrow,
    "arith.extui": _same, "arith.extsi": _same, "arith.sitofp": _same, "arith.uitofp": _same,
    "arith.truncf": _same, "arith.extf": _same,
    "arith.select": _select,
}  # fmt: skip
