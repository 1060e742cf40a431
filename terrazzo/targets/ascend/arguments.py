"""How a kernel's arguments lie in the bytes that a launch passes: two conventions.

`written`: the parameters of the HIVM function as it is written: in front of the kernel's own the
address for signals between cores (mixed kernels), then the workspace (kernels that have one).
`triton`: what `--enable-triton-kernel-compile` makes of a function: always that address, a lock and
the workspace, then the kernel's own, then the grid's three extents.

In both, addresses and 64-bit numbers are aligned to 8 bytes and all else to 4, and the whole is a
multiple of 8: a C struct with those alignments. Tensors are bare addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from terrazzo.ir.types import DType, i32

Convention = Literal["written", "triton"]
Kind = Literal["aiv", "aic", "mix"]  # vector cores, cube cores, one cube core with two vector cores

ADDRESS = DType("address", 64, "uint")
# Fields that the launcher fills in. None of a kernel's own parameters has such a name.
SYNC, LOCK, WORKSPACE = "<sync>", "<lock>", "<workspace>"
GRID = ("<grid.x>", "<grid.y>", "<grid.z>")


@dataclass(frozen=True)
class Parameter:
    """One of the kernel's own, in its order: the address of a dense tensor of `shape`, or a number
    (shape None) of type `dtype`. `written`: a tensor that the kernel stores to."""

    name: str
    dtype: DType
    shape: tuple[int, ...] | None = None
    written: bool = False


@dataclass(frozen=True)
class Field:
    """A value of `dtype` at byte `offset`."""

    name: str
    dtype: DType
    offset: int


def layout(
    convention: Convention,
    kind: Kind,
    parameters: Sequence[Parameter],
    *,
    workspace: bool,
    sync: bool = True,
) -> tuple[tuple[Field, ...], int]:
    """The fields in order, and the size of the whole in bytes.

    `workspace`: whether the kernel has one. `sync`: whether the address for signals is among the
    arguments of kernels that take it, not added by the runtime.
    """
    own = [(p.name, p.dtype if p.shape is None else ADDRESS) for p in parameters]
    if convention == "triton":
        front = [*([SYNC] if sync else []), LOCK, WORKSPACE]
        back = [(name, i32) for name in GRID]
    else:
        front = [SYNC] if kind == "mix" and sync else []
        front += [WORKSPACE] if workspace else []
        back = []
    fields, at = [], 0
    for name, dtype in (*((name, ADDRESS) for name in front), *own, *back):
        at += -at % (8 if dtype.bits == 64 else 4)
        fields.append(Field(name, dtype, at))
        at += dtype.bytes
    return tuple(fields), at + -at % 8


def pack(fields: Sequence[Field], size: int, values: Mapping[str, int | float]) -> bytes:
    """The bytes of all fields' values, gaps zero. KeyError for a field without a value,
    OverflowError for a whole number that its type does not hold."""
    out = bytearray(size)
    for f in fields:
        value = values[f.name]
        if f.dtype.kind == "float":
            raw = np.array(value, f.dtype.numpy).tobytes()
        else:
            raw = int(value).to_bytes(f.dtype.bytes, "little", signed=f.dtype.kind == "int")
        out[f.offset : f.offset + len(raw)] = raw
    return bytes(out)
