"""Elementwise operations of the tile IR on the vector unit: rules, one an operation or a family.

The unit works from buffer to buffer in f16, f32 and i32. What it has no instruction for is spelt
with those it has; what has no rule is an error with the line. Rules keep the reference's rounding
where the hardware can (a difference is said beside the rule).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Loc, Op
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, Value, bf16, bool_, f16, f32, i8, i32, u8, u32
from terrazzo.targets.davinci.expr import Scalar, add, make, mul, sub
from terrazzo.targets.davinci.program import If, Instr, Operand, Stmt, View
from terrazzo.targets.davinci.tiles import Affine, Constant, Emitter, Kept, Range, Tile

Axes = tuple[str, ...]

_BINARY = {"add": "vadd", "sub": "vsub", "mul": "vmul", "div": "vdiv", "max": "vmax", "min": "vmin",
           "and": "vand", "or": "vor", "xor": "vxor", "shl": "vshl", "shr": "vshr"}  # fmt: skip
_UNARY = {"exp": "vexp", "log": "vln", "sqrt": "vsqrt", "abs": "vabs", "not": "vnot"}
_COMMUTES = {"add", "mul", "max", "min", "and", "or", "xor"}
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_FLOATS = (f16, f32)


@dataclass(frozen=True, eq=False)
class Relative:
    """The mask index(column) - index(row) <mode> threshold; no memory until it is used. `always`:
    1 where it holds for the whole tile."""

    row: str
    column: str
    mode: str
    threshold: Scalar
    always: Scalar


def unsupported(op: str, dtype: DType, loc: Loc | None) -> KernelError:
    text = f"the vector unit of this chip has no rule for `{op}` in {dtype}"
    return mark(KernelError(text, "cast to f32 first, or compute it another way"), loc)


class Vector:
    """Emits vector instructions. `prologue`: statements at the function's start, for what is the
    same all the time."""

    def __init__(self, e: Emitter, prologue: list[Stmt]) -> None:
        self.e = e
        self.prologue = prologue
        self._relative: dict[tuple[str, str], Tile] = {}

    # -- operands ------------------------------------------------------------------------------

    def tile(self, kept: Kept | Relative, dtype: DType, axes: Axes) -> Tile:
        """`kept` in memory."""
        match kept:
            case Tile():
                return kept
            case Constant(value=value):
                out = self.e.tile("const", dtype, axes)
                self.e.emit("vbrc", self.e.view(out, out.axes), value)
                return out
            case Affine(axis=axis, offset=offset):
                out = self.e.tile("index", i32, (axis,) if axis else ())
                start = add(self.e.ranges[axis].start, offset) if axis else offset
                self.e.emit("varange", self.e.view(out, out.axes), start)
                return self.cast(out, dtype, out.axes) if dtype != i32 else out
            case Relative():
                return self.mask(kept)
        raise AssertionError(kept)

    # -- operations ----------------------------------------------------------------------------

    def compute(self, op: Op, args: Sequence[Kept | Relative], out: Tile | None,
                free: Callable[[Value], bool]) -> Kept | Relative:  # fmt: skip
        """What `op` gives, in `out` if that is given and memory is needed. `free(v)`: nobody reads
        the value afterwards, its tile may be overwritten."""
        dtype, axes = op.result.dtype, self.e.sorted(op.result.axes)
        assert isinstance(dtype, DType)
        virtual = self._virtual(op, args)
        if virtual is not None:
            return virtual
        kind = op.args[0].dtype
        assert isinstance(kind, DType)
        if op.op == "cast":
            return self.cast(self._in(args[0], kind, op.args[0].axes), dtype, axes, out)
        if op.op == "bitcast":
            return self._bitcast(self._in(args[0], kind, op.args[0].axes), dtype)
        if op.op in _SWAPPED:
            return self._compare(op, args, kind, axes)
        if op.op == "where":
            return self._where(op, args, axes, out, free)
        if dtype == bool_:
            return self._logic(op, args, axes)
        if dtype == bf16:  # no arithmetic in bf16: up, compute, round once
            wide = [self._widened(a, v) for a, v in zip(args, op.args, strict=True)]
            return self.cast(self._arithmetic(op, wide, f32, axes, None), bf16, axes, out)
        return self._arithmetic(op, args, dtype, axes, out)

    def _in(self, kept: Kept | Relative, dtype: DType, axes: Sequence[str]) -> Tile:
        return self.tile(kept, dtype, self.e.sorted(axes))

    def _widened(self, kept: Kept | Relative, v: Value) -> Kept | Relative:
        if isinstance(kept, Tile):
            return self.cast(kept, f32, self.e.sorted(v.axes))
        return kept

    def _virtual(self, op: Op, args: Sequence[Kept | Relative]) -> Kept | Relative | None:
        """Results that need no memory: constants, and an index plus or minus a scalar."""
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
        if op.op in _SWAPPED and all(isinstance(a, Affine) and a.axis for a in args):
            a, b = args
            assert isinstance(a, Affine) and isinstance(b, Affine)
            if a.axis != b.axis:
                return self._relation(op.op, a, b)
        return None

    def _arithmetic(
        self, op: Op, args: Sequence[Kept | Relative], dtype: DType, axes: Axes, out: Tile | None
    ) -> Tile:
        e = self.e
        target = out or e.tile("t", dtype, axes)
        to = e.view(target, axes)

        def at(kept: Kept | Relative) -> View:
            return e.view(self.tile(kept, dtype, axes), axes)

        def temp() -> tuple[Tile, View]:
            made = e.tile("t", dtype, axes)
            return made, e.view(made, axes)

        name, floats = op.op, dtype in _FLOATS
        if name in ("shl", "shr", "and", "or", "xor", "not") and dtype not in (i32, u32):
            raise unsupported(name, dtype, op.loc)
        if dtype in (i8, u8) or (not floats and name in ("div", *_FLOAT_ONLY)):
            raise unsupported(name, dtype, op.loc)
        match name, args:
            case ("sub", (a, Constant(value=s))):
                e.emit("vadd", to, at(a), mul(s, -1))
            case ("sub", (Constant(value=s), b)):
                e.emit("vmul", to, at(b), -1)
                e.emit("vadd", to, to, s)
            case ("shl" | "shr", (a, Constant(value=s))):
                e.emit(_BINARY[name], to, at(a), s)
            case (n, (a, b)) if n in _BINARY:
                if isinstance(a, Constant) and n in _COMMUTES:
                    a, b = b, a
                scalar = n in _COMMUTES
                e.emit(_BINARY[n], to, at(a), self._second(b, dtype, axes, scalar))
            case ("fma", (a, b, c)):  # rounds twice where the reference rounds once
                product, view = temp()
                if isinstance(a, Constant):
                    a, b = b, a
                e.emit("vmul", view, at(a), self._second(b, dtype, axes, True))
                e.emit("vadd", to, view, self._second(c, dtype, axes, True))
            case (n, (a,)) if n in _UNARY:
                e.emit(_UNARY[n], to, at(a))
            case ("neg", (a,)):
                e.emit("vmul", to, at(a), -1)
            case ("exp2", (a,)):
                e.emit("vmul", to, at(a), math.log(2))
                e.emit("vexp", to, to)
            case ("log2", (a,)):
                e.emit("vln", to, at(a))
                e.emit("vmul", to, to, 1 / math.log(2))
            case ("rsqrt", (a,)):  # vrsqrt is an estimate of few bits
                one, view = temp()
                e.emit("vsqrt", to, at(a))
                e.emit("vbrc", view, 1.0)
                e.emit("vdiv", to, view, to)
            case ("tanh", (a,)):
                self._tanh(at(a), to, temp()[1])
            case ("erf", (a,)):
                self._erf(at(a), to, [temp()[1] for _ in range(3)])
            case ("floor" | "round", (a,)):
                whole = e.tile("t", i32, axes)
                way = "floor" if name == "floor" else "rint"
                e.emit("vcast", e.view(whole, axes), at(a), round=way)
                e.emit("vcast", to, e.view(whole, axes), round="rint")
            case _:
                raise unsupported(name, dtype, op.loc)
        return target

    def _second(self, kept: Kept | Relative, dtype: DType, axes: Axes, scalar: bool) -> Operand:
        if isinstance(kept, Constant) and scalar:
            return kept.value
        return self.e.view(self.tile(kept, dtype, axes), axes)

    def _tanh(self, x: View, to: View, t: View) -> None:
        """1 - 2 / (exp(2x) + 1): right to an ulp of 1, so that 1 + tanh is right. x is held to ±15,
        beyond which tanh is 1 in f32 and exp would overflow."""
        e = self.e
        e.emit("vmin", to, x, 15.0)
        e.emit("vmax", to, to, -15.0)
        e.emit("vmul", to, to, 2.0)
        e.emit("vexp", to, to)
        e.emit("vadd", to, to, 1.0)
        e.emit("vbrc", t, -2.0)
        e.emit("vdiv", to, t, to)
        e.emit("vadd", to, to, 1.0)

    def _erf(self, x: View, to: View, temps: list[View]) -> None:
        """Abramowitz and Stegun 7.1.26: within 1.5e-7 of erf, for |x|; then the sign."""
        e = self.e
        size, t, s = temps
        e.emit("vabs", size, x)
        e.emit("vmin", size, size, 6.0)
        e.emit("vmul", t, size, 0.3275911)
        e.emit("vadd", t, t, 1.0)
        e.emit("vbrc", s, 1.0)
        e.emit("vdiv", t, s, t)
        e.emit("vmul", to, t, 1.061405429)
        for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            e.emit("vadd", to, to, c)
            e.emit("vmul", to, to, t)
        e.emit("vmul", t, size, size)
        e.emit("vmul", t, t, -1.0)
        e.emit("vexp", t, t)
        e.emit("vmul", to, to, t)
        e.emit("vmul", to, to, -1.0)
        e.emit("vadd", to, to, 1.0)
        e.emit("vmax", size, size, 1e-30)  # the sign: x / |x|
        e.emit("vdiv", s, x, size)
        e.emit("vmin", s, s, 1.0)
        e.emit("vmax", s, s, -1.0)
        e.emit("vmul", to, to, s)

    # -- casts ---------------------------------------------------------------------------------

    def cast(self, x: Tile, dtype: DType, axes: Axes, out: Tile | None = None) -> Tile:
        """`x` in another type; pairs without an instruction go through f32 or f16."""
        source = x.buffer.dtype
        if source == dtype and out is None:
            return x
        if source == bool_:
            return self._from_mask(x, dtype, axes, out)
        for middle in _route(source, dtype):
            x = self._convert(x, middle, axes, None)
        return self._convert(x, dtype, axes, out)

    def _convert(self, x: Tile, dtype: DType, axes: Axes, out: Tile | None) -> Tile:
        to = out or self.e.tile("t", dtype, x.axes)
        op = "vcopy" if x.buffer.dtype == dtype else "vcast"
        way = {} if op == "vcopy" else {"round": "trunc" if dtype.kind != "float" else "rint"}
        over = self.e.sorted(to.axes) if out is not None else x.axes
        self.e.emit(op, self.e.view(to, over), self.e.view(x, over), **way)
        return to

    def _from_mask(self, x: Tile, dtype: DType, axes: Axes, out: Tile | None) -> Tile:
        kind = dtype if dtype in _FLOATS else f32
        one = self.tile(Constant(1.0, kind), kind, x.axes)
        to = out if out is not None and kind == dtype else self.e.tile("t", kind, x.axes)
        views = [self.e.view(v, x.axes) for v in (to, x, one)]
        self.e.emit("vsel", views[0], views[1], views[2], 0.0)
        return to if kind == dtype else self.cast(to, dtype, axes, out)

    def _bitcast(self, x: Tile, dtype: DType) -> Tile:
        """The same bytes under another type: a copy between buffers of one size."""
        if x.buffer.dtype.bits != dtype.bits:
            raise unsupported("bitcast", dtype, self.e.loc)
        to = self.e.tile("t", dtype, x.axes)
        self.e.emit("vcopy", self.e.view(to, x.axes), self.e.view(x, x.axes), bits=1)
        return to

    # -- masks ---------------------------------------------------------------------------------

    def _compare(self, op: Op, args: Sequence[Kept | Relative], kind: DType, axes: Axes) -> Tile:
        e, mode = self.e, op.op
        a, b = args
        if isinstance(a, Constant):
            a, b, mode = b, a, _SWAPPED[mode]
        if kind not in (f16, f32):  # exact: indices and counts are below 2^24
            kind = f32
            a, b = (self._float(x, v) for x, v in zip((a, b), op.args, strict=True))
        out = e.tile("mask", bool_, axes)
        left = e.view(self.tile(a, kind, axes), axes)
        e.emit("vcmp", e.view(out, axes), left, self._second(b, kind, axes, True), mode=mode)
        return out

    def _float(self, kept: Kept | Relative, v: Value) -> Kept | Relative:
        if isinstance(kept, Affine):
            return self.tile(kept, f32, ())
        if isinstance(kept, Tile):
            return self.cast(kept, f32, self.e.sorted(v.axes))
        return kept

    def _relation(self, mode: str, a: Affine, b: Affine) -> Relative:
        """a <mode> b as a comparison of (column - row) with a scalar; the column is the inner
        axis."""
        if self.e.order[a.axis] < self.e.order[b.axis]:
            a, b, mode = b, a, _SWAPPED[mode]
        r = self.e.ranges
        row, column = r[b.axis], r[a.axis]
        threshold = sub(add(row.start, b.offset), add(column.start, a.offset))
        most, least = sub(column.size, 1), sub(1, row.size)
        always: Scalar = 0
        if mode in ("le", "lt"):
            always = make(mode, most, threshold)
        elif mode in ("ge", "gt"):
            always = make("le" if mode == "ge" else "lt", threshold, least)
        return Relative(b.axis, a.axis, mode, threshold, always)

    def mask(self, m: Relative) -> Tile:
        """The mask's bits."""
        difference = self._difference(m.row, m.column)
        out = self.e.tile("mask", bool_, difference.axes)
        views = [self.e.view(t, difference.axes) for t in (out, difference)]
        self.e.emit("vcmp", views[0], views[1], m.threshold, mode=m.mode)
        return out

    def _difference(self, row: str, column: str) -> Tile:
        """index(column) - index(row) within their blocks, f32, made once at the function's
        start for the largest block."""
        known = self._relative.get((row, column))
        if known is not None:
            return known
        e = self.e
        full = {a: Range(0, r.cap, r.cap) for a, r in e.ranges.items()}
        ranges, body, e.ranges, e.body = e.ranges, e.body, full, self.prologue
        try:
            parts = [self.cast(self.tile(Affine(a, 0), i32, ()), f32, (a,)) for a in (column, row)]
            out = e.tile("difference", f32, (row, column))
            views = [e.view(t, out.axes) for t in (out, *parts)]
            e.emit("vsub", views[0], views[1], views[2])
        finally:
            e.ranges, e.body = ranges, body
        self._relative[row, column] = out
        return out

    def _where(self, op: Op, args: Sequence[Kept | Relative], axes: Axes, out: Tile | None,
               free: Callable[[Value], bool]) -> Kept:  # fmt: skip
        e = self.e
        c, a, b = args
        dtype = op.result.dtype
        assert isinstance(dtype, DType)
        if dtype not in _FLOATS:
            raise unsupported("where", dtype, op.loc)
        if isinstance(c, Relative) and isinstance(a, Tile) and out is None and free(op.args[1]) \
                and a.axes == axes and a.buffer.dtype == dtype:  # fmt: skip
            with e.nested() as body:  # in place, and only where the mask hides something
                mask = self.mask(c)
                kept = self._second(b, dtype, axes, True)
                to = e.view(a, axes)
                body.append(Instr("vsel", to, (e.view(mask, axes), to, kept), (), e.loc))
            e.body.append(If(make("eq", c.always, 0), tuple(body), e.loc))
            return a
        mask = self.tile(c, bool_, axes)
        to = out or e.tile("t", dtype, axes)
        first = e.view(self.tile(a, dtype, axes), axes)
        last = self._second(b, dtype, axes, True)
        e.emit("vsel", e.view(to, axes), e.view(mask, axes), first, last)
        return to

    def _logic(self, op: Op, args: Sequence[Kept | Relative], axes: Axes) -> Tile:
        """and, or, xor, not of masks, bit by bit."""
        e = self.e
        out = e.tile("mask", bool_, axes)
        views = [e.view(self.tile(a, bool_, axes), axes) for a in args]
        name = _BINARY.get(op.op) or _UNARY.get(op.op)
        if name is None:
            raise unsupported(op.op, bool_, op.loc)
        e.emit(name, e.view(out, axes), *views)
        return out

    # -- reductions ----------------------------------------------------------------------------

    def reduce(self, op: Op, x: Tile, out: Tile | None) -> Tile:
        """Along one axis; attr `axis` is its place among the views' dimensions."""
        kind, axis = op.attr("kind"), str(op.attr("axis"))
        dtype = op.result.dtype
        assert isinstance(dtype, DType)
        if kind == "argmax" or x.buffer.dtype not in (f16, f32, i32):
            raise unsupported(f"reduce {kind}", x.buffer.dtype, op.loc)
        if x.buffer.dtype == f16 and dtype == f32:
            x = self.cast(x, f32, x.axes)
        axes = x.axes
        to = out or self.e.tile("t", dtype, [a for a in axes if a != axis])
        source, place = self.e.view(x, axes), axes.index(axis)
        view = self.e.view(to, axes)
        self.e.emit("vreduce", view, source, kind=kind, axis=place)
        return to


_FLOAT_ONLY = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "floor", "round")
_SCALARS = {"add": "add", "sub": "sub", "mul": "mul", "max": "max", "min": "min", "neg": "neg",
            "floordiv": "div", "mod": "mod", "div": "fdiv", "sqrt": "sqrt", "lt": "lt", "le": "le",
            "eq": "eq", "ne": "ne"}  # fmt: skip


def _route(source: DType, dtype: DType) -> tuple[DType, ...]:
    """Types to pass on the way, for pairs the unit has no cast for."""
    small = (i8, u8)
    if source == bf16 and dtype != f32:
        return (f32,)
    if dtype == bf16 and source != f32:
        return _route(source, f32) + (f32,)
    if source in small and dtype != f16:
        return (f16,)
    if dtype in small and source != f16:
        return (f16,)
    if {source, dtype} == {i32, f16}:
        return (f32,)
    if u32 in (source, dtype):
        return (f32,) if f32 not in (source, dtype) else ()
    return ()
