"""The type rule of every op: from the types of its arguments to the type of its result."""

from __future__ import annotations

from collections.abc import Callable

from terrazzo.errors import KernelError
from terrazzo.ir.ops import BINARY, COMPARE, LEAVES, UNARY, Op
from terrazzo.ir.types import DType, ElemType, Format, TileType, Value, bool_, f32, i8, i32, u8, u32

FLOAT_UNARY = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos",
               "floor", "round")  # fmt: skip
BITWISE = ("and", "or", "xor")
INT_BINARY = ("floordiv", "mod", "shl", "shr")


def broadcast(args: tuple[Value, ...]) -> tuple[str, ...]:
    """Axes by name: those of the first argument, then those of later ones that are new."""
    return tuple(dict.fromkeys(axis for v in args for axis in v.axes))


def dot_axes(a: Value, b: Value) -> tuple[str, ...]:
    """Axes of a·b: those of either that are not shared."""
    shared = set(a.axes) & set(b.axes)
    return tuple(axis for v in (a, b) for axis in v.axes if axis not in shared)


def dot_dtype(a: ElemType, b: ElemType) -> DType | None:
    """f32 from floats and packed types, i32 from bytes (one of them signed), else None."""
    if {a, b} <= {i8, u8} and i8 in (a, b):
        return i32
    if all(isinstance(t, Format) or t.kind == "float" for t in (a, b)):
        return f32
    return None


def sum_dtype(x: DType) -> DType:
    """Sums of floats are f32, of u32 u32, of other integers i32."""
    return f32 if x.kind == "float" else u32 if x == u32 else i32


def result_type(op: Op) -> TileType:
    """The type `op` must have. Raises KernelError if the arguments are not what the op takes.

    A leaf's, cast's, bitcast's and quantize's element type and a constant's axes are given by the
    op's own result. The order of axes has no meaning for a plain type; a packed one's groups lie
    on its last.
    """
    rule = _RULES.get(op.op)
    if rule is None:
        raise KernelError(f"{op.op} is not an op")
    return rule(op)


def _need(condition: bool, op: Op, what: str) -> None:
    if not condition:
        types = ", ".join(repr(v.type) for v in op.args)
        raise KernelError(f"{op.op}({types}): {what}")


def _plain(op: Op, count: int) -> DType:
    """Exactly `count` arguments of one plain type; returns it."""
    _need(len(op.args) == count, op, f"takes {count} argument{'s' if count > 1 else ''}")
    first = op.args[0].dtype
    _need(all(v.dtype == first for v in op.args), op, "element types do not agree")
    if not isinstance(first, DType):
        raise KernelError(f"{op.op}: {first} is packed")
    return first


def _unary(op: Op) -> TileType:
    dtype = _plain(op, 1)
    if op.op in FLOAT_UNARY:
        _need(dtype.kind == "float", op, "takes floats")
    elif op.op == "not":
        _need(dtype.kind != "float", op, "takes integers or bool")
    else:
        _need(dtype.kind != "bool", op, "does not take bool")
    return op.args[0].type


def _binary(op: Op) -> TileType:
    dtype = _plain(op, 2)
    if op.op in BITWISE:
        _need(dtype.kind != "float", op, "takes integers or bool")
    elif op.op in INT_BINARY:
        _need(dtype.kind in ("int", "uint"), op, "takes integers")
    elif op.op == "div":
        _need(dtype.kind == "float", op, "takes floats")
    elif op.op == "umulhi":
        _need(dtype == u32, op, "takes u32")
    else:
        _need(dtype.kind != "bool", op, "does not take bool")
    return TileType(dtype, broadcast(op.args))


def _compare(op: Op) -> TileType:
    _plain(op, 2)
    return TileType(bool_, broadcast(op.args))


def _leaf(op: Op) -> TileType:
    _need(not op.args, op, "takes no arguments")
    if op.op in ("const", "arg"):
        if not isinstance(op.result.dtype, DType):
            raise KernelError(f"{op.op} of packed type {op.result.dtype}")
        return TileType(op.result.dtype, op.result.axes if op.op == "const" else ())
    return TileType(i32, (str(op.attr("axis")),) if op.op == "index" else ())


def _where(op: Op) -> TileType:
    _need(len(op.args) == 3, op, "takes 3 arguments")
    c, a, b = op.args
    _need(c.dtype == bool_ and a.dtype == b.dtype, op, "takes bool and two of one type")
    return TileType(a.dtype, broadcast((a, b, c)))


def _fma(op: Op) -> TileType:
    dtype = _plain(op, 3)
    _need(dtype.kind == "float", op, "takes floats")
    return TileType(dtype, broadcast(op.args))


def _convert(op: Op) -> TileType:
    _need(len(op.args) == 1, op, "takes 1 argument")
    to, of = op.result.dtype, op.args[0].dtype
    if op.op == "quantize":
        _need(
            isinstance(to, Format) and isinstance(of, DType) and of.kind == "float",
            op,
            "packs floats",
        )
    elif op.op == "cast":
        floats = isinstance(to, DType) and (not isinstance(of, Format) or to.kind == "float")
        _need(floats and to != bool_, op, f"does not give {to}")
    else:
        _need(
            isinstance(to, DType) and isinstance(of, DType) and to.bits == of.bits,
            op,
            "sizes do not agree",
        )
    return TileType(to, op.args[0].axes)


def _reduce(op: Op) -> TileType:
    dtype, axis, kind = _plain(op, 1), op.attr("axis"), op.attr("kind")
    _need(axis in op.args[0].axes, op, f"has no axis {axis}")
    _need(dtype != bool_, op, "does not take bool")
    _need(kind in ("sum", "max", "min", "argmax"), op, f"has no kind {kind}")
    rest = tuple(a for a in op.args[0].axes if a != axis)
    result = sum_dtype(dtype) if kind == "sum" else i32 if kind == "argmax" else dtype
    return TileType(result, rest)


def _dot(op: Op) -> TileType:
    acc = op.op == "dot_acc"
    _need(len(op.args) == (3 if acc else 2), op, f"takes {3 if acc else 2} arguments")
    a, b = op.args[-2:]
    dtype, axes = dot_dtype(a.dtype, b.dtype), dot_axes(a, b)
    if dtype is None:
        raise KernelError(f"{op.op} of {a.type} and {b.type} is not offered")
    shared = set(a.axes) & set(b.axes)
    _need(bool(shared), op, "the two share no axis")
    for v in (a, b):
        _need(
            isinstance(v.dtype, DType) or v.axes[-1] in shared,
            op,
            "a packed axis is not contracted",
        )
    if acc:
        _need(op.args[0].dtype == dtype, op, f"accumulates in {dtype}")
        axes = tuple(dict.fromkeys(op.args[0].axes + axes))
    return TileType(dtype, axes)


_RULES: dict[str, Callable[[Op], TileType]] = {
    **dict.fromkeys(UNARY, _unary), **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(COMPARE, _compare), **dict.fromkeys(LEAVES, _leaf),
    **dict.fromkeys(("cast", "bitcast", "quantize"), _convert),
    **dict.fromkeys(("dot", "dot_acc"), _dot),
    "where": _where, "fma": _fma, "reduce": _reduce,
}  # fmt: skip
