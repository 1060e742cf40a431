"""The interpreter: runs a kernel's statements with NumPy, a whole tile an operation.

It is the living definition of the tile IR (`elementwise.py` holds the rounding rules). Grid blocks
run in lexicographic order and have exactly `step` indices (the last may be short).
* Sums of floats accumulate in binary64 and round to f32 once at the end; integer sums wrap in i32.
* `dot` multiplies and accumulates in binary64 and rounds to f32 once; `dot_acc` adds its
  accumulator in binary64 before that rounding. i8 x i8 is exact in i32. Packed operands are decoded
  to f32 first.
* `argmax` counts in the dimension, like `index`: a block's start is included. Its NaN order is
  undefined.
* A reduction over no elements gives 0 (sum), the type's lowest (max) or highest (min) value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import cast as typed

import numpy as np

from terrazzo.errors import ArgumentError
from terrazzo.ir import formats
from terrazzo.ir.ops import Expect, Kernel, Load, Loop, LoopVar, Op, Stmt, Store
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import DType, Format, Value
from terrazzo.targets.reference import elementwise as ew
from terrazzo.targets.reference.faults import fault
from terrazzo.targets.reference.memory import (
    Array,
    Extent,
    Memory,
    PackedTile,
    Tile,
    bind_dims,
    by_name,
)


def run(
    kernel: Kernel,
    tensors: Mapping[str, Array | Packed],
    scalars: Mapping[str, float | int] | None = None,
    *,
    check: bool = True,
    initialised: Mapping[str, Array | bool] | None = None,
) -> None:
    """Execute `kernel`, writing its outputs into `tensors` in place.

    `check` finds reads of elements that nobody wrote, division of integers by zero and shifts past
    the word. A parameter whose first access in the kernel's text is a store counts as uninitialised
    when it starts, every other one as initialised; `initialised` says otherwise by name: True,
    False or a boolean mask of the tensor's shape (of `data`'s shape if packed). Raises
    ArgumentError for arguments that do not fit the signature, KernelError (with the source
    position) for a fault inside the kernel.
    """
    dims = bind_dims(kernel, tensors)
    extents = {a.name: Extent(0, dims[a.dim]) for a in kernel.axes if not a.block}
    values: dict[int, Tile] = {}
    frame = _Frame(kernel, dims, _scalars(kernel, scalars or {}), extents, values, check)
    frame.memory = Memory(kernel, tensors, extents, frame.array, initialised or {}, check)
    with np.errstate(all="ignore"):
        frame.block(kernel.body)


def _scalars(kernel: Kernel, given: Mapping[str, float | int]) -> dict[str, Array]:
    out: dict[str, Array] = {}
    for p in kernel.params:
        if p.tensor:
            continue
        if p.name not in given:
            raise ArgumentError(f"{kernel.name}: scalar `{p.name}` is missing")
        out[p.name] = np.asarray(given[p.name]).astype(typed(DType, p.dtype).numpy)
    return out


@dataclass
class _Frame:
    kernel: Kernel
    dims: Mapping[str, int]
    scalars: Mapping[str, Array]
    extents: dict[str, Extent]
    values: dict[int, Tile]
    check: bool
    memory: Memory = field(init=False)

    def array(self, v: Value) -> Array:
        """The plain tile of `v`; a packed one is decoded to f32."""
        tile = self.values[v.id]
        if isinstance(tile, PackedTile):
            return formats.decode(tile.format, tile.data, tile.shape)
        return tile

    def scalar(self, v: Value) -> int:
        return int(self.array(v))

    def shape(self, axes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.extents[a].size for a in axes)

    def block(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            if isinstance(s, Op):
                self.values[s.result.id] = self.op(s)
            elif isinstance(s, Load):
                self.values[s.result.id] = self.memory.load(s)
            elif isinstance(s, Store):
                self.memory.store(s, self.values[s.value.id], s.value.axes)
            elif isinstance(s, Expect):
                if not self.array(s.condition):
                    raise fault(s.loc, s.text)
            elif s.kind == "grid":
                self.grid(s)
            else:
                self.loop(s)

    def grid(self, s: Loop) -> None:
        ranges = [self.range(v) for v in s.vars]
        for point in product(*ranges):
            for var, at in zip(s.vars, point, strict=True):
                self.enter(var, at)
            self.block(s.body)

    def loop(self, s: Loop) -> None:
        (var,) = s.vars
        for c in s.carries:
            self.values[c.var.id] = self.values[c.init.id]
        for at in self.range(var):
            self.enter(var, at)
            self.block(s.body)
            # All at once: a carry's next value may be another carry's variable.
            for c, tile in [(c, self.values[c.next.id]) for c in s.carries]:
                self.values[c.var.id] = tile
        for c in s.carries:
            self.values[c.result.id] = self.values[c.var.id]

    def range(self, v: LoopVar) -> range:
        return range(self.scalar(v.lo), self.scalar(v.hi), v.step or 1)

    def enter(self, v: LoopVar, at: int) -> None:
        if v.var is not None:
            self.values[v.var.id] = np.asarray(at, dtype=np.int32)
        else:
            size = min(v.step or 1, self.scalar(v.hi) - at)
            self.extents[v.name] = Extent(at, size)

    def op(self, s: Op) -> Tile:
        """The tile that `s` computes."""
        if s.op in _SPECIAL:
            return _SPECIAL[s.op](self, s)
        args = [by_name(self.array(a), a.axes, s.result.axes) for a in s.args]
        dtype = s.args[0].dtype
        if s.op in ew.COMPARE:
            return np.asarray(ew.COMPARE[s.op](*args))
        if s.op == "where":
            return np.where(*args)
        if self.check and s.op in _INT_GUARDS and typed(DType, dtype).kind != "float":
            _guard(s, args[1])
        wide = [ew.widen(a) for a in args]
        if s.op == "fma":
            out = ew.fma(*wide)
        else:
            out = ew.UNARY[s.op](*wide) if s.op in ew.UNARY else ew.BINARY[s.op](*wide)
        return np.asarray(out).astype(typed(DType, s.result.dtype).numpy, copy=False)

    def const(self, s: Op) -> Array:
        dtype = typed(DType, s.result.dtype).numpy
        return np.broadcast_to(np.asarray(s.attr("value")).astype(dtype), self.shape(s.result.axes))

    def dim(self, s: Op) -> Array:
        return np.asarray(self.dims[typed(str, s.attr("name"))], dtype=np.int32)

    def arg(self, s: Op) -> Array:
        return self.scalars[typed(str, s.attr("name"))]

    def index(self, s: Op) -> Array:
        e = self.extents[typed(str, s.attr("axis"))]
        return np.arange(e.start, e.start + e.size, dtype=np.int32)

    def start(self, s: Op) -> Array:
        return np.asarray(self.extents[typed(str, s.attr("axis"))].start, dtype=np.int32)

    def extent(self, s: Op) -> Array:
        return np.asarray(self.extents[typed(str, s.attr("axis"))].size, dtype=np.int32)

    def cast(self, s: Op) -> Array:
        return ew.cast(self.array(s.args[0]), typed(DType, s.result.dtype))

    def bitcast(self, s: Op) -> Array:
        x = np.ascontiguousarray(self.array(s.args[0])).reshape(self.shape(s.result.axes))
        return x.view(typed(DType, s.result.dtype).numpy)

    def quantize(self, s: Op) -> PackedTile:
        x, fmt = self.array(s.args[0]), typed(Format, s.result.dtype)
        if s.args[0].axes != s.result.axes:
            x = np.transpose(x, [s.args[0].axes.index(a) for a in s.result.axes])
        if x.shape[-1] % fmt.group:
            raise fault(s.loc, f"quantize to {fmt} of {x.shape[-1]} values along "
                        f"`{s.result.axes[-1]}`, whose groups hold {fmt.group}",
                        f"use an extent that is a multiple of {fmt.group}")  # fmt: skip
        return PackedTile(fmt, x.shape, formats.encode(fmt, x))

    def reduce(self, s: Op) -> Array:
        name, kind = typed(str, s.attr("axis")), s.attr("kind")
        x, axis = self.array(s.args[0]), s.args[0].axes.index(name)
        dtype = typed(DType, s.result.dtype).numpy
        if kind == "sum":
            wide = np.float64 if x.dtype.kind not in "iub" else np.int64
            return np.asarray(x.astype(wide).sum(axis=axis)).astype(dtype)
        if kind == "argmax":
            return np.asarray(self.extents[name].start + np.argmax(x, axis=axis)).astype(dtype)
        fn, worst = (np.max, _lowest(x)) if kind == "max" else (np.min, _highest(x))
        return np.asarray(fn(ew.widen(x), axis=axis, initial=worst)).astype(dtype)

    def dot(self, s: Op) -> Array:
        acc, (a, b) = (s.args[0], s.args[1:]) if s.op == "dot_acc" else (None, s.args)
        shared = [x for x in a.axes if x in b.axes]
        where = ([a.axes.index(x) for x in shared], [b.axes.index(x) for x in shared])
        wide = np.float64 if typed(DType, s.result.dtype).kind == "float" else np.int64
        out = np.tensordot(self.array(a).astype(wide), self.array(b).astype(wide), where)
        axes = tuple(x for x in (*a.axes, *b.axes) if x not in shared)
        out = np.transpose(out, [axes.index(x) for x in s.result.axes])
        if acc is not None:
            out = out + by_name(self.array(acc), acc.axes, s.result.axes)
        return np.asarray(out).astype(typed(DType, s.result.dtype).numpy)


_INT_GUARDS = ("floordiv", "mod", "div", "shl", "shr")
_SPECIAL = {
    "const": _Frame.const, "dim": _Frame.dim, "arg": _Frame.arg, "index": _Frame.index,
    "start": _Frame.start, "extent": _Frame.extent, "cast": _Frame.cast, "bitcast": _Frame.bitcast,
    "quantize": _Frame.quantize, "reduce": _Frame.reduce, "dot": _Frame.dot, "dot_acc": _Frame.dot,
}  # fmt: skip


def _guard(s: Op, b: Array) -> None:
    """Raise for an integer division by zero or a shift outside the word."""
    if s.op in ("shl", "shr"):
        bits = 8 * b.dtype.itemsize
        if ((b < 0) | (b >= bits)).any():
            bad = int(b[(b < 0) | (b >= bits)].reshape(-1)[0])
            raise fault(
                s.loc, f"{s.op} by {bad} bits, valid are 0..{bits - 1}", "bound the shift count"
            )
    elif (b == 0).any():
        raise fault(s.loc, f"{s.op} of integers by zero", "guard the divisor with max(…, 1)")


def _lowest(x: Array) -> float | int:
    return -np.inf if x.dtype.kind not in "iub" else int(np.iinfo(x.dtype).min)


def _highest(x: Array) -> float | int:
    return np.inf if x.dtype.kind not in "iub" else int(np.iinfo(x.dtype).max)
