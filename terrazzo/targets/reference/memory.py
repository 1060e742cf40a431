"""Global memory of one launch: binds parameters, loads and stores tiles, checks every access.

An access outside a parameter's bounds is always an error. With `check` on, each parameter also has
a boolean shadow (True = initialised): a load that meets an element never written is an error. A
parameter that the kernel's text stores to before it loads from it starts out uninitialised, every
other initialised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from terrazzo.errors import ArgumentError
from terrazzo.ir import formats
from terrazzo.ir.graph import index_axes, walk
from terrazzo.ir.ops import Kernel, Load, Loc, Param, Store
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import Format, Value
from terrazzo.targets.reference.faults import fault

Array = np.ndarray


@dataclass(frozen=True)
class PackedTile:
    """A tile of a packed format: `shape` in values, `data` the u8 bytes of its rows."""

    format: Format
    shape: tuple[int, ...]
    data: Array


Tile = Array | PackedTile


@dataclass(frozen=True)
class Extent:
    """What an axis currently covers: `size` indices from `start` of its dimension."""

    start: int
    size: int


def bind_dims(kernel: Kernel, tensors: Mapping[str, Array | Packed]) -> dict[str, int]:
    """Extents of all named dims, from the kernel's statics and the tensors' shapes.

    Raises ArgumentError for a missing tensor, a wrong dtype or format, a wrong rank, or extents of
    one dim that disagree.
    """
    dims = dict(kernel.statics)
    said_by = dict.fromkeys(dims, "the kernel's own definition")
    for p in kernel.params:
        if not p.tensor:
            continue
        if p.name not in tensors:
            raise ArgumentError(f"{kernel.name}: tensor `{p.name}` is missing")
        shape = _shape_of(kernel, p, tensors[p.name])
        for dim, size in zip(p.dims, shape, strict=True):
            if dims.setdefault(dim, size) != size:
                raise ArgumentError(
                    f"{kernel.name}: `{p.name}` has {size} along `{dim}`, "
                    f"{said_by[dim]} has {dims[dim]}"
                )
            said_by.setdefault(dim, f"`{p.name}`")
    return dims


def _shape_of(kernel: Kernel, p: Param, t: Array | Packed) -> tuple[int, ...]:
    got = t.format if isinstance(t, Packed) else t.dtype
    want = p.dtype if isinstance(p.dtype, Format) else p.dtype.numpy
    if got != want:
        raise ArgumentError(f"{kernel.name}: `{p.name}` is {got}, expected {p.dtype}")
    if isinstance(p.dtype, Format) and p.dtype.layout:
        raise ArgumentError(
            f"{kernel.name}: `{p.name}` has layout {p.dtype.layout}; the reference target reads "
            "rows of the format's own blocks",
            "give the tensor as it was before repacking",
        )
    if len(t.shape) != len(p.dims):
        raise ArgumentError(
            f"{kernel.name}: `{p.name}` has {len(t.shape)} dimensions, "
            f"expected {len(p.dims)} ({', '.join(p.dims)})"
        )
    return tuple(t.shape)


class Memory:
    """The tensors of a launch. `value_of` gives the run-time array of an index Value."""

    def __init__(
        self,
        kernel: Kernel,
        tensors: Mapping[str, Array | Packed],
        extents: Mapping[str, Extent],
        value_of: Callable[[Value], Array],
        initialised: Mapping[str, Array | bool],
        check: bool,
    ) -> None:
        self.kernel = kernel
        self.tensors = tensors
        self.extents = extents
        self.value_of = value_of
        self.shadow: dict[str, Array] = {}
        if check:
            access = [s for s in walk(kernel.body) if isinstance(s, Load | Store)]
            for name in {s.param for s in access if isinstance(s, Load)}:
                kinds = [isinstance(s, Load) for s in access if s.param == name]
                if name in initialised or not all(kinds):  # else nothing of it can be uninitialised
                    self.shadow[name] = _shadow(tensors[name], initialised.get(name, kinds[0]))

    def load(self, s: Load) -> Tile:
        """The tile that `s` reads. KernelError: out of bounds, or an element never written."""
        t, param = self.tensors[s.param], self.kernel.param(s.param)
        data = t.data if isinstance(t, Packed) else t
        where = self._resolve(s, param, t, "load of")
        if (shadow := self.shadow.get(s.param)) is not None and not shadow[where].all():
            self._uninitialised(s, shadow, where)
        tile = np.array(data[where])
        if not isinstance(t, Packed):
            return tile
        return PackedTile(t.format, (*tile.shape[:-1], self.extents[s.result.axes[-1]].size), tile)

    def store(self, s: Store, value: Tile, axes: tuple[str, ...]) -> None:
        """Write `value`, whose axes are `axes`, broadcast by name over the axes of the index."""
        t, param = self.tensors[s.param], self.kernel.param(s.param)
        where = self._resolve(s, param, t, "store to")
        array = value.data if isinstance(value, PackedTile) else value
        (t.data if isinstance(t, Packed) else t)[where] = by_name(array, axes, index_axes(s))
        if (shadow := self.shadow.get(s.param)) is not None:
            shadow[where] = True

    def _resolve(
        self, s: Load | Store, p: Param, t: Array | Packed, what: str
    ) -> tuple[Array | slice | int, ...]:
        """The NumPy index of the entries, each checked against its dimension."""
        loc = s.loc
        out: list[Array | slice | int] = []
        what = f"{what} `{p.name}`"
        for d, (entry, dim, bound) in enumerate(zip(s.index, p.dims, t.shape, strict=True)):
            row_of = t if isinstance(t, Packed) and d == len(t.shape) - 1 else None
            if isinstance(entry, Value):
                if row_of is not None:
                    raise fault(loc, f"{what} takes single values of packed `{dim}`",
                                "load the whole axis or blocks of it")  # fmt: skip
                i = np.asarray(self.value_of(entry))
                _check_values(i, loc, what, dim, d, bound)
                out.append(i if i.ndim else int(i))
                continue
            e = self.extents[entry.axis]
            lo, hi = e.start, e.start + e.size
            if lo < 0 or hi > bound:
                raise fault(
                    loc,
                    f"{what} is out of bounds: `{entry.axis}` covers {lo}..{hi - 1} of dimension "
                    f"{d} (`{dim}`), valid are 0..{bound - 1}",
                    "check the bounds of the loop",
                )
            out.append(slice(lo, hi) if row_of is None else _row_bytes(row_of, lo, hi, loc, what))
        if any(isinstance(e, Array) for e in out):
            return self._mesh(s, out)
        return tuple(out)

    def _mesh(self, s: Load | Store, out: list[Array | slice | int]) -> tuple[Array | int, ...]:
        """All entries as index arrays that broadcast, by axis name, to the index's own axes."""
        axes = index_axes(s)
        mesh: list[Array | int] = []
        for entry, i in zip(s.index, out, strict=True):
            own = entry.axes if isinstance(entry, Value) else (entry.axis,)
            points = np.arange(i.start, i.stop) if isinstance(i, slice) else i
            mesh.append(by_name(points, own, axes) if isinstance(points, Array) else points)
        return tuple(mesh)

    def _uninitialised(
        self, s: Load, shadow: Array, where: tuple[Array | slice | int, ...]
    ) -> None:
        bad = ~shadow[where]
        places = np.moveaxis(np.indices(shadow.shape), 0, -1)[where][bad]
        first = ", ".join(str(i) for i in places[0])
        raise fault(
            s.loc,
            f"load of `{s.param}` reads {int(bad.sum())} of {bad.size} elements that were never "
            f"written, first `{s.param}[{first}]`",
            "store them in an earlier grid of the kernel, or pass initialised memory",
        )


