"""Memrefs of a planned module as views of a core program: addresses, slots, strides.

A `pointer_cast` is a buffer at an address. A select between two of them is a buffer of two slots,
and the condition says which. Masks (i1) have an element a bit in the vendor's plan and a byte in
ours, so their buffers keep no address.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from terrazzo.ir.ops import Loc
from terrazzo.ir.types import DTYPES, DType, bool_, i16
from terrazzo.targets.ascend.mlir_text import DYNAMIC, MemrefType, MlirError, Op, memref_type
from terrazzo.targets.davinci.expr import Scalar, add, make, mul
from terrazzo.targets.davinci.program import Buffer, Gm, Space, View

SPACES: dict[str, Space] = {"gm": "GM", "ub": "UB", "cbuf": "L1", "cc": "L0C"}
_ELEMENTS = {"i1": bool_, "i16": i16, "ui8": DTYPES["u8"], "ui32": DTYPES["u32"]}


def element(name: str) -> DType:
    """Raises MlirError for a type that a kernel cannot have."""
    found = _ELEMENTS.get(name) or DTYPES.get(name)
    if found is None:
        raise MlirError(f"no element type {name}")
    return found


@dataclass(frozen=True)
class Shaped:
    """A memref's value: element (i, …) lies at offset + Σ index · stride of `memory`."""

    memory: Buffer | Gm
    sizes: tuple[Scalar, ...]
    strides: tuple[Scalar, ...]
    offset: Scalar = 0
    slot: Scalar = 0

    def view(self) -> View:
        return View(self.memory, self.sizes, self.strides, self.offset, self.slot)

    def tile(self, rows: Scalar, columns: Scalar) -> View:
        """A Cube tile's four dimensions [columns / c0, rows / 16, 16, c0] as [rows, columns]."""
        if len(self.sizes) != 4 or not isinstance(self.sizes[3], int):
            raise MlirError(f"a Cube tile has four dimensions, not {len(self.sizes)}")
        strides = (self.strides[2], self.strides[0])
        return View(self.memory, (rows, columns), strides, self.offset, self.slot, self.sizes[3])


@dataclass
class Buffers:
    """The buffers of a function: one for each set of addresses, type and size."""

    known: dict[tuple[object, ...], Buffer] = field(default_factory=dict)

    def get(
        self, space: Space, dtype: DType, elements: int, addresses: tuple[int, ...],
        tile: str, loc: Loc | None, slots: int = 1,
    ) -> Buffer:  # fmt: skip
        key = (space, dtype, elements, addresses)
        if key not in self.known:
            name = f"{tile or 'temp'}_{len(self.known)}"
            kept = () if dtype == bool_ else addresses
            self.known[key] = Buffer(name, space, dtype, elements, slots, kept, tile, loc)
        return self.known[key]

    def cast(self, op: Op, addresses: tuple[int, ...], loc: Loc | None) -> Shaped:
        kind = memref_type(op.result_types[0])
        sizes = _known(kind.sizes)
        tile = op.place.name if op.place else ""
        space = SPACES[kind.space]
        n = max(1, math.prod(sizes))
        buffer = self.get(space, element(kind.element), n, addresses, tile, loc, len(addresses))
        return Shaped(buffer, sizes, _known(kind.strides))

    def select(self, condition: Scalar, a: Shaped, b: Shaped) -> Shaped:
        """`a` where the condition holds, else `b`: two places of one shape."""
        x, y = a.memory, b.memory
        if isinstance(x, Gm) or isinstance(y, Gm):
            if x is not y:
                raise MlirError("a choice between tensors")
            return replace(a, offset=make("select", condition, a.offset, b.offset))
        if (a.sizes, a.strides, x.dtype) != (b.sizes, b.strides, y.dtype):
            raise MlirError("a choice between buffers of different shapes")
        key = ("slots", x, y)
        if key not in self.known:
            self.known[key] = replace(
                x, slots=x.slots + y.slots, addresses=(*x.addresses, *y.addresses)
            )
        slot = make("select", condition, a.slot, add(b.slot, x.slots))
        return replace(a, memory=self.known[key], slot=slot,
                       offset=make("select", condition, a.offset, b.offset))  # fmt: skip

    def retyped(self, a: Shaped, kind: MemrefType) -> Shaped:
        """The same bytes as elements of another type of the same width."""
        dtype = element(kind.element)
        if isinstance(a.memory, Gm) or dtype.bits != a.memory.dtype.bits:
            raise MlirError(f"a bitcast of {a.memory.dtype} to {dtype}")
        key = ("type", a.memory, dtype)
        if key not in self.known:
            self.known[key] = replace(a.memory, dtype=dtype)
        return replace(a, memory=self.known[key])


