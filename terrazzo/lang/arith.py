"""Arithmetic on operands: checks types and axes, emits IR. Python's operators end up here."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from terrazzo.errors import KernelError
from terrazzo.ir import infer
from terrazzo.ir.types import DType, ElemType, Format, Value, bool_, f32, i32
from terrazzo.lang.trace import current

if TYPE_CHECKING:
    from terrazzo.lang.symbols import Tile

Number = int | float
_SIGN = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "and": "&",
    "or": "|",
    "xor": "^", "shl": "<<", "shr": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=",
}  # fmt: skip
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "shl": operator.lshift, "shr": operator.rshift, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
    "max": max, "min": min,
}  # fmt: skip


def tile(value: Value) -> Tile:
    from terrazzo.lang.symbols import Tile

    return Tile(value)


def lift(what: str, x: Any) -> Tile | Number:
    """An operand as a Tile or a Python number; anything else is the user's error."""
    from terrazzo.lang.symbols import NUMBERS, Operand, describe

    if isinstance(x, Operand):
        return x.lift()
    if isinstance(x, NUMBERS):
        number: Any = x
        return number.item() if hasattr(number, "item") else number
    raise KernelError(f"{what} takes tiles and numbers, got {describe(x)}")


def number(x: Number, dtype: ElemType) -> Value:
    """A Python number as a constant of `dtype`, the type of the operand beside it."""
    if not isinstance(dtype, DType):
        raise packed(dtype)
    if isinstance(x, float) and dtype.kind != "float":
        raise KernelError(f"{x!r} meets a value of type {dtype}", "cast the value with .to(tz.f32)")
    if dtype.kind == "bool" and not isinstance(x, bool):
        raise KernelError(f"{x!r} meets a condition (bool)", "cast the condition with .to(…)")
    return current().const(x, dtype)


def values(what: str, *xs: Any, like: ElemType | None = None) -> tuple[Value, ...]:
    """Operands as values; numbers take the type of the first tile, else `like`, else i32 or f32."""
    lifted = [lift(what, x) for x in xs]
    dtype = next((x.dtype for x in lifted if not isinstance(x, (int, float))), like)
    if dtype is None:
        dtype = f32 if any(isinstance(x, float) for x in lifted) else i32
    return tuple(number(x, dtype) if isinstance(x, (int, float)) else x.value for x in lifted)


def packed(dtype: Format) -> KernelError:
    return KernelError(
        f"a packed {dtype} tile takes part only in @", "decode it first: .to(tz.f32)"
    )


def same(what: str, *args: Value) -> DType:
    """The one element type of all arguments."""
    types = [v.dtype for v in args]
    for t in types:
        if isinstance(t, Format):
            raise packed(t)
        if t != types[0]:
            raise KernelError(
                f"{what}: {types[0]} and {t} do not mix", "cast one of them with .to(…)"
            )
    assert isinstance(types[0], DType)
    return types[0]


def emit(op: str, args: tuple[Value, ...], dtype: ElemType | None = None) -> Tile:
    """An elementwise op; its axes are its arguments' by name."""
    axes = infer.broadcast(args)
    return tile(current().op(op, args, args[0].dtype if dtype is None else dtype, axes))


def binary(op: str, a: Any, b: Any) -> Any:
    what = f"`{_SIGN[op]}`" if op in _SIGN else op
    x, y = lift(what, a), lift(what, b)
    if isinstance(x, (int, float)) and isinstance(y, (int, float)):
        return _PYTHON[op](x, y)
    args = values(what, x, y)
    dtype = same(what, *args)
    kinds = ("int", "uint", "bool") if op in infer.BITWISE else ("int", "uint")
    if op in infer.BITWISE + infer.INT_BINARY and dtype.kind not in kinds:
        raise KernelError(f"{what} needs integers, got {dtype}", "cast with .to(tz.i32)")
    if op == "div" and dtype.kind != "float":
        raise KernelError(f"`/` needs floats, got {dtype}", "use // or cast with .to(tz.f32)")
    if dtype.kind == "bool" and op not in infer.BITWISE:
        raise KernelError(
            f"{what} is not defined on conditions (bool)", "cast with .to(tz.f32) or .to(tz.i32)"
        )
    return emit(op, args)


def compare(op: str, a: Any, b: Any) -> Any:
    what = f"`{_SIGN[op]}`"
    if a is None or b is None:  # x == None: never equal
        return op == "ne"
    x, y = lift(what, a), lift(what, b)
    if isinstance(x, (int, float)) and isinstance(y, (int, float)):
        return _PYTHON[op](x, y)
    args = values(what, x, y)
    same(what, *args)
    return emit(op, args, bool_)


def unary(op: str, a: Any) -> Any:
    x = lift(op, a)
    if isinstance(x, (int, float)):
        if op == "neg":
            return -x
        if op == "abs":
            return abs(x)
        (v,) = values(op, float(x) if op in infer.FLOAT_UNARY else x)
    else:
        v = x.value
    dtype = same(op, v)
    if op in infer.FLOAT_UNARY and dtype.kind != "float":
        raise KernelError(f"{op} needs floats, got {dtype}", "cast with .to(tz.f32)")
    if op == "not" and dtype.kind == "float":
        raise KernelError(f"`~` needs integers or conditions, got {dtype}")
    if op in ("neg", "abs") and dtype.kind == "bool":
        raise KernelError(
            f"{op} is not defined on conditions (bool)", "use ~, or cast with .to(tz.i32)"
        )
    return emit(op, (v,))


