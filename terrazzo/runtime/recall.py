"""Recognising a call of a kind seen before, so that binding is done once a kind.

A *kind* is what of the arguments shapes a launch: element types, extents, strides, constants, which
optional tensors are there. Between calls of a kind only pointers and scalars change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from terrazzo.ir.packed import Packed
from terrazzo.ir.types import DType, f32
from terrazzo.lang.kernel import Kernel
from terrazzo.targets.cpu.compile import Compiled
from terrazzo.targets.cpu.frame import FIRST_SLOT
from terrazzo.targets.cpu.layouts import LAYOUT

if TYPE_CHECKING:
    from terrazzo.runtime.launch import Launch


@dataclass(frozen=True)
class Request:
    """`key` of the kind, and the arguments by name."""

    key: tuple[Any, ...]
    given: Mapping[str, Any]


def request(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Request | None:
    """None for a call that needs more than its kind checked: wrong arguments, foreign tensors,
    weights that are not yet in this CPU's layout."""
    given = {p.name: a for p, a in zip(kernel.params, args, strict=False)}
    if len(given) < len(args) or given.keys() & kwargs.keys():
        return None
    given.update(kwargs)
    key: list[Any] = []
    found = 0
    for p in kernel.params:
        if p.name not in given:
            key.append(None)
            continue
        found += 1
        x = given[p.name]
        if p.kind == "const":
            key.append((x,))
        elif isinstance(x, np.ndarray):
            key.append((x.dtype, x.shape, x.strides, x.flags.writeable))
        elif isinstance(x, Packed) and (x.format.layout == LAYOUT or x.format.name == "a8"):
            key.append((x.format, x.shape, x.data.strides, x.data.flags.writeable))
        elif isinstance(x, (int, float)) or x is None:
            key.append(type(x))
        else:
            return None
    return Request(tuple(key), given) if found == len(given) else None


def memory(given: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    """The arrays among the arguments."""
    data = (x.data if isinstance(x, Packed) else x for x in given.values())
    return tuple(x for x in data if isinstance(x, np.ndarray))


def bits(dtype: object, value: int | float) -> int:
    """A scalar as its slot of a launch table: its own bits in the low bytes."""
    if dtype == f32:
        return int(np.float32(value).view(np.int32))
    if isinstance(dtype, DType) and dtype.kind == "float":
        return int(np.array(value, dtype.numpy).view(np.int16))
    return int(value)


@dataclass(frozen=True)
class Places:
    """Where a launch's arguments go in its table; the same for all calls of a kind.

    tensors: (slot, name, first byte, end) with offsets from the pointer. apart: pairs of them that
    must not share memory. scalars: (slot, name, type).
    """

    tensors: tuple[tuple[int, str, int, int], ...]
    apart: tuple[tuple[int, int], ...]
    scalars: tuple[tuple[int, str, object], ...]


def places(code: Compiled, tensors: Mapping[str, np.ndarray]) -> Places:
    """For tensors (the bytes of packed ones) with these shapes and strides."""
    kernel = code.kernel
    where: list[tuple[int, str, int, int]] = []
    scalars: list[tuple[int, str, object]] = []
    for n, s in enumerate(code.slots, FIRST_SLOT):
        if s.kind == "ptr":
            x = tensors[s.name]
            steps = [(d - 1) * t for d, t in zip(x.shape, x.strides, strict=True)]
            low, high = sum(t for t in steps if t < 0), sum(t for t in steps if t > 0)
            where.append((n, s.name, low, high + x.itemsize))
        elif s.kind == "scalar":
            scalars.append((n, s.name, kernel.param(s.name).dtype))
    stored, allowed = kernel.stored(), {frozenset(pair) for pair in kernel.aliases}
    names = [name for _, name, _, _ in where]
    apart = [
        (names.index(a), n) for a in stored for n, b in enumerate(names)
        if a != b and frozenset((a, b)) not in allowed
    ]  # fmt: skip
    return Places(tuple(where), tuple(apart), tuple(scalars))


def fill(launch: Launch, given: Mapping[str, Any]) -> bool:
    """Write pointers and scalars into the launch's table; False if tensors that must not share
    memory lie across each other (then they have to be looked at element by element)."""
    table, known = launch.table, launch.places
    spans: list[tuple[int, int]] = []
    for slot, name, low, high in known.tensors:
        x = given[name]
        at = (x.data if isinstance(x, Packed) else x).__array_interface__["data"][0]
        table[slot] = at
        spans.append((at + low, at + high))
    for slot, name, dtype in known.scalars:
        if name in given:
            table[slot] = bits(dtype, given[name])
    for a, b in known.apart:
        if spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]:
            return False
    return True
