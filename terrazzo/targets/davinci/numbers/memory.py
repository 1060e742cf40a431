"""Byte-addressed memories of the executor, and views of them as NumPy arrays.

A scheduled program's buffers lie at their addresses in one array of bytes a space and core, so that
a plan that overlaps what it must not gives wrong numbers. A buffer without addresses gets bytes of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from terrazzo.targets.davinci.chips import BLOCK, Chip
from terrazzo.targets.davinci.expr import Env, compiled_all
from terrazzo.targets.davinci.program import Buffer, Gm, Space, View

Array = np.ndarray
POISON = 0xFF  # of bytes nobody has written: a float of them is not a number
_POISON_INT = 0xCC  # the same of a workspace of integers
_PRIVATE = 512  # slots of a buffer without addresses start at multiples of it
_KNOWN = 4096  # regions that a view remembers


@dataclass(frozen=True, eq=False)
class Memory:
    """`data`: its bytes (uint8, one dimension). `unit`: bytes that are only ever accessed together.
    `gm`: the tensor, of a memory in GM."""

    space: Space
    data: Array
    unit: int = 1
    gm: Gm | None = None

    def poison(self) -> None:
        """Bytes as nobody has written them."""
        integer = self.gm is not None and self.gm.dtype.kind != "float"
        self.data[:] = _POISON_INT if integer else POISON


@dataclass(frozen=True)
class Piece:
    """Elements at start + Σ index · stride, in bytes."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def reach(self, item: int) -> tuple[int, int]:
        """The first byte, and the one past the last."""
        ends = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return (self.start + sum(e for e in ends if e < 0),
                self.start + sum(e for e in ends if e > 0) + item)  # fmt: skip

    def runs(self, item: int) -> Piece:
        """The same bytes, each once, in as few dimensions as possible: the last one is a run of
        bytes, dimensions that repeat or continue another are gone."""
        dims = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n > 1 and s]
        out = [(item, 1)]
        for n, s in sorted(dims, key=lambda d: abs(d[1])):
            inner, step = out[-1]
            if s == inner * step:
                out[-1] = (inner * n, step)
            else:
                out.append((n, s))
        return Piece(self.start, tuple(n for n, _ in out[::-1]), tuple(s for _, s in out[::-1]))


class Region:
    """A view with its numbers known.

    `shape` and `strides` are the view's, in elements; `base`: the first byte of its buffer's slot;
    `start`: byte of the first element; `low`, `high`: the first byte of all, and the one past the
    last. `pieces`: one, or for the NZ layout the whole column blocks [rows, blocks, c0] and then
    the last, partial one [rows, 1, columns], either only if there is one; none if a size is 0.
    `runs`: the same bytes, each once.
    `looked_at`: the checker has seen what is the same each time.
    """

    __slots__ = ("_arrays", "base", "high", "looked_at", "low", "memory", "numpy", "pieces", "runs",
                 "shape", "start", "strides", "view")  # fmt: skip

    def __init__(self, memory: Memory, view: View, base: int, sizes: tuple[int, ...],
                 strides: tuple[int, ...], offset: int) -> None:  # fmt: skip
        item = view.dtype.bytes
        self.memory = memory
        self.view = view
        self.shape = sizes
        self.strides = strides
        self.base = base
        self.start = base + offset * item
        self.looked_at = False
        # Poison must not be looked at as a NumPy bool, which is 0 or 1.
        self.numpy = np.dtype(np.uint8) if view.dtype.kind == "bool" else view.dtype.numpy
        steps = tuple(s * item for s in strides)
        if 0 in sizes:
            self.pieces: tuple[Piece, ...] = ()
        elif view.fractal and len(sizes) == 2:
            self.pieces = _column_blocks(self.start, sizes, steps, view.fractal, item)
        else:
            self.pieces = (Piece(self.start, sizes, steps),)
        self.runs = tuple(p.runs(item) for p in self.pieces)
        reach = [p.reach(item) for p in self.pieces]
        self.low = min((a for a, _ in reach), default=self.start)
        self.high = max((b for _, b in reach), default=self.start)
        self._arrays: tuple[Array, ...] | None = None

    @property
    def limits(self) -> tuple[int, int]:
        """The bytes a view of its buffer's slot, or of its tensor, may reach."""
        m = self.view.memory
        end = len(self.memory.data) if isinstance(m, Gm) else self.base + _up(m.bytes, BLOCK)
        return self.base, end

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The pieces, in the memory itself."""
        if self._arrays is None:
            self._arrays = tuple(
                np.ndarray(p.shape, self.numpy, self.memory.data, p.start, p.strides)  # type: ignore[arg-type]
                for p in self.pieces
            )
        return self._arrays

    def read(self) -> Array:
        """The elements, of shape `shape`: the memory itself or a copy of it, not to be written."""
        if not self.pieces:
            return np.empty(self.shape, self.numpy)
        if not self.view.fractal:
            whole = self.arrays[0]
            return whole != 0 if self.view.dtype.kind == "bool" else whole
        rows, columns = self.shape
        c0 = self.view.fractal
        out = np.empty((rows, -(-columns // c0), c0), self.numpy)
        done = 0
        for a in self.arrays:
            out[:, done : done + a.shape[1], : a.shape[2]] = a
            done += a.shape[1]
        return out.reshape(rows, -1)[:, :columns]

    def write(self, value: Array) -> None:
        """`value`, of the view's type, broadcasts to `shape`."""
        if not self.view.fractal:
            self.arrays[0][...] = value
            return
        value = np.broadcast_to(value, self.shape)
        done = 0
        for a in self.arrays:
            width = a.shape[1] * a.shape[2]
            a[...] = value[:, done : done + width].reshape(a.shape)
            done += width


