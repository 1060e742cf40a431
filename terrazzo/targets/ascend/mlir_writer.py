"""Writes MLIR text: values by name, constants once a function, an operation a line with its place.

Scalars of a core program become `arith` on `index` (sizes, offsets, loop variables) or on `f32`
(scalar parameters of the kernel).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from terrazzo.ir.ops import Loc
from terrazzo.ir.types import DType, f32
from terrazzo.targets.davinci.expr import Expr, Scalar

T = TypeVar("T")

# HIVM's integers have no sign, and the passes take a constant of no other; ui8 is the exception
# that they need to be told: a byte that converts to a number above 127.
TYPES = {"f32": "f32", "f16": "f16", "bf16": "bf16", "i8": "i8", "u8": "ui8", "i16": "i16",
         "i32": "i32", "u32": "i32", "bool": "i1"}  # fmt: skip
_INFINITY = {"f32": "0x7F800000", "f16": "0x7C00", "bf16": "0x7F80"}
_MINUS_INFINITY = {"f32": "0xFF800000", "f16": "0xFC00", "bf16": "0xFF80"}
_NAN = {"f32": "0x7FC00000", "f16": "0x7E00", "bf16": "0x7FC0"}
_ROUNDED = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

_INDEX_OPS = {"add": "addi", "sub": "subi", "mul": "muli", "min": "minsi", "max": "maxsi"}
_FLOAT_OPS = {"add": "addf", "sub": "subf", "mul": "mulf", "min": "minimumf", "max": "maximumf",
              "fdiv": "divf", "div": "divf"}  # fmt: skip
_ORDER = {"lt": "slt", "le": "sle", "eq": "eq", "ne": "ne"}
_FLOAT_ORDER = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une"}


def literal(value: float, kind: str) -> str:
    """`value` as a constant of MLIR type `kind`, rounded to it."""
    if kind not in _ROUNDED:
        return str(int(value))
    with np.errstate(over="ignore"):  # what is too large becomes an infinity
        rounded = float(_ROUNDED[kind](value))
    if math.isnan(rounded):
        return _NAN[kind]
    if math.isinf(rounded):
        return (_INFINITY if rounded > 0 else _MINUS_INFINITY)[kind]
    text = repr(rounded)
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


def location(loc: Loc | None, name: str = "") -> str:
    """` loc(…)` behind an operation; `name` is what the author calls its result."""
    if loc is None:
        return ""
    file = loc.file.replace("\\", "\\\\").replace('"', '\\"')
    place = f'"{file}":{loc.line}:{loc.col + 1}'
    return f' loc("{name}"({place}))' if name else f" loc({place})"


@dataclass
class Scope:
    """A block: scalars by name with their values and MLIR types, and what was computed in it, so
    that nothing is computed twice."""

    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    known: dict[object, Any] = field(default_factory=dict)


@dataclass
class Writer:
    """One function's body. `loc`: the place of what is written, where no other is given."""

    indent: int = 2
    lines: list[str] = field(default_factory=list)
    _constants: dict[tuple[str, str], str] = field(default_factory=dict)
    _count: int = 0
    scopes: list[Scope] = field(default_factory=lambda: [Scope()])
    loc: Loc | None = None

    def fresh(self, stem: str = "") -> str:
        """A new value's name."""
        self._count += 1
        return f"%{stem or 'v'}{self._count}"

    def line(self, text: str, loc: Loc | None = None, name: str = "") -> None:
        self.lines.append("  " * self.indent + text + location(loc or self.loc, name))

    def raw(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def op(self, text: str, stem: str = "") -> str:
        """An operation with one result; the result's name."""
        result = self.fresh(stem)
        self.line(f"{result} = {text}")
        return result

    def constant(self, value: float, kind: str) -> str:
        text = literal(value, kind)
        plain = text.removeprefix("-").isdigit() and kind == "index"
        name = f"%c{text}" if plain else f"%c{len(self._constants)}_{kind}"
        return self._constants.setdefault((text, kind), name)

    def prologue(self) -> list[str]:
        """The lines of the constants, which stand before the body."""
        pad = "  " * self.indent
        return [
            f"{pad}{name} = arith.constant {value}" + ("" if kind == "i1" else f" : {kind}")
            for (value, kind), name in self._constants.items()
        ]

    # -- names ---------------------------------------------------------------------------------

    def bind(self, name: str, value: str, kind: str = "index") -> None:
        """Scalar `name` is `value` from here to the end of the innermost scope. What was computed
        from another value of it is forgotten."""
        if self.look_up(name) is not None:
            for scope in self.scopes:
                scope.known.clear()
        self.scopes[-1].names[name] = (value, kind)

    def look_up(self, name: str) -> tuple[str, str] | None:
        return next((s.names[name] for s in reversed(self.scopes) if name in s.names), None)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What `make` gave for `key` in this scope or one around it, made now if nothing has."""
        for scope in reversed(self.scopes):
            if key in scope.known:
                return scope.known[key]
        made = make()
        self.scopes[-1].known[key] = made
        return made

    # -- scalars -------------------------------------------------------------------------------

    def index(self, e: Scalar) -> str:
        """`e` as an `index` value."""
        return self.once(("index", e), lambda: self.convert(*self.scalar(e), "index"))

    def of_type(self, e: Scalar, dtype: DType) -> str:
        """`e` as a scalar operand of an instruction on `dtype`."""
        kind = TYPES[dtype.name]
        if not isinstance(e, Expr):
            return self.constant(e, kind)
        return self.convert(*self.scalar(e), kind)

    def convert(self, value: str, kind: str, to: str) -> str:
        """`value` of MLIR type `kind` as `to`; integers become floats by value."""
        if kind == to:
            return value
        if kind == "i1":
            return self.convert(self.op(f"arith.extui {value} : i1 to i32"), "i32", to)
        if to == "i1":
            zero = self.constant(0, kind)
            return self.op(f"arith.cmpi ne, {value}, {zero} : {kind}")
        floats = ("f32", "f16", "bf16")
        if to in floats:
            if kind == "index":
                return self.convert(self.op(f"arith.index_cast {value} : index to i32"), "i32", to)
            if kind not in floats:
                return self.op(f"arith.sitofp {value} : {kind} to {to}")
            return self.op(
                f"arith.{'truncf' if kind == 'f32' else 'extf'} {value} : {kind} to {to}"
            )
        if kind in floats:
            return self.convert(self.op(f"arith.fptosi {value} : {kind} to i32"), "i32", to)
        if "index" in (kind, to):
            return self.op(f"arith.index_cast {value} : {kind} to {to}")
        wider = int(to[1:]) > int(kind[1:])
        return self.op(f"arith.{'extsi' if wider else 'trunci'} {value} : {kind} to {to}")

    def scalar(self, e: Scalar) -> tuple[str, str]:
        """The value that computes `e`, and its MLIR type. Raises KeyError for an unknown name."""
        return self.once(e, lambda: self._scalar(e)) if isinstance(e, Expr) else self._scalar(e)

    def _scalar(self, e: Scalar) -> tuple[str, str]:
        if isinstance(e, float):
            return self.constant(e, "f32"), "f32"
        if not isinstance(e, Expr):
            return self.constant(e, "index"), "index"
        if e.op in ("var", "arg"):
            found = self.look_up(str(e.args[0]))
            if found is None:
                raise KeyError(e.args[0])
            return found
        if e.op == "load":
            return self._load(e)
        if e.op == "select":
            condition = self.condition(e.args[0])
            a, b, kind = self._pair(e.args[1], e.args[2])
            return self.op(f"arith.select {condition}, {a}, {b} : {kind}"), kind
        if e.op in ("and", "or"):
            a, b = (self.condition(x) for x in e.args)
            return self.op(f"arith.{e.op}i {a}, {b} : i1"), "i1"
        if e.op in ("neg", "sqrt"):
            value = self.of_type(e.args[0], f32)
            name = "arith.negf" if e.op == "neg" else "math.sqrt"
            return self.op(f"{name} {value} : f32"), "f32"
        if e.op == "fdiv":
            a, b = (self.of_type(x, f32) for x in e.args)
            return self.op(f"arith.divf {a}, {b} : f32"), "f32"
        a, b, kind = self._pair(*e.args)
        if e.op in _ORDER:
            order = f"cmpi {_ORDER[e.op]}" if kind == "index" else f"cmpf {_FLOAT_ORDER[e.op]}"
            return self.op(f"arith.{order}, {a}, {b} : {kind}"), "i1"
        if e.op in ("div", "mod") and kind == "index":
            return self._divide(e, a, b), kind
        table = _INDEX_OPS if kind == "index" else _FLOAT_OPS
        return self.op(f"arith.{table[e.op]} {a}, {b} : {kind}"), kind

    def condition(self, e: Scalar) -> str:
        """`e` as i1: whether it is not 0."""
        if not isinstance(e, Expr):
            return self.constant_bool(bool(e))
        return self.convert(*self.scalar(e), "i1")

    def constant_bool(self, value: bool) -> str:
        text = "true" if value else "false"
        return self._constants.setdefault((text, "i1"), f"%{text}")

    def _pair(self, a: Scalar, b: Scalar) -> tuple[str, str, str]:
        """Both as f32 if one is a float, else as index."""
        kinds = {x: self.scalar(x) for x in (a, b) if isinstance(x, Expr)}
        floats = any(isinstance(x, float) for x in (a, b))
        floats = floats or any(kind.startswith(("f", "bf")) for _, kind in kinds.values())
        to = "f32" if floats else "index"
        left, right = (
            self.convert(*kinds[x], to) if isinstance(x, Expr) else self.constant(x, to)
            for x in (a, b)
        )
        return left, right, to

    def _divide(self, e: Expr, a: str, b: str) -> str:
        """Rounded down; by a positive number. What may be negative takes a correction."""
        quotient = e.op == "div"
        if not_negative(e.args[0]):
            return self.op(f"arith.{'divsi' if quotient else 'remsi'} {a}, {b} : index")
        rest = self.op(f"arith.remsi {a}, {b} : index")
        below = self.op(f"arith.cmpi slt, {rest}, {self.constant(0, 'index')} : index")
        if not quotient:
            whole = self.op(f"arith.addi {rest}, {b} : index")
            return self.op(f"arith.select {below}, {whole}, {rest} : index")
        value = self.op(f"arith.divsi {a}, {b} : index")
        lower = self.op(f"arith.subi {value}, {self.constant(1, 'index')} : index")
        return self.op(f"arith.select {below}, {lower}, {value} : index")

    def _load(self, e: Expr) -> tuple[str, str]:
        found = self.look_up(str(e.args[0]))
        if found is None:
            raise KeyError(e.args[0])
        memory, kind = found
        at = ", ".join(self.index(i) for i in e.args[1:])
        element = kind.removeprefix("memref<").split(",")[0].split("x")[-1]
        return self.op(f"memref.load {memory}[{at}] : {kind}"), element


def not_negative(e: Scalar) -> bool:
    """Whether `e` is surely 0 or more. Loop variables and core numbers are."""
    if not isinstance(e, Expr):
        return e >= 0
    if e.op == "var":
        return True
    if e.op in ("add", "mul", "div", "min"):
        return all(map(not_negative, e.args))
    if e.op in ("max", "mod"):
        return any(map(not_negative, e.args)) if e.op == "max" else True
    return e.op in ("lt", "le", "eq", "ne", "and", "or") or (
        e.op == "select" and all(map(not_negative, e.args[1:]))
    )
