"""Loads through a table of pages: one transfer a page, whose place is a scalar from the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Load
from terrazzo.ir.pages import Paged
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, Value
from terrazzo.targets.davinci.expr import Scalar, add, ceil_div, make, mul, sub, var
from terrazzo.targets.davinci.lowering.tiles import Matrix, Tile
from terrazzo.targets.davinci.program import For, View

if TYPE_CHECKING:
    from terrazzo.targets.davinci.lowering.core import Core
    from terrazzo.targets.davinci.lowering.cube import CubeCore
    from terrazzo.targets.davinci.lowering.vector_core import VectorCore


@dataclass(frozen=True)
class Page:
    """The part of a block that lies in one page: `count` indices of the paged axis, from the
    block's index `first` on; its place in global memory and the stride of each axis there."""

    first: Scalar
    count: Scalar
    offset: Scalar
    strides: dict[str, Scalar]


@contextmanager
def each_page(core: Core, s: Load, p: Paged) -> Iterator[Page]:
    """Statements emitted within run for every page of the axis's block."""
    r = core.e.ranges[p.axis]
    if not _aligned(core, p):
        raise mark(KernelError(
            f"blocks of `{p.axis}` need not begin with a page of {p.page}",
            f"let its loop begin at a multiple of {p.page} and step by one"), s.loc)  # fmt: skip
    name = core.e.name("page")
    first = mul(var(name), p.page)
    offset: Scalar = 0
    strides: dict[str, Scalar] = {}
    for dim, (entry, stride) in enumerate(zip(s.index, core.gm_strides(s.param), strict=True)):
        if dim == p.lane_dim:
            strides[p.axis] = stride  # a page begins with its lane 0
        elif isinstance(entry, Value):
            at = core.numbers.at(entry, {p.axis: first})
            if at is None:
                raise mark(KernelError("the place of a page is not a scalar",
                                       "load it from a table"), s.loc)  # fmt: skip
            offset = add(offset, mul(at, stride))
        else:
            offset = add(offset, mul(core.e.ranges[entry.axis].start, stride))
            strides[entry.axis] = stride
    with core.e.nested() as body:
        yield Page(first, make("min", p.page, sub(r.size, first)), offset, strides)
    pages = ceil_div(r.size, p.page)
    core.e.body.append(For(name, 0, pages, 1, tuple(body), s.loc))


def to_l1(core: CubeCore, s: Load, p: Paged) -> Matrix:
    """A matrix whose rows or columns lie in pages. Columns of a page are whole fractals."""
    dtype = s.result.dtype
    assert isinstance(dtype, DType)
    axes = [p.axis if isinstance(entry, Value) else entry.axis
            for n, entry in enumerate(s.index)
            if n == p.lane_dim or not isinstance(entry, Value)]  # fmt: skip
    m = core.matrix(s.param, dtype, axes[:-1], axes[-1:], core.stages if core.depth else 1)
    across = p.axis in m.columns
    if len(axes) != 2 or (across and p.page % m.c0):
        raise mark(KernelError(
            f"pages of {p.page} along `{p.axis}` of [{', '.join(axes)}] do not fit the Cube's"
            " matrices", f"load two axes, with pages of a multiple of {m.c0}"), s.loc)  # fmt: skip
    row, column = axes
    with each_page(core, s, p) as page:
        if page.strides[column] != 1:
            raise core.across(s, column, page.strides[column])
        count = {a: core.e.ranges[a].size for a in axes} | {p.axis: page.count}
        sizes = (count[row], count[column])
        place = mul(page.first, m.height if across else m.c0)
        to = View(m.buffer, sizes, (m.c0, m.height * m.c0), place, m.slot, m.c0)
        gm = View(core.low.gm[s.param], sizes, (page.strides[row], 1), page.offset)
        core.e.emit("nd2nz", to, gm)
    return m


def to_ub(core: VectorCore, s: Load, p: Paged) -> Tile:
    v = s.result
    tile = core.e.tile(s.param, core.dtype(v), v.axes, core.stages if core.depth else 1)
    own = dict(zip(tile.axes, tile.strides, strict=True))
    with each_page(core, s, p) as page:
        sizes = tuple(page.count if a == p.axis else core.e.ranges[a].size for a in tile.axes)
        to = View(tile.buffer, sizes, tile.strides, mul(page.first, own[p.axis]), tile.slot)
        strides = core.strides(s, tile.axes, page.strides)
        core.e.emit("load", to, View(core.low.gm[s.param], sizes, strides, page.offset))
    return tile


def _aligned(core: Core, p: Paged) -> bool:
    if p.axis not in core.graph.loop_of:
        return p.axis not in core.shifted  # a whole axis begins at 0
    _, v = core.graph.loop_of[p.axis]
    lo = core.numbers.get(v.lo)
    whole = isinstance(lo, int) and lo % p.page == 0 and (v.step or 1) % p.page == 0
    return whole and p.axis not in core.shifted