def _column_blocks(start: int, sizes: tuple[int, ...], steps: tuple[int, ...], c0: int,
                   item: int) -> tuple[Piece, ...]:  # fmt: skip
    rows, columns = sizes
    whole, rest = divmod(columns, c0)
    out: list[Piece] = []
    if whole:
        out.append(Piece(start, (rows, whole, c0), (*steps, item)))
    if rest:
        out.append(Piece(start + whole * steps[1], (rows, 1, rest), (*steps, item)))
    return tuple(out)


class Located:
    """A view in its memory, whose numbers are computed when an instruction is issued."""

    def __init__(self, view: View, memory: Memory, bases: tuple[int, ...]) -> None:
        self.view = view
        self._memory = memory
        self._bases = bases
        self._numbers = compiled_all((*view.sizes, *view.strides, view.offset, view.slot))
        self._known: dict[tuple[Any, ...], Region] = {}

    def __call__(self, env: Env, index: Any) -> Region:
        """The region for these variables and index tensors; negative sizes count as 0."""
        key = self._numbers(env, index)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            n = len(self.view.sizes)
            sizes = tuple(max(0, int(x)) for x in key[:n])
            strides = tuple(int(x) for x in key[n:-2])
            base = self._bases[int(key[-1]) % len(self._bases)]
            found = Region(self._memory, self.view, base, sizes, strides, int(key[-2]))
            self._known[key] = found
        return found


class Memories:
    """The memories of one core, beside the tensors in GM, which all cores share."""

    def __init__(self, buffers: Iterable[Buffer], gm: Mapping[str, Memory], chip: Chip) -> None:
        """A space is as large as the chip's, or as what a wrong plan puts into it (which is a
        finding of its own)."""
        self._gm = gm
        ends: dict[Space, int] = {}
        units: dict[Space, int] = {}
        self._own: dict[Buffer, Memory] = {}
        for b in buffers:
            item = b.dtype.bytes
            if b.addresses:
                end = max(b.addresses) + _up(b.bytes, BLOCK)
                ends[b.space] = max(ends.get(b.space, chip.capacity[b.space]), end)
                units[b.space] = gcd(units.get(b.space, 0), item, *b.addresses)
            else:
                size = b.slots * _up(b.bytes, _PRIVATE)
                self._own[b] = Memory(b.space, np.empty(size, np.uint8), item)
        self._spaces = {s: Memory(s, np.empty(n, np.uint8), units[s]) for s, n in ends.items()}

    @property
    def all(self) -> tuple[Memory, ...]:
        return (*self._spaces.values(), *self._own.values())

    def poison(self) -> None:
        for m in self.all:
            m.poison()

    def locate(self, view: View) -> Located:
        """Raises KeyError for a buffer that the function does not list."""
        b = view.memory
        if isinstance(b, Gm):
            return Located(view, self._gm[b.name], (0,))
        if b.addresses:
            return Located(view, self._spaces[b.space], b.addresses)
        bases = tuple(i * _up(b.bytes, _PRIVATE) for i in range(b.slots))
        return Located(view, self._own[b], bases)


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