def by_name(x: Array, axes: tuple[str, ...], over: tuple[str, ...]) -> Array:
    """`x` with its axes in the order they have in `over` and length 1 where it lacks one."""
    if axes == over or x.ndim == 0:
        return x
    order = sorted(range(len(axes)), key=lambda i: over.index(axes[i]))
    have = iter(np.transpose(x, order).shape)
    return np.transpose(x, order).reshape([next(have) if a in axes else 1 for a in over])


def _shadow(t: Array | Packed, known: Array | bool) -> Array:
    shape = t.data.shape if isinstance(t, Packed) else t.shape
    return np.array(np.broadcast_to(np.asarray(known, dtype=np.bool_), shape))


def _check_values(i: Array, loc: Loc | None, what: str, dim: str, d: int, bound: int) -> None:
    bad = (i < 0) | (i >= bound)
    if bad.any():
        worst = int(i[bad].reshape(-1)[0]) if i.ndim else int(i)
        count = f" ({int(bad.sum())} of {i.size} indices)" if i.ndim else ""
        raise fault(
            loc,
            f"{what} is out of bounds: index {worst} in dimension {d} (`{dim}`), "
            f"valid are 0..{bound - 1}{count}",
            "check the index values or the table they come from",
        )


def _row_bytes(t: Packed, lo: int, hi: int, loc: Loc | None, what: str) -> slice | Array:
    """Where values lo..hi-1 of a packed row lie in its bytes."""
    k, group = t.shape[-1], t.format.group
    if lo % group or hi % group:
        raise fault(
            loc,
            f"{what} takes {lo}..{hi - 1} of a {t.format} row, whose groups hold {group}",
            f"use a step that is a multiple of {group}",
        )
    if (lo, hi) == (0, k):
        return slice(0, t.data.shape[-1])
    if t.format.name == "a8":  # planes a row: values, scales, sums
        scales = k + np.arange(lo // 16 * 4, hi // 16 * 4)
        sums = k + k // 16 * 4 + np.arange(lo // 32 * 4, hi // 32 * 4)
        return np.concatenate([np.arange(lo, hi), scales, sums])
    return slice(formats.bytes_per_row(t.format, lo), formats.bytes_per_row(t.format, hi))
