"""Element types, tile types and values of the tile IR. All frozen, equal by structure.

A *tile* has an element type and named axes; its extents are run-time numbers that belong to the
axes, not to the tile. A rank-0 tile is a scalar. Axis names: a whole dimension is named like the
dim (`dim`), a block of one like its loop variable (`r`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DType:
    """A plain element type. `kind` is one of float, int, uint, bool; `bits` its size in memory."""

    name: str
    bits: int
    kind: str

    @property
    def bytes(self) -> int:
        return (self.bits + 7) // 8

    @property
    def numpy(self) -> np.dtype:
        if self.name == "bf16":  # not at the top: the import takes half a second (ml_dtypes 0.7)
            from ml_dtypes import bfloat16

            return np.dtype(bfloat16)
        return np.dtype(_NUMPY[self.name])

    def __repr__(self) -> str:
        return self.name


f32 = DType("f32", 32, "float")
f16 = DType("f16", 16, "float")
bf16 = DType("bf16", 16, "float")
i8 = DType("i8", 8, "int")
u8 = DType("u8", 8, "uint")
i32 = DType("i32", 32, "int")
u32 = DType("u32", 32, "uint")
bool_ = DType("bool", 8, "bool")
# Of values within a target, where its hardware computes bytes; kernels and tensors do not have it.
i16 = DType("i16", 16, "int")

_NUMPY = {
    "f32": np.float32, "f16": np.float16, "i8": np.int8, "u8": np.uint8, "i32": np.int32,
    "u32": np.uint32, "bool": np.bool_, "i16": np.int16,
}  # fmt: skip
DTYPES = {d.name: d for d in (f32, f16, bf16, i8, u8, i32, u32, bool_)}
_BY_NAME = {"bfloat16" if d is bf16 else d.numpy.name: d for d in DTYPES.values()}


def element(dtype: np.dtype) -> DType | None:
    """An array's element type; None where tensors have none such (a foreign byte order, say)."""
    found = _BY_NAME.get(dtype.name)
    return found if found is not None and found.numpy == dtype else None


@dataclass(frozen=True)
class Format:
    """A packed low-bit element type: values in groups of `group` along the innermost axis.

    What its fields are and how a value decodes is declared once in `ir/formats.py`; `layout` names
    how a target has arranged the bytes ("" = rows of the format's own blocks, as in the model
    file).
    """

    name: str
    group: int
    layout: str = ""

    def __repr__(self) -> str:
        return f"{self.name}.{self.layout}" if self.layout else self.name


ElemType = DType | Format


def plain(dtype: ElemType) -> ElemType:
    """An element type without its layout. A laid-out plain type is a format of group 1: f16 as
    panels is Format("f16", 1, "p16")."""
    if not isinstance(dtype, Format):
        return dtype
    return DTYPES[dtype.name] if dtype.group == 1 else Format(dtype.name, dtype.group)


@dataclass(frozen=True)
class TileType:
    """dtype plus axis names, outermost first. `axes == ()` is a scalar."""

    dtype: ElemType
    axes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(self.axes)}]" if self.axes else f"{self.dtype}"


@dataclass(frozen=True)
class Value:
    """An SSA value: a number unique within its kernel (in order of creation) and its type."""

    id: int
    type: TileType

    @property
    def dtype(self) -> ElemType:
        return self.type.dtype

    @property
    def axes(self) -> tuple[str, ...]:
        return self.type.axes

    def __repr__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True)
class Axis:
    """An axis of tiles. `dim`: the dimension it lies in; `cap`: a static upper bound of its extent
    or None.

    A whole axis (`block` False) starts at 0 and has the dim's extent. A block axis is made by the
    loop whose variable has the same name: start and extent are run-time numbers, extent <= cap.
    """

    name: str
    dim: str
    cap: int | None = None
    block: bool = False
