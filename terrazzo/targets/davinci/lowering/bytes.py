"""Arithmetic of bytes in 16 bits: the vector unit has none in 8, but casts by f16, which holds
every byte.

An operation on i8 or u8 becomes one on i16 and, where its result may not fit a byte, one that wraps
it. Its result is a byte's value in 16 bits; what reads that needs no byte in memory. Comparisons
and extremes along an axis are done in f16, sums in i32.
"""

from __future__ import annotations

from terrazzo.ir.ops import COMPARE, Kernel, Op
from terrazzo.ir.rewrite import Rewriter
from terrazzo.ir.types import DType, TileType, Value, f16, i8, i16, i32, u8

_BYTES = (i8, u8)
_FITS = ("and", "or", "xor", "shr", "max", "min", "where")
_WRAPS = ("add", "sub", "shl", "neg", "abs", "not")


def widen(kernel: Kernel) -> Kernel:
    """See the top of the file. Operations that have no rule stay as they are (u8 products among
    them, which 16 bits do not hold)."""
    return _Widen(kernel).run()


class _Widen(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.wide: dict[int, Value] = {}  # a byte value's id -> the same in i16

    def op(self, s: Op) -> Value:
        kinds = {a.dtype for a in s.args}
        if not kinds & set(_BYTES) or not any(a.axes for a in s.args):
            return self.emit(s)
        if s.op == "cast":
            return self._cast(s)
        if s.op in COMPARE:
            args = tuple(self._as(a, f16, s) for a in s.args)
            return self.emit(Op(s.result, s.op, args, s.attrs, s.loc))
        if s.op == "reduce":
            return self._reduce(s)
        if s.op in (*_FITS, *_WRAPS) or (s.op == "mul" and s.result.dtype == i8):
            args = tuple(self._as(a, i16, s) if a.dtype in _BYTES else a for a in s.args)
            made = self.make(s.op, args, TileType(i16, s.result.axes), s)
            if s.op not in _FITS:
                made = self._wrapped(made, s.result.dtype, s)
            return self._narrow(made, s)
        return self.emit(s)

    def _as(self, v: Value, dtype: DType, like: Op) -> Value:
        """A byte value in a wider type."""
        known = self.wide.get(v.id)
        if known is not None and dtype == i16:
            return known
        half = self.make("cast", (known or v,), TileType(f16, v.axes), like)
        return half if dtype == f16 else self.make("cast", (half,), TileType(dtype, v.axes), like)

    def _wrapped(self, v: Value, dtype: object, like: Op) -> Value:
        """The lowest 8 bits of an i16 value, as one of `dtype`."""
        if dtype == u8:
            return self.make("and", (v, self.const(255, i16, like)), v.type, like)
        for op in ("shl", "shr"):  # the second one repeats the sign
            v = self.make(op, (v, self.const(8, i16, like)), v.type, like)
        return v

    def _narrow(self, v: Value, s: Op) -> Value:
        out = self.emit(Op(s.result, "cast", (v,), (), s.loc))
        self.wide[out.id] = v
        return out

    def _cast(self, s: Op) -> Value:
        (x,) = s.args
        if s.result.dtype in _BYTES and s.result.dtype != x.dtype:
            return self._narrow(self._wrapped(self._as(x, i16, s), s.result.dtype, s), s)
        known = self.wide.get(x.id)
        return self.emit(s if known is None else Op(s.result, "cast", (known,), (), s.loc))

    def _reduce(self, s: Op) -> Value:
        (x,) = s.args
        if s.attr("kind") == "sum":
            whole = self.make("cast", (self.wide.get(x.id, x),), TileType(i32, x.axes), s)
            return self.emit(Op(s.result, "reduce", (whole,), s.attrs, s.loc))
        if s.attr("kind") == "argmax":
            return self.emit(s)
        half = self._as(x, f16, s)
        most = self.make("reduce", (half,), TileType(f16, s.result.axes), s, **dict(s.attrs))
        return self._narrow(self.make("cast", (most,), TileType(i16, most.axes), s), s)
