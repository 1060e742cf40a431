"""Functions on tiles. Elementwise ones broadcast by axis name; numbers adapt to their company."""

from __future__ import annotations

from typing import Any

from terrazzo.errors import KernelError
from terrazzo.ir import infer
from terrazzo.ir.types import DType, Format, bool_, f32, i32, u32
from terrazzo.lang import arith
from terrazzo.lang.symbols import Block, Dim, Memory, Tile, View, describe
from terrazzo.lang.trace import current

SPACES = ("", "UB", "L1", "L0C")


def load(x: Any, *, space: str = "") -> Tile:
    """Read a tensor or a view of one into a tile. `space`: tz.UB, tz.L1 or "" (the compiler's)."""
    if isinstance(x, Memory):
        x = x[()]
    if not isinstance(x, View):
        raise KernelError(
            f"tz.load takes a tensor or a view of one, got {describe(x)}", "as in tz.load(x[i])"
        )
    if space not in ("", "UB", "L1"):
        raise KernelError(f"space={space!r} cannot hold a loaded tile", "tz.UB, tz.L1 or none")
    return x.load(space)


def _axis(x: Any) -> str:
    if isinstance(x, Block):
        return x.axis
    if isinstance(x, Dim):
        return current().whole(x.name)
    raise KernelError(
        f"{describe(x)} is not an axis", "give dims or blocks, as in tz.zeros(i, dim)"
    )


def full(value: float, *axes: Any, dtype: Any = None, space: str = "") -> Tile:
    """A tile of one number; axes are blocks or whole dims. f32 unless an element type is given."""
    if not isinstance(value, (int, float)):
        raise KernelError(
            "tz.full takes a number known at compile time", "add the value to tz.zeros(…)"
        )
    if axes and not isinstance(axes[-1], (Block, Dim)) and dtype is None:
        axes, dtype = axes[:-1], axes[-1]
    kind = f32 if dtype is None else arith.element_type(dtype)
    if not isinstance(kind, DType):
        raise arith.packed(kind)
    if space not in SPACES:
        raise KernelError(f"space={space!r} is not a memory space", "tz.UB, tz.L1 or tz.L0C")
    names = tuple(_axis(a) for a in axes)
    if len(set(names)) != len(names):
        raise KernelError(f"axes [{', '.join(names)}] are not distinct")
    return arith.tile(current().const(value, kind, names))


def zeros(*axes: Any, dtype: Any = None, space: str = "") -> Tile:
    """A tile of zeros, as `full(0, …)`."""
    return full(0, *axes, dtype=dtype, space=space)


def index(axis: Any) -> Tile:
    """i32 tile of the absolute indices along a block or a whole dim."""
    name = _axis(axis)
    return arith.tile(current().op("index", (), i32, (name,), axis=name))


def start(block: Any) -> Tile:
    """First absolute index of a block (i32)."""
    return _block("start", block).start


def extent(axis: Any) -> Tile | int:
    """Number of elements of a block or dim (i32; a plain number for a static dim)."""
    return axis.lift() if isinstance(axis, Dim) else _block("extent", axis).extent


def _block(what: str, x: Any) -> Block:
    if not isinstance(x, Block):
        raise KernelError(
            f"tz.{what} takes a block, got {describe(x)}", "a variable of a loop with step="
        )
    return x


# fmt: off
def exp(x: Any) -> Any: return arith.unary("exp", x)
def exp2(x: Any) -> Any: return arith.unary("exp2", x)
def log(x: Any) -> Any: return arith.unary("log", x)
def log2(x: Any) -> Any: return arith.unary("log2", x)
def sqrt(x: Any) -> Any: return arith.unary("sqrt", x)
def rsqrt(x: Any) -> Any: return arith.unary("rsqrt", x)
def tanh(x: Any) -> Any: return arith.unary("tanh", x)
def erf(x: Any) -> Any: return arith.unary("erf", x)
def sin(x: Any) -> Any: return arith.unary("sin", x)
def cos(x: Any) -> Any: return arith.unary("cos", x)
def floor(x: Any) -> Any: return arith.unary("floor", x)
def round(x: Any) -> Any: return arith.unary("round", x)
def abs(x: Any) -> Any: return arith.unary("abs", x)
def maximum(a: Any, b: Any) -> Any: return arith.binary("max", a, b)
def minimum(a: Any, b: Any) -> Any: return arith.binary("min", a, b)
def sum(x: Any, axis: Any) -> Tile: return arith.reduce("sum", x, axis)
def max(x: Any, axis: Any) -> Tile: return arith.reduce("max", x, axis)
def min(x: Any, axis: Any) -> Tile: return arith.reduce("min", x, axis)
def argmax(x: Any, axis: Any) -> Tile: return arith.reduce("argmax", x, axis)
def cast(x: Any, dtype: Any) -> Tile: return arith.cast(x, dtype)
def bitcast(x: Any, dtype: Any) -> Tile: return arith.bitcast(x, dtype)
# fmt: on


