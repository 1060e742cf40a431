"""The builder: collects IR statements while a kernel's body is evaluated on symbolic values."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Carry, Expect, Index, Load, Loc, Loop, LoopVar, Op, Param, Stmt, Store
from terrazzo.ir.types import Axis, DType, ElemType, TileType, Value, f32, i32

Attr = int | float | str | bool


@dataclass(eq=False)
class Scope:
    """A body under construction. `label` names it in errors; `open` until the loop ends."""

    label: str
    body: list[Stmt] = field(default_factory=list)
    open: bool = True


class Builder:
    """State of one specialisation: parameters, axes, the stack of scopes, value numbers."""

    def __init__(
        self,
        name: str,
        params: dict[str, Param],
        types: dict[str, ElemType],
        statics: dict[str, int],
    ) -> None:
        self.name = name
        self.params = params
        self.types = types
        self.statics = statics
        self.dims = {d for p in params.values() for d in p.dims}
        self.axes: dict[str, Axis] = {}
        self.scopes = [Scope("the kernel")]
        self.loc: Loc | None = None
        self.used: set[int] = set()
        self._home: dict[int, Scope] = {}
        self._next = 0

    # -- values -------------------------------------------------------------------------------
    def new(self, type: TileType) -> Value:
        value = Value(self._next, type)
        self._next += 1
        self._home[value.id] = self.scopes[-1]
        return value

    def use(self, values: Iterable[Value]) -> None:
        """Note that values are read; raise if one belongs to a loop that has ended."""
        for v in values:
            home = self._home.get(v.id)
            if home is None or not home.open:
                label = home.label if home else "another kernel"
                raise KernelError(
                    f"a value made in {label} is used outside of it",
                    "bind it before the loop to carry it out, or store it inside",
                )
            self.used.add(v.id)

    def op(
        self,
        op: str,
        args: tuple[Value, ...],
        dtype: ElemType,
        axes: tuple[str, ...],
        **attrs: Attr,
    ) -> Value:
        self.use(args)
        result = self.new(TileType(dtype, axes))
        self.scopes[-1].body.append(Op(result, op, args, tuple(sorted(attrs.items())), self.loc))
        return result

    def const(self, value: Attr, dtype: DType, axes: tuple[str, ...] = ()) -> Value:
        """A constant, rounded to its dtype; raises if an integer does not fit."""
        return self.op("const", (), dtype, axes, value=constant(value, dtype))

    # -- dims and axes ------------------------------------------------------------------------
    def need_dim(self, name: str) -> None:
        if name not in self.dims:
            raise KernelError(
                f"dim `{name}` is in no tensor given to kernel `{self.name}`",
                f"its extent is known from: {', '.join(sorted(self.dims)) or 'no dim'}",
            )

    def dim(self, name: str) -> Value:
        self.need_dim(name)
        if name in self.statics:
            return self.const(self.statics[name], i32)
        return self.op("dim", (), i32, (), name=name)

    def whole(self, dim: str) -> str:
        """The axis that is the whole dimension."""
        self.need_dim(dim)
        if dim not in self.axes:
            self.axes[dim] = Axis(dim, dim, self.statics.get(dim))
        return dim

    def unique(self, name: str) -> str:
        """A name for a loop's axis that no axis or dim has yet: j, j_2, j_3 …"""
        taken = self.axes.keys() | self.dims | self._loop_names
        n, i = name, 2
        while n in taken:
            n, i = f"{name}_{i}", i + 1
        self._loop_names.add(n)
        return n

    @property
    def _loop_names(self) -> set[str]:
        return self.__dict__.setdefault("_names", set())

    # -- memory -------------------------------------------------------------------------------
    def index_axes(self, index: tuple[Index, ...]) -> tuple[str, ...]:
        """Axes of an access, in order of first appearance in the index."""
        out: dict[str, None] = {}
        for entry in index:
            for axis in entry.axes if isinstance(entry, Value) else (entry.axis,):
                out[axis] = None
        return tuple(out)

    def load(self, param: str, index: tuple[Index, ...], space: str = "") -> Value:
        self.use(e for e in index if isinstance(e, Value))
        result = self.new(TileType(self.params[param].dtype, self.index_axes(index)))
        self.scopes[-1].body.append(Load(result, param, index, space, self.loc))
        return result

    def store(self, param: str, index: tuple[Index, ...], value: Value) -> None:
        self.use(e for e in index if isinstance(e, Value))
        self.use((value,))
        self.scopes[-1].body.append(Store(param, index, value, self.loc))

    def expect(self, condition: Value, text: str) -> None:
        self.use((condition,))
        self.scopes[-1].body.append(Expect(condition, text, self.loc))

    # -- loops --------------------------------------------------------------------------------
    def enter(self, label: str) -> Scope:
        scope = Scope(label)
        self.scopes.append(scope)
        return scope

    def leave(self) -> Scope:
        scope = self.scopes.pop()
        scope.open = False
        return scope

    def loop(
        self,
        kind: str,
        vars: tuple[LoopVar, ...],
        scope: Scope,
        carries: tuple[Carry, ...],
        stages: int,
    ) -> None:
        assert kind in ("grid", "loop")
        loop = Loop(kind, vars, tuple(scope.body), carries, stages, self.loc)
        self.scopes[-1].body.append(loop)


def constant(value: Attr, dtype: DType) -> Attr:
    """`value` as an element of dtype, as the plain Python number that equals it."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.kind in ("int", "uint"):
        number = int(value)
        if number != value:
            raise KernelError(
                f"{value} is not a whole number, but the other operand is {dtype}",
                "cast it with .to(tz.f32)",
            )
        signed = dtype.kind == "int"
        low = -(1 << dtype.bits - 1) if signed else 0
        high = (1 << dtype.bits - signed) - 1
        if not low <= number <= high:
            raise KernelError(f"{number} does not fit {dtype} ({low} … {high})")
        return number
    number = float(value)
    if math.isnan(number):
        return math.nan  # one object: structural equality compares it by identity
    if dtype == f32 or math.isinf(number):
        with np.errstate(over="ignore"):
            return float(np.float32(number))
    with np.errstate(over="ignore"):
        return float(np.asarray(number, np.float64).astype(dtype.numpy))


_local = threading.local()


def current() -> Builder:
    """The builder of the kernel being specialised in this thread."""
    builder = getattr(_local, "builder", None)
    if builder is None:
        raise KernelError(
            "tile operations work only inside a kernel", "put @tz.kernel on the function"
        )
    return builder


def active() -> Builder | None:
    return getattr(_local, "builder", None)


@contextmanager
def tracing(builder: Builder) -> Iterator[None]:
    """`with tracing(builder):` makes it the current one of this thread; nests."""
    before = active()
    _local.builder = builder
    try:
        yield
    finally:
        _local.builder = before