def _known(values: tuple[int | None, ...]) -> tuple[int, ...]:
    if None in values:
        raise MlirError("a buffer of unknown size")
    return tuple(v for v in values if v is not None)


def reinterpret(op: Op, a: Shaped, scalars: list[list[Scalar]]) -> Shaped:
    """memref.reinterpret_cast: offset, sizes, strides anew, from the memory's start."""
    (offset,) = _mixed(op, "static_offsets", scalars[0])
    sizes = _mixed(op, "static_sizes", scalars[1])
    strides = _mixed(op, "static_strides", scalars[2])
    return replace(a, sizes=tuple(sizes), strides=tuple(strides), offset=offset)


def subview(op: Op, a: Shaped, scalars: list[list[Scalar]]) -> Shaped:
    """memref.subview; dimensions of size 1 that the result's type lacks are dropped."""
    offsets = _mixed(op, "static_offsets", scalars[0])
    sizes = _mixed(op, "static_sizes", scalars[1])
    steps = _mixed(op, "static_strides", scalars[2])
    offset = a.offset
    for o, st in zip(offsets, a.strides, strict=True):
        offset = add(offset, mul(o, st))
    strides = [mul(p, st) for p, st in zip(steps, a.strides, strict=True)]
    kept = _kept(memref_type(op.result_types[0]), sizes)
    return replace(a, sizes=tuple(sizes[d] for d in kept), offset=offset,
                   strides=tuple(strides[d] for d in kept))  # fmt: skip


def _kept(kind: MemrefType, sizes: list[Scalar]) -> list[int]:
    """Which dimensions remain: the first that can be dropped are."""
    surplus = len(sizes) - len(kind.sizes)
    kept: list[int] = []
    for d, n in enumerate(sizes):
        if surplus and n == 1:
            surplus -= 1
        else:
            kept.append(d)
    return kept


def collapse(op: Op, a: Shaped) -> Shaped:
    """memref.collapse_shape: each group of dimensions as one."""
    sizes: list[Scalar] = []
    strides: list[Scalar] = []
    for group in _groups(op):
        size: Scalar = 1
        for d in group:
            size = mul(size, a.sizes[d])
        step = next(
            (a.strides[d] for d in reversed(group) if a.sizes[d] != 1), a.strides[group[-1]]
        )
        sizes.append(size)
        strides.append(step)
    if not sizes:
        return replace(a, sizes=(1,), strides=(1,))
    return replace(a, sizes=tuple(sizes), strides=tuple(strides))


def expand(op: Op, a: Shaped, given: list[Scalar]) -> Shaped:
    """memref.expand_shape: each dimension as a group."""
    sizes = _mixed(op, "static_output_shape", given)
    strides: list[Scalar] = [1] * len(sizes)
    for d, group in enumerate(_groups(op)):
        step = a.strides[d]
        for i in reversed(group):
            strides[i] = step
            step = mul(step, sizes[i])
    return replace(a, sizes=tuple(sizes), strides=tuple(strides))


def _groups(op: Op) -> list[list[int]]:
    found = op.attrs["reassociation"]
    assert isinstance(found, tuple)
    return [[int(d) for d in g] for g in found]


def _mixed(op: Op, name: str, dynamic: list[Scalar]) -> list[Scalar]:
    """A list of numbers in which some are operands."""
    static = op.attrs[name]
    assert isinstance(static, tuple)
    given = iter(dynamic)
    return [next(given) if n == DYNAMIC else n for n in static]
