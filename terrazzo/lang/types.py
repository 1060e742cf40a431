"""What stands in a kernel's signature: element types, type variables, `gm[...]`, `const`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from terrazzo.errors import KernelError
from terrazzo.ir import formats as _f
from terrazzo.ir import types as _t
from terrazzo.ir.types import DType, ElemType, Format
from terrazzo.lang.symbols import Dim

GM = "GM"
L1 = "L1"
L0C = "L0C"
UB = "UB"


class _Const:
    """The annotation of a compile-time constant."""

    def __repr__(self) -> str:
        return "tz.const"


@dataclass(frozen=True)
class ByTarget:
    """A default that differs by target: tile sizes fit memories, and memories differ."""

    default: Any
    targets: tuple[tuple[str, Any], ...]

    def on(self, target: str) -> Any:
        """The value on a target, or on an instruction set of the CPU: "cpu.amx"."""
        values = dict(self.targets)
        for name in reversed(target.split(".")):
            if name in values:
                return values[name]
        return self.default


def by_target(default: Any, **targets: Any) -> Any:
    """The default of a `tz.const`: `default`, or another value on the targets (`cpu=512`) or
    instruction sets (`amx=256`) named."""
    return ByTarget(default, tuple(sorted(targets.items())))


if TYPE_CHECKING:
    # To a type checker the element types are annotations as well as values.
    f32: TypeAlias = Any
    f16: TypeAlias = Any
    bf16: TypeAlias = Any
    i8: TypeAlias = Any
    u8: TypeAlias = Any
    i32: TypeAlias = Any
    u32: TypeAlias = Any
    bool_: TypeAlias = Any
    const: TypeAlias = Any
    q8_0: TypeAlias = Any
    q4_0: TypeAlias = Any
    q4_1: TypeAlias = Any
    q6_k: TypeAlias = Any
    a8: TypeAlias = Any
else:
    f32, f16, bf16 = _t.f32, _t.f16, _t.bf16
    i8, u8, i32, u32, bool_ = _t.i8, _t.u8, _t.i32, _t.u32, _t.bool_
    const = _Const()
    q8_0, q4_0, q4_1, q6_k, a8 = (_f.FORMATS[n] for n in ("q8_0", "q4_0", "q4_1", "q6_k", "a8"))


@dataclass(frozen=True)
class TypeVar:
    """A type variable of a signature; in the body it stands for the type it is bound to."""

    name: str
    choices: tuple[ElemType, ...]

    def __repr__(self) -> str:
        return self.name


def dtypes(name: str, *choices: Any) -> TypeVar:
    """A type variable that may be bound to any of `choices` (element types or packed formats)."""
    for c in choices:
        if not isinstance(c, (DType, Format)):
            raise KernelError(
                f"dtypes({name!r}): {c!r} is not an element type", "use tz.f32, tz.q8_0 …"
            )
    if not choices:
        raise KernelError(
            f"dtypes({name!r}) names no element type", 'as in tz.dtypes("T", tz.f32, tz.f16)'
        )
    return TypeVar(name, tuple(choices))


@dataclass(frozen=True)
class Gm:
    """`gm[T, rows, dim]`: a tensor in global memory, its element type and its named dims."""

    dtype: ElemType | TypeVar
    dims: tuple[Dim, ...]

    def __or__(self, other: object) -> Gm:
        """`gm[...] | None` tells a type checker that the argument is optional."""
        if other is None:
            return self
        return NotImplemented


class gm:  # noqa: N801  (an annotation, spelled like a type)
    """Annotation of a tensor parameter: `tz.gm[T, rows, dim]`."""

    def __class_getitem__(cls, item: Any) -> Any:
        dtype, *dims = item if isinstance(item, tuple) else (item,)
        if not isinstance(dtype, (DType, Format, TypeVar)):
            raise KernelError(
                f"gm[…]: the first entry is the element type, got {dtype!r}",
                "as in tz.gm[tz.f32, rows, dim]",
            )
        for d in dims:
            if not isinstance(d, Dim):
                raise KernelError(f"gm[…]: {d!r} is not a dim", 'make one with n, = tz.dims("n")')
        names = [d.name for d in dims]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise KernelError(
                f"gm[…]: dim `{twice.pop()}` stands twice in one tensor",
                "give the two axes distinct dims",
            )
        return Gm(dtype, tuple(dims))

    if TYPE_CHECKING:

        def __getitem__(self, index: Any) -> Any: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
