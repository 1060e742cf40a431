"""Comparisons, selections and the logic of masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from terrazzo.ir.ops import Op
from terrazzo.ir.types import DType, Value, bf16, bool_, f16, f32, i16, i32, u32
from terrazzo.targets.davinci.expr import Scalar, add, make, sub
from terrazzo.targets.davinci.lowering import casts
from terrazzo.targets.davinci.lowering.operands import Axes, Kept, Operands, Relative, unsupported
from terrazzo.targets.davinci.lowering.tiles import Affine, Constant, Emitter, Tile
from terrazzo.targets.davinci.program import If, View

SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_LOGIC = {"and": "vand", "or": "vor", "xor": "vxor", "not": "vnot"}


def relation(e: Emitter, mode: str, a: Affine, b: Affine) -> Relative:
    """a <mode> b as a comparison of (column - row) with a scalar; the column is the inner axis."""
    if e.order[a.axis] < e.order[b.axis]:
        a, b, mode = b, a, SWAPPED[mode]
    row, column = e.ranges[b.axis], e.ranges[a.axis]
    threshold = sub(add(row.start, b.offset), add(column.start, a.offset))
    most, least = sub(column.size, 1), sub(1, row.size)
    always: Scalar = 0
    if mode in ("le", "lt"):
        always = make(mode, most, threshold)
    elif mode in ("ge", "gt"):
        always = make("le" if mode == "ge" else "lt", threshold, least)
    return Relative(b.axis, a.axis, mode, threshold, always)


def compare(o: Operands, op: Op, args: Sequence[Kept], kind: DType, axes: Axes) -> Tile:
    e, mode = o.e, op.op
    (a, b), values = args, list(op.args)
    if isinstance(a, Constant):
        a, b, mode = b, a, SWAPPED[mode]
        values.reverse()
    if kind in (bf16, bool_):
        a, b = (_in(o, f32, x, v) for x, v in zip((a, b), values, strict=True))
        kind = f32
    if kind == u32 and mode not in ("eq", "ne"):
        raise unsupported(op.op, kind, op.loc)
    if kind not in (f16, f32, i32, u32):
        raise unsupported(op.op, kind, op.loc)
    out = e.tile("mask", bool_, axes)
    left = o.whole(a, kind, axes)
    right = o.whole_second(b, kind, axes)
    if kind == i32 and mode not in ("eq", "ne"):
        # No order of integers, but extremes: a < b where max(a, b) is not a, a <= b where it is b.
        least = mode in ("gt", "ge")
        extreme = e.view(e.tile("t", i32, axes), axes)
        e.emit("vmin" if least else "vmax", extreme, left, right)
        right, mode = (right, "eq") if mode in ("le", "ge") else (left, "ne")
        left = extreme
    e.emit("vcmp", e.view(out, axes), left, right, mode=mode)
    return out


def _in(o: Operands, dtype: DType, kept: Kept, v: Value) -> Kept:
    """`kept` in another type; a constant is what it is."""
    if isinstance(kept, Constant):
        return kept
    assert isinstance(v.dtype, DType)
    axes = o.e.sorted(v.axes)
    return casts.cast(o.e, o.tile(kept, v.dtype, axes), dtype, axes)


def where(o: Operands, op: Op, args: Sequence[Kept], axes: Axes, out: Tile | None,
          free: Callable[[Value], bool]) -> Tile:  # fmt: skip
    """`free(v)`: nobody reads the value afterwards, its tile may be overwritten."""
    e = o.e
    c, a, b = args
    dtype = op.result.dtype
    if dtype not in (f16, bf16, f32, i16, i32, u32):
        assert isinstance(dtype, DType)
        raise unsupported("where", dtype, op.loc)
    if isinstance(c, Relative) and isinstance(a, Tile) and out is None and free(op.args[1]) \
            and a.axes == axes and a.buffer.dtype == dtype:  # fmt: skip
        with e.nested() as body:  # in place, and only where the mask hides something
            to = e.view(a, axes)
            e.emit("vsel", to, o.whole(c, bool_, axes), to, o.whole_second(b, dtype, axes))
        e.body.append(If(make("eq", c.always, 0), tuple(body), e.loc))
        return a
    to = out or e.tile("t", dtype, axes)
    values = [o.whole_second(x, dtype, axes) for x in (a, b)]
    e.emit("vsel", e.view(to, axes), o.whole(c, bool_, axes), *values)
    return to


def logic(o: Operands, op: Op, args: Sequence[Kept], axes: Axes) -> Tile:
    """and, or, xor, not of masks, bit by bit."""
    if op.op not in _LOGIC:
        raise unsupported(op.op, bool_, op.loc)
    out = o.e.tile("mask", bool_, axes)
    views: list[View] = [o.whole(a, bool_, axes) for a in args]
    o.e.emit(_LOGIC[op.op], o.e.view(out, axes), *views)
    return out
