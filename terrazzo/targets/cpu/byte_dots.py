"""Products of bytes, i8 with i8 or u8 with i8, in terms of the f32 micro-kernels.

`dot(a, b): i32` becomes `cast(dot(cast(a), cast(b)))`. That is exact while no sum within one block
of the contracted axis passes 2^24: 1,024 products of two i8, 514 of a u8 and an i8. Sums over
blocks stay i32. Goal: right results at the speed of f32; a non-goal is the speed that VNNI allows.
"""

from __future__ import annotations

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Kernel, Op
from terrazzo.ir.place import mark
from terrazzo.ir.rewrite import Rewriter
from terrazzo.ir.types import DType, TileType, Value, f32, i32

EXACT = 1 << 24  # integers up to this are exact in f32
LARGEST = {"int": 128, "uint": 255}  # magnitude of an 8-bit value, by its kind


def widen(kernel: Kernel) -> Kernel:
    """See the top of the file. Raises KernelError for a contracted axis that is too long."""
    return _Widen(kernel).run()


class _Widen(Rewriter):
    def op(self, s: Op) -> Value:
        if s.op not in ("dot", "dot_acc") or s.result.dtype != i32:
            return self.emit(s)
        a, b = s.args[-2:]
        self._check(a, b, s)
        wide = [self.make("cast", (v,), TileType(f32, v.axes), s) for v in (a, b)]
        axes = tuple(x for x in (*a.axes, *b.axes) if (x in a.axes) != (x in b.axes))
        product = self.make("dot", tuple(wide), TileType(f32, axes), s)
        if s.op == "dot":
            return self.emit(Op(s.result, "cast", (product,), (), s.loc))
        whole = self.make("cast", (product,), TileType(i32, axes), s)
        return self.emit(Op(s.result, "add", (s.args[0], whole), (), s.loc))

    def _check(self, a: Value, b: Value, s: Op) -> None:
        assert isinstance(a.dtype, DType) and isinstance(b.dtype, DType)
        most = EXACT // (LARGEST[a.dtype.kind] * LARGEST[b.dtype.kind])
        statics = dict(self.kernel.statics)
        for name in a.axes:
            axis = self.kernel.axis(name)
            length = axis.cap or statics.get(axis.dim)
            if name in b.axes and (length is None or length > most):
                count = f"up to {length:,}" if length else "any number of"
                what = f"`@` of {a.dtype} and {b.dtype} sums {count} products along `{name}`"
                remedy = f"go through it in blocks of up to {most:,}: the CPU target is exact then"
                raise mark(KernelError(what, remedy), s.loc)