def mean(x: Any, axis: Any) -> Tile:
    """Sum over one axis times the reciprocal of its extent, f32."""
    total = arith.reduce("sum", x, axis)
    if total.dtype != f32:
        raise KernelError(f"tz.mean needs floats, got {total.dtype}", "cast with .to(tz.f32)")
    several = axis if isinstance(axis, tuple) else (axis,)
    count: Any = extent(several[0])
    for one in several[1:]:
        count = count * extent(one)
    return total * (1.0 / count if isinstance(count, int) else 1.0 / count.to(f32))


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`."""
    c = arith.lift("tz.where", condition)
    if isinstance(c, (int, float)):
        return a if c else b
    if c.dtype != bool_:
        raise KernelError(f"tz.where: the condition is {c.dtype}", "compare: x != 0")
    x, y = arith.values("tz.where", a, b)
    arith.same("tz.where", x, y)
    args = (c.value, x, y)
    # The order of the values' axes is kept; the condition adds its own.
    return arith.tile(current().op("where", args, x.dtype, infer.broadcast((x, y, c.value))))


def expect(condition: Any, text: str) -> None:
    """End the launch with a KernelFault that says `text` unless the scalar condition holds. It
    costs a comparison; once per row, not per element."""
    if not isinstance(text, str) or not text:
        raise KernelError("tz.expect takes a condition and a text", 'as in "the sum is positive"')
    c = arith.lift("tz.expect", condition)
    if isinstance(c, (int, float)):
        if not c:
            raise KernelError(text)
        return
    if c.dtype != bool_:
        raise KernelError(f"tz.expect: the condition is {c.dtype}", "compare: x != 0")
    if c.axes:
        raise KernelError(
            f"tz.expect: the condition has axes {list(c.axes)}",
            "reduce it to a scalar first, as in tz.max(x, axis=i) < 1.0",
        )
    if len(current().scopes) < 2:
        raise KernelError("an expectation outside of a grid", "put it into `for … in tz.grid(…)`")
    current().expect(c.value, text)


def fma(a: Any, b: Any, c: Any) -> Tile:
    """a * b + c, rounded once."""
    args = arith.values("tz.fma", a, b, c)
    if arith.same("tz.fma", *args).kind != "float":
        raise KernelError(f"tz.fma needs floats, got {args[0].dtype}", "write a * b + c")
    return arith.emit("fma", args)


def umulhi(a: Any, b: Any) -> Tile:
    """The high 32 bits of the 64-bit product of two u32."""
    args = arith.values("tz.umulhi", a, b, like=u32)
    if arith.same("tz.umulhi", *args) != u32:
        raise KernelError(f"tz.umulhi needs u32, got {args[0].dtype}", "cast with .to(tz.u32)")
    return arith.emit("umulhi", args)


def quantize(x: Any, dtype: Any) -> Tile:
    """Pack floats into a format, group by group along the tile's last axis."""
    to = arith.element_type(dtype)
    if not isinstance(to, Format):
        raise KernelError(f"tz.quantize to {to}, a plain type", f"cast with .to(tz.{to})")
    (v,) = arith.values("tz.quantize", x)
    if arith.same("tz.quantize", v).kind != "float" or not v.axes:
        raise KernelError(f"tz.quantize takes a tile of floats, got {v.type}")
    return arith.emit("quantize", (v,), to)


def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up, for non-negative integers."""
    return (a + (b - 1)) // b


# -- written with the above ------------------------------------------------------------------
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp(-x))


def silu(x: Any) -> Any:
    """x * sigmoid(x)."""
    return x / (1.0 + exp(-x))


def relu(x: Any) -> Any:
    """max(x, 0)."""
    return maximum(x, 0.0)


def gelu(x: Any) -> Any:
    """x * Phi(x), with the error function."""
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476))


def gelu_tanh(x: Any) -> Any:
    """The tanh approximation of gelu (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
