"""The tile IR: a kernel is parameters, axes and a block of statements, the dataclasses here.

Semantics (the reference target is the living definition; `ir/README.md` has the grammar):

* Values are SSA. Elementwise ops broadcast by axis NAME: the result has the arguments' axes in the
  order they first appear. Element types must agree; casts are explicit. `where` takes the values'
  axes first, then the condition's.
* Index values (`dim`, `start`, `extent`, `index`, loop variables) are i32; addresses are i64.
* `dot(a, b)` contracts over every axis the two share (at least one); result axes: a's others, then
  b's others; dtype f32 (i32 for i8 x i8). The order of the sum over k is fixed per target, by k
  alone.
* `reduce` drops its axis. Sums are f32 (floats) or i32; `argmax` yields the lowest i32 index of the
  maximum.
* A grid's blocks may run in any order and in parallel; consecutive top-level grids are phases, a
  barrier between them. A loop runs in order and carries values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from terrazzo.ir.types import Axis, ElemType, Value

# name -> number of arguments. Elementwise unless said otherwise.
UNARY = ("neg", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos",
         "floor", "round", "not")  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "floordiv", "mod", "max", "min",
          "and", "or", "xor", "shl", "shr", "umulhi")  # shr is logical on u32  # fmt: skip
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")  # -> bool
LEAVES = ("const", "dim", "arg", "index", "start", "extent")
# const(value) · dim(name) -> i32 · arg(name) scalar parameter · index(axis) -> i32[axis], absolute
# indices within the dim (start + 0, 1, …) · start(axis), extent(axis) -> i32 of a block axis
# where(c, a, b) · fma(a, b, c) · cast(x) to result dtype, round to nearest even (float -> int:
# truncate) bitcast(x) · reduce(x; kind, axis) · dot(a, b) · dot_acc(c, a, b) = c + a·b ·
# quantize(x) to a Format
ReduceKind = Literal["sum", "max", "min", "argmax"]


@dataclass(frozen=True)
class Loc:
    """Where in the author's source: 1-based line and 0-based columns. `call` chains inlined
    functions."""

    file: str
    line: int
    col: int
    end_col: int
    text: str = ""
    call: Loc | None = None


@dataclass(frozen=True)
class Op:
    """A pure operation: `result = op(args; attrs)`. attrs are sorted (name, value) pairs."""

    result: Value
    op: str
    args: tuple[Value, ...] = ()
    attrs: tuple[tuple[str, object], ...] = ()
    loc: Loc | None = field(default=None, compare=False, repr=False)

    def attr(self, name: str) -> object:
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(name)


@dataclass(frozen=True)
class Whole:
    """Index entry `:`; the whole dimension becomes the axis named like the dim."""

    axis: str


@dataclass(frozen=True)
class Block:
    """Index entry: a block axis; keeps the axis."""

    axis: str


# A Value of rank 0 drops the dimension; a Value of rank >= 1 (i32) gathers: its axes stand in its
# place (an axis that appears in several entries is one axis, as in NumPy's advanced indexing).
Index = Whole | Block | Value


@dataclass(frozen=True)
class Load:
    """Read a tile from a global-memory parameter. `space` is UB, L1 or "" (the compiler's
    choice)."""

    result: Value
    param: str
    index: tuple[Index, ...]
    space: str = ""
    loc: Loc | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Store:
    """Write `value` to a parameter; value's axes are a subset of the index's (it broadcasts by
    name)."""

    param: str
    index: tuple[Index, ...]
    value: Value
    loc: Loc | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Expect:
    """The bool scalar `condition` holds, else the launch ends with a fault that says `text`. What
    was stored by then is unspecified."""

    condition: Value
    text: str
    loc: Loc | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class LoopVar:
    """One variable: a block axis named `name` if step is given (var is None), else the scalar
    `var`.

    Bounds are i32 scalars. `step` is an upper bound in a grid, exact in a loop (last block may be
    short).
    """

    name: str
    lo: Value
    hi: Value
    step: int | None
    var: Value | None
    dim: str


@dataclass(frozen=True)
class Carry:
    """A loop-carried value: var = init at first, = next after each trip; result after the last."""

    init: Value
    var: Value
    next: Value
    result: Value


@dataclass(frozen=True)
class Loop:
    """kind "grid": a Cartesian product of variables, any order. kind "loop": one variable, in
    order."""

    kind: Literal["grid", "loop"]
    vars: tuple[LoopVar, ...]
    body: tuple[Stmt, ...]
    carries: tuple[Carry, ...] = ()
    stages: int = 1
    loc: Loc | None = field(default=None, compare=False, repr=False)


Stmt = Op | Load | Store | Expect | Loop


@dataclass(frozen=True)
class Param:
    """A parameter. `dims` non-empty or `tensor`: global memory with named dims; else a scalar."""

    name: str
    dtype: ElemType
    dims: tuple[str, ...] = ()
    tensor: bool = True
    loc: Loc | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Kernel:
    """A specialised kernel: types, constants and optional arguments are resolved.

    `consts` and `statics` (dims bound to a number at compile time) are for printing and cache keys.
    `aliases`: pairs of parameters that may share memory.
    """

    name: str
    params: tuple[Param, ...]
    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    consts: tuple[tuple[str, int | float | str], ...] = ()
    statics: tuple[tuple[str, int], ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()

    def __hash__(self) -> int:
        """The structural hash, computed once: kernels are looked up far more often than made."""
        known = self.__dict__.get("_hash")
        if known is None:
            known = hash(
                (
                    self.name,
                    self.params,
                    self.axes,
                    self.body,
                    self.consts,
                    self.statics,
                    self.aliases,
                )
            )
            object.__setattr__(self, "_hash", known)
        return known

    def axis(self, name: str) -> Axis:
        return next(a for a in self.axes if a.name == name)

    def param(self, name: str) -> Param:
        return next(p for p in self.params if p.name == name)

    def stored(self) -> tuple[str, ...]:
        """Names of the parameters the kernel writes, in order of first store."""
        known = self.__dict__.get("_stored")
        if known is not None:
            return known
        out: dict[str, None] = {}

        def walk(body: tuple[Stmt, ...]) -> None:
            for s in body:
                if isinstance(s, Store):
                    out[s.param] = None
                elif isinstance(s, Loop):
                    walk(s.body)

        walk(self.body)
        object.__setattr__(self, "_stored", tuple(out))
        return tuple(out)
