"""Operations of the tile IR on the vector unit, which works from buffer to buffer in f16, f32, i16
and i32: which rule serves an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from terrazzo.ir.ops import Op
from terrazzo.ir.types import DType, Value, bf16, bool_, f16, f32, i32
from terrazzo.targets.davinci.expr import add, make, mul
from terrazzo.targets.davinci.lowering import casts, masks
from terrazzo.targets.davinci.lowering.arithmetic import arithmetic
from terrazzo.targets.davinci.lowering.operands import Axes, Kept, Operands, unsupported
from terrazzo.targets.davinci.lowering.tiles import Affine, Constant, Emitter, Tile
from terrazzo.targets.davinci.program import Stmt

# Of constants: what the core's scalar unit computes instead.
_SCALARS = {"add": "add", "sub": "sub", "mul": "mul", "max": "max", "min": "min", "neg": "neg",
            "floordiv": "div", "mod": "mod", "div": "fdiv", "sqrt": "sqrt", "lt": "lt", "le": "le",
            "eq": "eq", "ne": "ne"}  # fmt: skip


class Vector:
    """Emits vector instructions. `prologue`: statements at the function's start, for what is the
    same all the time."""

    def __init__(self, e: Emitter, prologue: list[Stmt]) -> None:
        self.e = e
        self.operands = Operands(e, prologue)

    def tile(self, kept: Kept, dtype: DType, axes: Axes) -> Tile:
        """`kept` in memory."""
        return self.operands.tile(kept, dtype, axes)

    def compute(self, op: Op, args: Sequence[Kept], out: Tile | None,
                free: Callable[[Value], bool]) -> Kept:  # fmt: skip
        """What `op` gives, in `out` if that is given and memory is needed. `free(v)`: nobody reads
        the value afterwards, its tile may be overwritten."""
        e, o = self.e, self.operands
        dtype, axes = op.result.dtype, e.sorted(op.result.axes)
        assert isinstance(dtype, DType)
        virtual = self._virtual(op, args)
        if virtual is not None:
            return virtual
        kind = op.args[0].dtype
        assert isinstance(kind, DType)
        if op.op in ("cast", "bitcast"):
            x = o.tile(args[0], kind, e.sorted(op.args[0].axes))
            return casts.cast(e, x, dtype, axes, out) if op.op == "cast" \
                else casts.bitcast(e, x, dtype, out)  # fmt: skip
        if op.op in masks.SWAPPED:
            return masks.compare(o, op, args, kind, axes)
        if op.op == "where":
            return masks.where(o, op, args, axes, out, free)
        if dtype == bool_:
            return masks.logic(o, op, args, axes)
        if dtype == bf16:  # no arithmetic in bf16: up, compute, round once
            wide = [self._widened(a, v) for a, v in zip(args, op.args, strict=True)]
            return casts.cast(e, arithmetic(o, op, wide, f32, axes, None), bf16, axes, out)
        return arithmetic(o, op, args, dtype, axes, out)

    def _widened(self, kept: Kept, v: Value) -> Kept:
        if isinstance(kept, Tile):
            return casts.cast(self.e, kept, f32, self.e.sorted(v.axes))
        return kept

    def _virtual(self, op: Op, args: Sequence[Kept]) -> Kept | None:
        """Results that need no memory: constants, an index plus or minus a scalar, a comparison of
        two indices."""
        if all(isinstance(a, Constant) for a in args) and op.op in _SCALARS:
            values = [a.value for a in args if isinstance(a, Constant)]
            assert isinstance(op.result.dtype, DType)
            return Constant(make(_SCALARS[op.op], *values), op.result.dtype)
        if op.op in ("add", "sub") and op.result.dtype == i32:
            a, b = args
            if isinstance(b, Affine) and isinstance(a, Constant) and op.op == "add":
                a, b = b, a
            if isinstance(a, Affine) and isinstance(b, Constant):
                change = b.value if op.op == "add" else mul(b.value, -1)
                return Affine(a.axis, add(a.offset, change))
        if op.op in masks.SWAPPED:
            a, b = args
            if isinstance(a, Affine) and isinstance(b, Affine) and a.axis and b.axis \
                    and a.axis != b.axis:  # fmt: skip
                return masks.relation(self.e, op.op, a, b)
        return None

    def reduce(self, op: Op, x: Tile, out: Tile | None) -> Tile:
        """Along one axis; attr `axis` is its place among the views' dimensions."""
        kind, axis = op.attr("kind"), str(op.attr("axis"))
        dtype = op.result.dtype
        assert isinstance(dtype, DType)
        if kind == "argmax" or x.buffer.dtype not in (f16, f32, i32):
            raise unsupported(f"reduce {kind}", x.buffer.dtype, op.loc)
        if x.buffer.dtype == f16 and dtype == f32:
            x = casts.cast(self.e, x, f32, x.axes)
        to = out or self.e.tile("t", dtype, [a for a in x.axes if a != axis])
        views = [self.e.view(t, x.axes) for t in (to, x)]
        self.e.emit("vreduce", *views, kind=kind, axis=x.axes.index(axis))
        return to
