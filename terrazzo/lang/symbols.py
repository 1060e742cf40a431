"""Symbolic values a kernel's body is evaluated on: tiles, dims, blocks, views of global memory.

Each is an `Operand`: Python's operators on it emit IR through the current builder. Python numbers
adapt to the other operand's element type; two element types never mix without `.to()`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Block as BlockIndex
from terrazzo.ir.ops import Index, Whole
from terrazzo.ir.types import DType, ElemType, TileType, Value, i32
from terrazzo.lang import arith
from terrazzo.lang.trace import active, current

NUMBERS = (int, float, np.integer, np.floating, np.bool_)


class Operand:
    """What can stand in an expression. `lift()` gives a Tile or a Python number."""

    def lift(self) -> Tile | int:
        raise NotImplementedError

    # fmt: off
    def __add__(self, o: Any) -> Any: return arith.binary("add", self, o)
    def __radd__(self, o: Any) -> Any: return arith.binary("add", o, self)
    def __sub__(self, o: Any) -> Any: return arith.binary("sub", self, o)
    def __rsub__(self, o: Any) -> Any: return arith.binary("sub", o, self)
    def __mul__(self, o: Any) -> Any: return arith.binary("mul", self, o)
    def __rmul__(self, o: Any) -> Any: return arith.binary("mul", o, self)
    def __truediv__(self, o: Any) -> Any: return arith.binary("div", self, o)
    def __rtruediv__(self, o: Any) -> Any: return arith.binary("div", o, self)
    def __floordiv__(self, o: Any) -> Any: return arith.binary("floordiv", self, o)
    def __rfloordiv__(self, o: Any) -> Any: return arith.binary("floordiv", o, self)
    def __mod__(self, o: Any) -> Any: return arith.binary("mod", self, o)
    def __rmod__(self, o: Any) -> Any: return arith.binary("mod", o, self)
    def __and__(self, o: Any) -> Any: return arith.binary("and", self, o)
    def __rand__(self, o: Any) -> Any: return arith.binary("and", o, self)
    def __or__(self, o: Any) -> Any: return arith.binary("or", self, o)
    def __ror__(self, o: Any) -> Any: return arith.binary("or", o, self)
    def __xor__(self, o: Any) -> Any: return arith.binary("xor", self, o)
    def __rxor__(self, o: Any) -> Any: return arith.binary("xor", o, self)
    def __lshift__(self, o: Any) -> Any: return arith.binary("shl", self, o)
    def __rlshift__(self, o: Any) -> Any: return arith.binary("shl", o, self)
    def __rshift__(self, o: Any) -> Any: return arith.binary("shr", self, o)
    def __rrshift__(self, o: Any) -> Any: return arith.binary("shr", o, self)
    def __lt__(self, o: Any) -> Any: return arith.compare("lt", self, o)
    def __le__(self, o: Any) -> Any: return arith.compare("le", self, o)
    def __gt__(self, o: Any) -> Any: return arith.compare("gt", self, o)
    def __ge__(self, o: Any) -> Any: return arith.compare("ge", self, o)
    def __eq__(self, o: Any) -> Any: return arith.compare("eq", self, o)
    def __ne__(self, o: Any) -> Any: return arith.compare("ne", self, o)
    def __matmul__(self, o: Any) -> Any: return arith.dot(self, o)
    def __rmatmul__(self, o: Any) -> Any: return arith.dot(o, self)
    def __neg__(self) -> Any: return arith.unary("neg", self)
    def __invert__(self) -> Any: return arith.unary("not", self)
    def __abs__(self) -> Any: return arith.unary("abs", self)
    def __pow__(self, o: Any) -> Any: return arith.power(self, o)
    # fmt: on
    __hash__ = object.__hash__

    def to(self, dtype: Any) -> Tile:
        """The value in another element type: round to nearest even; float to int truncates."""
        return arith.cast(self, dtype)

    def __bool__(self) -> bool:
        raise KernelError(
            "the truth of a run-time value is not known when the kernel is compiled",
            "choose with tz.where(cond, a, b), tz.maximum or tz.minimum; join conditions by & | ~",
        )

    def __iter__(self) -> Any:
        raise KernelError(
            f"{describe(self)} cannot be unpacked or looped over", "loop with tz.loop(…)"
        )

    def __float__(self) -> float:
        raise KernelError(
            f"{describe(self)} has no value at compile time", "cast it with .to(tz.f32)"
        )

    def __index__(self) -> int:
        raise KernelError(
            f"{describe(self)} has no value at compile time",
            "a number that is needed then is a tz.const or a dim made with static=True",
        )

    __int__ = __index__

    @property
    def T(self) -> Any:  # noqa: N802  (NumPy's name)
        raise KernelError(
            "a tile has no transpose: its axes have names",
            "`@` contracts the axes both sides share, whatever their order",
        )


class Tile(Operand):
    """An SSA value with element type and named axes; without axes it is a scalar."""

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def dtype(self) -> ElemType:
        return self.value.dtype

    @property
    def axes(self) -> tuple[str, ...]:
        return self.value.axes

    def lift(self) -> Tile:
        return self

    def __getitem__(self, index: object) -> Any:
        raise KernelError(
            f"a tile ({self.value.type}) cannot be indexed",
            "index the tensor before tz.load: x[i, j]",
        )

    def __repr__(self) -> str:
        return f"tile {self.value.type}"


class Dim(Operand):
    """A named dimension. In a body: its run-time extent, or a plain number if it is static."""

    def __init__(self, name: str, static: bool = False) -> None:
        self.name = name
        self.static = static

    def lift(self) -> Tile | int:
        builder = current()
        builder.need_dim(self.name)
        if self.name in builder.statics:
            return builder.statics[self.name]
        return Tile(builder.dim(self.name))

    def __index__(self) -> int:
        builder = active()
        if builder is not None and self.name in builder.statics:
            return builder.statics[self.name]
        return super().__index__()

    __int__ = __index__

    def __bool__(self) -> bool:
        extent = self.lift()
        return extent > 0 if isinstance(extent, int) else super().__bool__()

    def __eq__(self, o: Any) -> Any:
        return self is o if active() is None else arith.compare("eq", self, o)

    def __ne__(self, o: Any) -> Any:
        return self is not o if active() is None else arith.compare("ne", self, o)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self.name


def dims(names: str, *, static: bool = False) -> tuple[Dim, ...]:
    """Dims with the given names. Static ones become compile-time constants when specialised."""
    parts = names.replace(",", " ").split()
    for p in parts:
        if not p.isidentifier():
            raise KernelError(f"{p!r} is not a name for a dim", 'as in m, n = tz.dims("m n")')
    if not parts:
        raise KernelError("tz.dims got no name", 'as in m, n = tz.dims("m n")')
    return tuple(Dim(p, static) for p in parts)


class Block(Operand):
    """A loop variable that is a block of `dim`; in arithmetic it is its index tile."""

    def __init__(self, axis: str, dim: str) -> None:
        self.axis = axis
        self.dim = dim

    def lift(self) -> Tile:
        return Tile(current().op("index", (), i32, (self.axis,), axis=self.axis))

    @property
    def start(self) -> Tile:
        """First absolute index of the block (i32)."""
        return Tile(current().op("start", (), i32, (), axis=self.axis))

    @property
    def extent(self) -> Tile:
        """Number of elements in the block (i32), at most the step."""
        return Tile(current().op("extent", (), i32, (), axis=self.axis))

    @property
    def stop(self) -> Tile:
        """One past the last absolute index (i32)."""
        return arith.binary("add", self.start, self.extent)

    def __repr__(self) -> str:
        return f"block {self.axis} of {self.dim}"


class View(Operand):
    """A tensor with an index: loads itself where a value is needed."""

    def __init__(self, param: str, index: tuple[Index, ...]) -> None:
        self.param = param
        self.index = index

    @property
    def type(self) -> TileType:
        builder = current()
        return TileType(builder.params[self.param].dtype, builder.index_axes(self.index))

    def load(self, space: str = "") -> Tile:
        return Tile(current().load(self.param, self.index, space))

    def store(self, value: Any) -> None:
        builder, type = current(), self.type
        (tile,) = arith.values("a store", value, like=type.dtype)
        if tile.dtype != type.dtype:
            packed = isinstance(type.dtype, DType)
            raise KernelError(
                f"`{self.param}` holds {type.dtype}, the value is {tile.dtype}",
                f"cast it: .to(tz.{type.dtype})"
                if packed
                else f"tz.quantize(value, tz.{type.dtype})",
            )
        extra = [a for a in tile.axes if a not in type.axes]
        if extra:
            raise KernelError(
                f"the value has axes [{', '.join(tile.axes)}], the place in `{self.param}` has "
                f"[{', '.join(type.axes)}]",
                f"reduce over it, e.g. tz.sum(value, axis={extra[0]}), or index with it",
            )
        builder.store(self.param, self.index, tile)

    def lift(self) -> Tile:
        return self.load()

    def __getitem__(self, index: object) -> Any:
        raise KernelError(
            f"a view of `{self.param}` is indexed twice", "give all entries at once: x[i, j]"
        )

    def __repr__(self) -> str:
        return f"view of `{self.param}`"


class Memory(Operand):
    """A tensor parameter. Indexing gives a View; missing trailing entries are `:`."""

    def __init__(self, name: str, dtype: ElemType, dims: tuple[str, ...]) -> None:
        self.name = name
        self.dtype = dtype
        self.dims = dims

    def __getitem__(self, index: Any) -> View:
        entries = index if isinstance(index, tuple) else (index,)
        if len(entries) > len(self.dims):
            raise KernelError(
                f"`{self.name}` has {len(self.dims)} dims ({', '.join(self.dims)}), "
                f"the index has {len(entries)} entries"
            )
        entries += (slice(None),) * (len(self.dims) - len(entries))
        return View(self.name, tuple(self._entry(n, e) for n, e in enumerate(entries)))

    def _entry(self, position: int, entry: Any) -> Index:
        builder, dim = current(), self.dims[position]
        if isinstance(entry, slice):
            if (entry.start, entry.stop, entry.step) != (None, None, None):
                raise KernelError(
                    f"dim `{dim}` of `{self.name}`: a slice with bounds is not an index",
                    f"loop over the part: for i in tz.loop(lo, hi, step=…, of={dim})",
                )
            return Whole(builder.whole(dim))
        if isinstance(entry, (Block, Dim)) and _dim_of(entry) != dim:
            raise KernelError(
                f"dim `{dim}` of `{self.name}` is indexed by {describe(entry)}",
                "a block indexes only its own dim; for a gather write tz.index(…)",
            )
        if isinstance(entry, Block):
            return BlockIndex(entry.axis)
        if isinstance(entry, Dim):
            return Whole(builder.whole(dim))
        if entry is None or entry is Ellipsis:
            raise KernelError(
                f"{entry} is not an index of `{self.name}`", "write `:` for a whole dim"
            )
        (value,) = arith.values("an index", entry, like=i32)
        if value.dtype != i32:
            raise KernelError(
                f"dim `{dim}` of `{self.name}` is indexed by {value.type}",
                "an index is i32: .to(tz.i32)",
            )
        return value

    def lift(self) -> Tile:
        return self[()].load()

    def __repr__(self) -> str:
        return f"tensor `{self.name}`"


def _dim_of(entry: Block | Dim) -> str:
    return entry.dim if isinstance(entry, Block) else entry.name


def describe(x: object) -> str:
    """What a user calls `x`, for error texts."""
    if isinstance(x, Dim):
        return f"dim `{x.name}`"
    if isinstance(x, (Operand, bool, int, float, str)) or x is None:
        return repr(x)
    name = getattr(x, "__name__", type(x).__name__)
    return f"function `{name}`" if callable(x) else f"a {name}"