def power(a: Any, n: Any) -> Any:
    """`x ** n` for n = 2, 3, 4 by multiplication, 0.5 by sqrt."""
    if n == 0.5:
        return unary("sqrt", a)
    if n not in (1, 2, 3, 4):
        raise KernelError(
            f"`** {n}` is not offered", "use ** 2, 3, 4 or 0.5, or tz.exp2(n * tz.log2(x))"
        )
    out = a
    for _ in range(int(n) - 1):
        out = out * a
    return out


def element_type(dtype: Any) -> ElemType:
    """Resolve a type variable to the type it is bound to."""
    name = getattr(dtype, "name", None)
    if isinstance(dtype, (DType, Format)):
        return dtype
    if hasattr(dtype, "choices"):
        types = current().types
        if name not in types:
            raise KernelError(
                f"type variable `{name}` is bound by no tensor given", "give a tensor of that type"
            )
        return types[name]
    raise KernelError(
        f"{dtype!r} is not an element type", "use tz.f32, tz.f16, tz.i32 … or a type variable"
    )


def cast(a: Any, dtype: Any) -> Tile:
    to = element_type(dtype)
    (v,) = values(".to()", a)
    if v.dtype == to:
        return tile(v)
    if isinstance(to, Format):
        raise KernelError(f".to({to}) is not a cast", f"use tz.quantize(x, tz.{to})")
    if isinstance(v.dtype, Format) and to.kind != "float":
        raise KernelError(f"{v.dtype} decodes to floats, not {to}", "decode it with .to(tz.f32)")
    if to == bool_:
        raise KernelError(".to(bool) is not a cast", "compare: x != 0")
    return emit("cast", (v,), to)


def bitcast(a: Any, dtype: Any) -> Tile:
    to = element_type(dtype)
    (v,) = values("bitcast", a)
    source = same("bitcast", v)
    if not isinstance(to, DType) or to.bits != source.bits or bool_ in (to, source):
        raise KernelError(
            f"bitcast from {source} to {to}: sizes differ", "both must have equally many bits"
        )
    return emit("bitcast", (v,), to)


def dot(a: Any, b: Any) -> Tile:
    """Contract every axis the two share; f32 from floats and packed types, i32 from i8 x i8."""
    for x in (a, b):
        if isinstance(lift("`@`", x) if isinstance(x, (int, float)) else x, (int, float)):
            raise KernelError("`@` takes two tiles, got a number", "use * to scale")
    x, y = values("`@`", a)[0], values("`@`", b)[0]
    shared = [axis for axis in x.axes if axis in y.axes]
    if not shared:
        raise KernelError(
            f"`@` contracts axes both sides share; {x.type} and {y.type} share none",
            "index both with the same block",
        )
    for v in (x, y):
        if isinstance(v.dtype, Format) and v.axes[-1] not in shared:
            raise KernelError(
                f"{v.type}: the packed axis `{v.axes[-1]}` is not contracted",
                "groups lie along the summed axis",
            )
    dtype = infer.dot_dtype(x.dtype, y.dtype)
    if dtype is None:
        raise KernelError(
            f"`@` of {x.dtype} and {y.dtype} is not offered",
            "it takes f32, f16, bf16, i8 and packed tiles; use .to(…)",
        )
    return tile(current().op("dot", (x, y), dtype, infer.dot_axes(x, y)))


def reduce(kind: str, a: Any, axis: Any) -> Tile:
    """Drop one axis, or each of a tuple of axes in turn."""
    from terrazzo.lang.symbols import Block, Dim, describe

    (v,) = values(f"tz.{kind}", a)
    dtype = same(f"tz.{kind}", v)
    if dtype == bool_:
        raise KernelError(f"tz.{kind} of a condition (bool)", "cast it: .to(tz.i32)")
    several = axis if isinstance(axis, tuple) else (axis,)
    if kind == "argmax" and len(several) > 1:
        raise KernelError("tz.argmax takes one axis")
    for one in several:
        if not isinstance(one, (Block, Dim)):
            raise KernelError(
                f"axis={describe(one)} is not an axis", "give a dim or a block, e.g. axis=dim"
            )
        name = one.axis if isinstance(one, Block) else one.name
        if name not in v.axes:
            raise KernelError(
                f"tz.{kind}: axis `{name}` is not an axis of the tile {v.type}",
                f"its axes are: {', '.join(v.axes) or 'none (a scalar)'}",
            )
        result = infer.sum_dtype(dtype) if kind == "sum" else i32 if kind == "argmax" else dtype
        rest = tuple(x for x in v.axes if x != name)
        v = current().op("reduce", (v,), result, rest, axis=name, kind=kind)
    return tile(v)
