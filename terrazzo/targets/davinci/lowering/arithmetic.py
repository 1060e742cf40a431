"""Elementwise arithmetic: a rule an operation or a family of them.

What the unit has no instruction for is spelt with those it has; what has no rule is an error with
the line. Rules keep the reference's rounding where the hardware can (a difference is said beside
the rule).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from terrazzo.ir.ops import Op
from terrazzo.ir.types import DType, f16, f32, i16, i32, u32
from terrazzo.targets.davinci.lowering import casts
from terrazzo.targets.davinci.lowering.operands import Axes, Kept, Operands, unsupported
from terrazzo.targets.davinci.lowering.tiles import Constant, Emitter, Tile
from terrazzo.targets.davinci.program import Operand, View

_UNARY = {"exp": "vexp", "log": "vln", "sqrt": "vsqrt", "abs": "vabs", "not": "vnot"}
_COMMUTES = {"add": "vadd", "mul": "vmul", "max": "vmax", "min": "vmin"}
_ORDERED = {"sub": "vsub", "div": "vdiv"}  # with a scalar on either side
_BITS = ("and", "or", "xor", "not", "shl", "shr")
_FLOAT_ONLY = ("div", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "floor",
               "round", "fma")  # fmt: skip


def arithmetic(
    o: Operands, op: Op, args: Sequence[Kept], dtype: DType, axes: Axes, out: Tile | None
) -> Tile:
    """What `op` gives of `args`, all in `dtype`, in `out` if that is given."""
    e, name = o.e, op.op
    target = out or e.tile("t", dtype, axes)
    to = e.view(target, axes)

    def at(kept: Kept) -> View:
        return o.at(kept, dtype, axes)

    def operand(kept: Kept) -> Operand:
        return o.second(kept, dtype, axes)

    def temp() -> View:
        return e.view(e.tile("t", dtype, axes), axes)

    allowed = (f16, f32) if name in _FLOAT_ONLY else (f16, f32, i16, i32)
    if dtype not in ((i16, i32, u32) if name in _BITS else allowed):
        raise unsupported(name, dtype, op.loc)
    match name, args:
        case (n, (a, b)) if n in _COMMUTES:
            if isinstance(a, Constant):
                a, b = b, a
            e.emit(_COMMUTES[n], to, at(a), operand(b))
        case (n, (a, b)) if n in _ORDERED:
            if isinstance(a, Constant) and isinstance(b, Constant):
                e.emit(_ORDERED[n], to, at(a), b.value)
            else:
                e.emit(_ORDERED[n], to, operand(a), operand(b))
        case ("and" | "or", (a, b)):
            if isinstance(a, Constant):
                a, b = b, a
            e.emit("vand" if name == "and" else "vor", to, at(a), o.block(b, dtype, axes))
        case ("xor", (a, b)):
            e.emit("vxor", to, o.whole(a, dtype, axes), o.whole(b, dtype, axes))
        case ("shl", (a, Constant(value=s))):
            e.emit("vshl", to, at(a), s)
        case ("shr", (a, Constant(value=int(s)))):
            e.emit("vshr", to, at(a), s)
            if dtype == u32 and s:  # the unit's shift repeats the first bit
                kept = Constant((1 << (32 - s)) - 1, dtype)
                e.emit("vand", to, to, o.block(kept, dtype, axes))
        case ("fma", (a, b, c)):  # rounds twice where the reference rounds once
            if isinstance(a, Constant):
                a, b = b, a
            product = temp()
            e.emit("vmul", product, at(a), operand(b))
            e.emit("vadd", to, product, operand(c))
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
            e.emit("vsqrt", to, at(a))
            e.emit("vdiv", to, 1.0, to)
        case ("tanh", (a,)):
            _tanh(e, at(a), to)
        case ("erf", (a,)):
            _erf(e, at(a), to, [temp() for _ in range(3)])
        case ("floor" | "round", (a,)):
            whole = e.tile("t", i32, axes)
            way = "floor" if name == "floor" else "rint"
            e.emit("vcast", e.view(whole, axes), at(a), round=way)
            casts.cast(e, whole, dtype, axes, target)
        case _:
            raise unsupported(name, dtype, op.loc)
    return target


def _tanh(e: Emitter, x: View, to: View) -> None:
    """1 - 2 / (exp(2x) + 1): right to an ulp of 1, so that 1 + tanh is right. x is held to ±15,
    beyond which tanh is 1 in f32 and exp would overflow."""
    e.emit("vmin", to, x, 15.0)
    e.emit("vmax", to, to, -15.0)
    e.emit("vmul", to, to, 2.0)
    e.emit("vexp", to, to)
    e.emit("vadd", to, to, 1.0)
    e.emit("vdiv", to, -2.0, to)
    e.emit("vadd", to, to, 1.0)


def _erf(e: Emitter, x: View, to: View, temps: Sequence[View]) -> None:
    """Abramowitz and Stegun 7.1.26: within 1.5e-7 of erf, for |x|; then the sign. `to` may be
    `x`."""
    size, t, sum_ = temps
    e.emit("vabs", size, x)
    e.emit("vmin", size, size, 6.0)
    e.emit("vmul", t, size, 0.3275911)
    e.emit("vadd", t, t, 1.0)
    e.emit("vdiv", t, 1.0, t)
    e.emit("vmul", sum_, t, 1.061405429)
    for c in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        e.emit("vadd", sum_, sum_, c)
        e.emit("vmul", sum_, sum_, t)
    e.emit("vmul", t, size, size)
    e.emit("vmul", t, t, -1.0)
    e.emit("vexp", t, t)
    e.emit("vmul", sum_, sum_, t)
    e.emit("vsub", sum_, 1.0, sum_)
    e.emit("vmax", size, size, 1e-30)  # the sign: x / |x|
    e.emit("vdiv", t, x, size)
    e.emit("vmin", t, t, 1.0)
    e.emit("vmax", t, t, -1.0)
    e.emit("vmul", to, sum_, t)
