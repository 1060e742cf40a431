"""Binding call arguments to a kernel's signature: types, extents, strides, constants.

Arrays are anything with NumPy's `dtype`, `shape` and `strides` (the launcher makes them from DLPack
tensors and device buffers first), or packed tensors, recognised by `format` and `shape`.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from terrazzo.errors import ArgumentError
from terrazzo.ir.types import DType, ElemType, Format, element, plain
from terrazzo.lang.kernel import Kernel, ParamSpec
from terrazzo.lang.types import TypeVar


@dataclass(frozen=True)
class Tensor:
    """One bound tensor: the caller's object, its element type, extents and strides in elements.

    A packed tensor's rows are dense: its `strides` is None.
    """

    param: ParamSpec
    array: Any
    dtype: ElemType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


@dataclass
class Binding:
    """A call's arguments by what they are to the kernel. `present`: optional tensors given."""

    dtypes: dict[str, ElemType] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    statics: dict[str, int] = field(default_factory=dict)
    consts: dict[str, Any] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, int | float] = field(default_factory=dict)


def bind(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Binding:
    """Match arguments to parameters. Raises ArgumentError: argument, what was expected, what came.

    Checked: unknown, missing and doubled arguments; rank; element type; innermost axis contiguous;
    strides in whole elements; dims of equal name have equal extents; scalars are numbers in range.
    """
    given = _match(kernel, args, kwargs)
    out = Binding()
    owner: dict[str, str] = {}
    for p in kernel.params:
        if p.name not in given:
            if p.default is ...:
                raise _error(kernel, p, "it is missing", _expected(p))
            if p.kind == "const":
                continue
        value = given.get(p.name, p.default)
        if p.kind == "const":
            out.consts[p.name] = value
        elif p.kind == "scalar":
            out.scalars[p.name] = _scalar(kernel, p, value, out)
        elif value is None:
            if not p.optional:
                raise _error(kernel, p, "got None", _expected(p))
        else:
            tensor = _tensor(kernel, p, value)
            out.tensors[p.name] = tensor
            if p.optional:
                out.present.add(p.name)
            _bind_type(kernel, p, tensor.dtype, out)
            _bind_dims(kernel, tensor, out, owner)
    out.statics = {n: out.dims[n] for n, d in kernel.dims.items() if d.static and n in out.dims}
    return out


def _match(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if len(args) > len(kernel.params):
        raise ArgumentError(
            f"kernel `{kernel.name}` takes {len(kernel.params)} arguments, got {len(args)}",
            f"they are: {', '.join(p.name for p in kernel.params)}",
        )
    given = {p.name: a for p, a in zip(kernel.params, args, strict=False)}
    for name, value in kwargs.items():
        kernel.param(name)
        if name in given:
            raise ArgumentError(f"argument `{name}` of `{kernel.name}` is given twice")
        given[name] = value
    return given


def _error(kernel: Kernel, p: ParamSpec, got: str, expected: str) -> ArgumentError:
    return ArgumentError(f"argument `{p.name}` of `{kernel.name}`: expected {expected}, {got}")


def _choices(p: ParamSpec) -> str:
    if isinstance(p.dtype, TypeVar):
        return " or ".join(map(str, p.dtype.choices))
    return str(p.dtype)


def _expected(p: ParamSpec) -> str:
    if p.kind == "tensor":
        return f"a {_choices(p)} array [{', '.join(d.name for d in p.dims)}]"
    return "a compile-time constant" if p.kind == "const" else f"a number ({_choices(p)})"


def _scalar(kernel: Kernel, p: ParamSpec, value: Any, out: Binding) -> int | float:
    dtype = out.dtypes.get(p.dtype.name) if isinstance(p.dtype, TypeVar) else p.dtype
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    whole = isinstance(value, numbers.Integral)
    if not whole and not isinstance(value, numbers.Real):
        raise _error(kernel, p, f"got {_shown(value)}", _expected(p))
    if not isinstance(dtype, DType) or dtype.kind == "float":
        return float(value)
    if not whole:
        raise _error(kernel, p, f"got {value!r}", f"a whole number ({dtype})")
    number = int(value)
    if dtype.kind != "bool":
        info = np.iinfo(dtype.numpy)
        if not info.min <= number <= info.max:
            raise _error(kernel, p, f"got {number}", f"{dtype}: {info.min} … {info.max}")
    return number


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"{value!r}" if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"
    dtype = getattr(value, "format", None) or getattr(value, "dtype", "")
    return f"{dtype} [{', '.join(map(str, shape))}]"


def _tensor(kernel: Kernel, p: ParamSpec, value: Any) -> Tensor:
    fmt = getattr(value, "format", None)
    packed = isinstance(fmt, Format)
    if not packed and not all(hasattr(value, a) for a in ("dtype", "shape", "strides")):
        raise _error(kernel, p, f"got {_shown(value)}", _expected(p))
    shape = tuple(int(n) for n in value.shape)
    if len(shape) != len(p.dims):
        raise _error(
            kernel,
            p,
            f"got rank {len(shape)}: {_shown(value)}",
            f"rank {len(p.dims)}: {_expected(p)}",
        )
    if packed:
        _check_type(kernel, p, fmt, value)
        if shape and shape[-1] % fmt.group:
            raise _error(
                kernel, p, f"got {shape[-1]}", f"`{p.dims[-1]}` in groups of {fmt.group} ({fmt})"
            )
        return Tensor(p, value, fmt, shape, None)
    dtype = element(value.dtype)
    if dtype is None:
        raise _error(kernel, p, f"got {value.dtype}", _expected(p))
    _check_type(kernel, p, dtype, value)
    return Tensor(p, value, dtype, shape, _strides(kernel, p, value, shape, dtype.bytes))


def _strides(
    kernel: Kernel, p: ParamSpec, value: Any, shape: tuple[int, ...], size: int
) -> tuple[int, ...]:
    """Strides in elements; those of axes of extent 0 or 1 do not matter and are 0."""
    out = []
    for axis, (n, stride) in enumerate(zip(shape, value.strides, strict=True)):
        if n <= 1 and axis < len(shape) - 1:
            out.append(0)
            continue
        if axis == len(shape) - 1:
            if n > 1 and stride != size and 0 not in shape:
                raise _error(
                    kernel, p, f"its stride there is {stride} bytes, not {size}",
                    f"axis `{p.dims[-1]}` (the innermost) to be contiguous",
                )  # fmt: skip
            stride = size
        if stride % size and 0 not in shape:
            raise _error(
                kernel, p, f"got {stride} bytes",
                f"the stride of axis `{p.dims[axis]}` to be whole elements of {size} bytes",
            )  # fmt: skip
        out.append(stride // size)
    return tuple(out)


def _check_type(kernel: Kernel, p: ParamSpec, dtype: ElemType, value: Any) -> None:
    allowed = p.dtype.choices if isinstance(p.dtype, TypeVar) else (p.dtype,)
    if plain(dtype) not in allowed:
        raise _error(kernel, p, f"got {_shown(value)}", _expected(p))


def _bind_type(kernel: Kernel, p: ParamSpec, dtype: ElemType, out: Binding) -> None:
    if isinstance(p.dtype, TypeVar):
        bound = out.dtypes.setdefault(p.dtype.name, dtype)
        if bound != dtype:
            first = next(
                t.param.name
                for t in out.tensors.values()
                if isinstance(t.param.dtype, TypeVar) and t.param.dtype.name == p.dtype.name
            )
            raise _error(
                kernel, p, f"got {dtype}", f"{bound} as `{first}` has (both are {p.dtype})"
            )


def _bind_dims(kernel: Kernel, tensor: Tensor, out: Binding, owner: dict[str, str]) -> None:
    for dim, extent in zip(tensor.param.dims, tensor.shape, strict=True):
        if dim.name not in out.dims:
            out.dims[dim.name] = extent
            owner[dim.name] = tensor.param.name
        elif out.dims[dim.name] != extent:
            raise _error(
                kernel, tensor.param, f"got {extent}",
                f"`{dim.name}` = {out.dims[dim.name]} as in `{owner[dim.name]}`",
            )  # fmt: skip
