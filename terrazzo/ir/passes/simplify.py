"""Simplify: one value for one meaning, and less of it.

Goals
* equal ops and equal loads of read-only tensors in a scope or around it become one (by structure);
* ops on constants are computed; x*1, x/1, x-0 and, on integers, x+0, x<<0, x|0, x//1 vanish;
* where with a constant or equal arms, casts to the own type and narrow -> f32 -> narrow vanish;
* exp(s·y) in f32 with a scalar s becomes exp2((s·log2 e)·y): the product is there anyway, and exp2
  needs less range reduction. This is the one rewrite that changes f32 results: constant and factor
  are rounded too, so the exponent's relative error is at most 3 · 2^-24 instead of 2^-24.

Non-goals: reassociation, x·0, float x+0 (it turns -0 into +0), division by reciprocal, fma: they
would change results. Constants with axes stay apart, since each may become a buffer of its own.
"""

from __future__ import annotations

from terrazzo.ir.ops import Kernel, Load, Loop, Op
from terrazzo.ir.passes.fold import Number, fold
from terrazzo.ir.rewrite import Rewriter
from terrazzo.ir.types import DType, TileType, Value, bool_, f32

LOG2E = 1.4426950216293335  # log2(e), rounded to f32


def simplify(kernel: Kernel) -> Kernel:
    """See the top of the file. What it replaces is left for `dead` to drop."""
    return _Simplify(kernel).run()


class _Simplify(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.known: dict[object, Value] = {}  # what a value means -> the value, in this scope
        self.defs: dict[int, Op] = {}
        stored = set(kernel.stored())
        for pair in kernel.aliases:
            if stored & set(pair):
                stored |= set(pair)
        self.written = stored

    def loop(self, s: Loop) -> None:
        outer = dict(self.known)  # values of the body are not visible after it
        super().loop(s)
        self.known = outer

    def load(self, s: Load) -> Value:
        if s.param in self.written:
            return self.emit(s)
        return self._one((s.param, s.index, s.space), s)

    def _one(self, meaning: object, s: Op | Load) -> Value:
        if meaning not in self.known:
            self.known[meaning] = self.emit(s)
        return self.known[meaning]

    def emit(self, s: Op | Load) -> Value:
        if isinstance(s, Op):
            self.defs[s.result.id] = s
        return super().emit(s)

    def op(self, s: Op) -> Value:
        simpler = self._folded(s) or self._identity(s) or self._exp(s)
        if simpler is not None:
            return simpler
        if s.op == "const" and s.result.axes:
            return self.emit(s)
        return self._one(_meaning(s), s)

    def number(self, v: Value) -> Number | None:
        """The number a scalar constant is."""
        d = self.defs.get(v.id)
        if d is None or d.op != "const" or v.axes:
            return None
        value = d.attr("value")
        assert isinstance(value, (int, float))
        return value

    def scalar(self, value: Number, dtype: DType, like: Op) -> Value:
        s = Op(self.fresh(TileType(dtype)), "const", (), (("value", value),), like.loc)
        return self._one(_meaning(s), s)

    def _folded(self, s: Op) -> Value | None:
        numbers = [self.number(a) for a in s.args]
        to = s.result.dtype
        if not numbers or s.op in ("where", "bitcast") or not isinstance(to, DType):
            return None
        dtype = s.args[0].dtype
        constants = [n for n in numbers if n is not None]
        if len(constants) < len(numbers) or not isinstance(dtype, DType):
            return None
        result = fold(s.op, constants, dtype, to)
        return None if result is None else self.scalar(result, to, s)

    def _identity(self, s: Op) -> Value | None:
        same = [a.type == s.result.type for a in s.args]
        if s.op == "where":
            condition, x, y = s.args
            chosen = self.number(condition)
            pick = x if x == y or chosen is True else y if chosen is False else None
            return pick if pick is not None and pick.type == s.result.type else None
        if s.op == "cast":
            return self._cast(s)
        if len(s.args) != 2 or s.result.dtype == bool_:
            return None
        left, right = (self.number(a) for a in s.args)
        whole = isinstance(s.result.dtype, DType) and s.result.dtype.kind in ("int", "uint")
        right_unit = {"mul": 1, "div": 1, "sub": 0}
        left_unit: dict[str, int] = {"mul": 1}
        if whole:
            right_unit |= {"add": 0, "or": 0, "xor": 0, "shl": 0, "shr": 0, "floordiv": 1}
            left_unit |= {"add": 0, "or": 0, "xor": 0}
        if same[0] and right is not None and right == right_unit.get(s.op) and not _negative(right):
            return s.args[0]
        if same[1] and left is not None and left == left_unit.get(s.op):
            return s.args[1]
        return None

    def _cast(self, s: Op) -> Value | None:
        x = s.args[0]
        if x.type == s.result.type:
            return x
        inner = self.defs.get(x.id)
        if inner is not None and inner.op == "cast" and x.dtype == f32:
            origin = inner.args[0]
            narrow = isinstance(origin.dtype, DType) and origin.dtype.kind == "float"
            if narrow and origin.type == s.result.type:
                return origin
        return None

    def _exp(self, s: Op) -> Value | None:
        if s.op != "exp" or s.result.dtype != f32:
            return None
        product = self.defs.get(s.args[0].id)
        if product is None or product.op != "mul":
            return None
        y, scale = product.args if not product.args[1].axes else product.args[::-1]
        if scale.axes or y.type != s.result.type or not y.axes:
            return None
        known, log2e = self.number(scale), self.scalar(LOG2E, f32, s)
        if known is not None:
            factor = self.scalar(fold("mul", [known, LOG2E], f32, f32) or 0.0, f32, s)
        else:
            factor = self._new("mul", (scale, log2e), scale.type, s)
        return self._new("exp2", (self._new("mul", (y, factor), y.type, s),), s.result.type, s)

    def _new(self, op: str, args: tuple[Value, ...], type: TileType, like: Op) -> Value:
        made = Op(self.fresh(type), op, args, (), like.loc)
        return self._one(_meaning(made), made)


def _negative(x: Number) -> bool:
    """Whether x is -0.0: x - (-0.0) is x + 0.0, which is not x for x = -0."""
    return isinstance(x, float) and x == 0 and str(x)[0] == "-"


def _meaning(s: Op) -> object:
    """What makes two ops equal. 0, 0.0, -0.0 and False differ; NaN equals itself."""
    attrs = tuple((k, type(v), repr(v)) for k, v in s.attrs)
    return (s.op, s.args, attrs, s.result.type)
