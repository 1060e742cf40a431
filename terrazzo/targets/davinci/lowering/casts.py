"""Conversions on the vector unit: the instructions there are, and the ways around those missing.

Values in range are exact on every way; float to integer truncates, everything else rounds to
nearest even.
"""

from __future__ import annotations

from terrazzo.errors import KernelError
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, bf16, bool_, f16, f32, i8, i16, i32, u8, u32
from terrazzo.targets.davinci.lowering.tiles import Emitter, Tile
from terrazzo.targets.davinci.program import View

_BYTES = (i8, u8)


def cast(e: Emitter, x: Tile, dtype: DType, axes: tuple[str, ...], out: Tile | None = None) -> Tile:
    """`x` in another type, over `axes` in `out` if that is given."""
    source = x.buffer.dtype
    if source == dtype and out is None:
        return x
    if source == bool_:
        return _last(e, _from_mask(e, x, dtype), dtype, axes, out)
    if source == u32 and dtype != u32:
        return _last(e, _from_u32(e, x, dtype), dtype, axes, out)
    if dtype == u32 and source != u32:
        return bitcast(e, cast(e, x, i32, axes), u32, out)
    for middle in _route(source, dtype):
        x = _convert(e, x, middle, axes, None)
    return _convert(e, x, dtype, axes, out)


def _last(e: Emitter, x: Tile, dtype: DType, axes: tuple[str, ...], out: Tile | None) -> Tile:
    return x if x.buffer.dtype == dtype and out is None else cast(e, x, dtype, axes, out)


def bitcast(e: Emitter, x: Tile, dtype: DType, out: Tile | None = None) -> Tile:
    """The same bytes under another type: a copy between buffers of one size."""
    if x.buffer.dtype.bits != dtype.bits or bool_ in (x.buffer.dtype, dtype):
        raise mark(KernelError(f"a bitcast from {x.buffer.dtype} to {dtype} has no rule here",
                               "bitcast between types of one size"), e.loc)  # fmt: skip
    to = out or e.tile("t", dtype, x.axes)
    e.emit("vcopy", e.view(to, to.axes), e.view(x, to.axes), bits=1)
    return to


def _convert(e: Emitter, x: Tile, dtype: DType, axes: tuple[str, ...], out: Tile | None) -> Tile:
    to = out or e.tile("t", dtype, x.axes)
    op = "vcopy" if x.buffer.dtype == dtype else "vcast"
    way = {} if op == "vcopy" else {"round": "trunc" if dtype.kind != "float" else "rint"}
    over = e.sorted(to.axes) if out is not None else x.axes
    e.emit(op, e.view(to, over), e.view(x, over), **way)
    return to


def _route(source: DType, dtype: DType) -> tuple[DType, ...]:
    """Types to pass on the way, for pairs the unit has no cast for."""
    if source == dtype:
        return ()
    if source == bf16 and dtype not in (f32, i32):
        return (f32, *_route(f32, dtype))
    if dtype == bf16 and source != f32:
        return (*_route(source, f32), f32)
    if source in _BYTES and dtype != f16:
        return (f16, *_route(f16, dtype))
    if dtype in _BYTES and source not in (f16, i16):
        return (*_route(source, i16), i16, f16)  # f32 to f16 first would round up to the next
    if dtype in _BYTES and source == i16:
        return (f16,)
    if {source, dtype} in ({i32, f16}, {i16, i32}) and (source, dtype) not in _DIRECT:
        return (f32,)
    return ()


_DIRECT = ((f16, i32), (i32, i16))


def _from_mask(e: Emitter, x: Tile, dtype: DType) -> Tile:
    """1 and 0 in a type that selections have, `dtype` if it is one."""
    to = e.tile("t", dtype if dtype in (f16, f32, i16, i32) else f16, x.axes)
    one, zero = (1.0, 0.0) if to.buffer.dtype.kind == "float" else (1, 0)
    e.emit("vsel", e.view(to, x.axes), e.view(x, x.axes), one, zero)
    return to


def _from_u32(e: Emitter, x: Tile, dtype: DType) -> Tile:
    """u32 as i32 for an integer type; for a float, two halves that f32 holds, rounded once."""
    signed = bitcast(e, x, i32)
    if dtype.kind != "float":
        return signed

    def view(t: Tile) -> View:
        return e.view(t, x.axes)

    sign, high, low = (e.tile("t", i32, x.axes) for _ in range(3))
    e.emit("vshr", view(sign), view(signed), 31)  # shifts keep the sign: -1 where the bit is set
    e.emit("vmul", view(sign), view(sign), 1 << 16)
    e.emit("vshr", view(high), view(signed), 16)
    e.emit("vshl", view(low), view(high), 16)
    e.emit("vsub", view(low), view(signed), view(low))
    e.emit("vsub", view(high), view(high), view(sign))
    upper, sum_ = (e.tile("t", f32, x.axes) for _ in range(2))
    e.emit("vcast", view(upper), view(high), round="rint")
    e.emit("vcast", view(sum_), view(low), round="rint")
    e.emit("vmul", view(upper), view(upper), 65536.0)
    e.emit("vadd", view(sum_), view(sum_), view(upper))
    return sum_
