"""Lowering: tile IR with the extents of one launch -> a core program at the buffer level.

A grid becomes a phase. Its statements are walked once for every kind of core that has work in it
(`split.py` decides); each walk emits what is its own, and hands over what the other kind needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from terrazzo.errors import KernelError, OptionError
from terrazzo.ir.graph import Graph
from terrazzo.ir.ops import Expect, Kernel, Loop, LoopVar, Stmt
from terrazzo.ir.passes import pipeline
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.expr import Scalar, add, make, mul, var
from terrazzo.targets.davinci.lowering import cross
from terrazzo.targets.davinci.lowering.bytes import widen
from terrazzo.targets.davinci.lowering.core import Core
from terrazzo.targets.davinci.lowering.cube import CubeCore
from terrazzo.targets.davinci.lowering.grid import GridAxis, balanced, block_range, place
from terrazzo.targets.davinci.lowering.order import axis_order
from terrazzo.targets.davinci.lowering.scalars import Scalars
from terrazzo.targets.davinci.lowering.split import Split, split
from terrazzo.targets.davinci.lowering.tiles import Range
from terrazzo.targets.davinci.lowering.vector_core import VectorCore
from terrazzo.targets.davinci.program import CoreFn, CoreKind, For, Gm, Phase, Program
from terrazzo.targets.davinci.scheduling.schedule import fits

CHUNKS = (
    2,
    4,
    8,
    16,
)  # parts of a vector core's share of a block: as few as fit UB, if the whole does not


@dataclass(frozen=True)
class Options:
    """How to lower. balance: even out a grid's blocks over the cores (steps are upper bounds).
    swizzle: see `grid.place`. cores: cube cores to use (None: all; a kernel without products uses
    `vector_cores` or all). ratio: vector cores beside a cube core. ahead: trips that a mixed loop's
    products run ahead. slots: buffers for what a grid's blocks load. part: indices of the axis that
    vector cores share which one takes at a time, in a kernel with products (None: its whole share,
    or as much as fits UB). bypass: tensors streamed past the L2 cache."""

    balance: bool = True
    swizzle: int = 1
    cores: int | None = None
    vector_cores: int | None = None
    ratio: int = 2
    ahead: int = 3
    slots: int = 2
    part: int | None = None
    bypass: frozenset[str] = frozenset()


@dataclass
class Lowering:
    """What the walks of one kernel share."""

    kernel: Kernel
    dims: Mapping[str, int]
    chip: Chip
    options: Options
    graph: Graph
    gm: dict[str, Gm]
    order: Mapping[str, int]
    workspaces: list[Gm] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def most(self, v: LoopVar) -> int:
        """Indices of a trip at most. A dim that only loops have, no tensor, has no extent."""
        step = v.step or 1
        return min(step, self.dims.get(v.dim, step))


def lower(
    kernel: Kernel, dims: Mapping[str, int], chip: Chip, options: Options | None = None
) -> Program:
    """The buffer-level program of a specialised kernel for extents `dims`. Raises KernelError, with
    the line, for what this target cannot do."""
    options = options or Options()
    kernel = widen(kernel)  # first: simplify joins its casts with those of the kernel
    for _, step in pipeline():
        kernel = step(kernel)
    gm: dict[str, Gm] = {}
    for p in kernel.params:
        if not p.tensor:
            continue
        if not isinstance(p.dtype, DType):
            raise mark(
                KernelError(
                    f"parameter `{p.name}` is {p.dtype}, which this target does not decode",
                    "use plain types, or unpack the bytes in the kernel",
                ),
                p.loc,
            )
        l2 = "bypass" if p.name in options.bypass else "normal"
        gm[p.name] = Gm(p.name, p.dtype, tuple(dims[d] for d in p.dims), False, l2, p.loc)
    low = Lowering(kernel, dims, chip, options, Graph(kernel), gm, axis_order(kernel))
    before: list[Stmt] = []
    phases: list[Phase] = []
    for s in kernel.body:
        if isinstance(s, Loop) and s.kind == "grid":
            phases.append(_phase(low, tuple(before), s))
        elif isinstance(s, Expect):
            raise mark(KernelError("`tz.expect` is not checked on this target"), s.loc)
        else:
            before.append(s)
    if not phases:
        raise KernelError(f"`{kernel.name}` has no grid", "give the work to the cores by tz.grid")
    scalars = tuple(
        (p.name, p.dtype) for p in kernel.params if not p.tensor and isinstance(p.dtype, DType)
    )
    return Program(
        kernel.name, (*gm.values(), *low.workspaces), scalars, tuple(phases), False,
        tuple(low.notes),
    )  # fmt: skip


def _phase(low: Lowering, before: tuple[Stmt, ...], grid: Loop) -> Phase:
    parts = split(low.graph, (*before, *grid.body))
    numbers = Scalars(low.graph, low.dims, {})
    for s in before:
        numbers.statement(s)
    axes = [
        GridAxis(v.name, numbers.get(v.lo), numbers.get(v.hi), v.step, low.dims[v.dim])
        for v in grid.vars
    ]
    o = low.options
    mixed = bool(parts.cube) and parts.vector
    vectors = o.vector_cores or low.chip.vector_cores
    cubes = o.cores or low.chip.cube_cores
    if o.balance and not parts.cube:
        axes = list(balanced(axes, vectors, _granule(low.kernel, grid)))
    total: Scalar = 1
    for a in axes:
        total = mul(total, a.blocks)
    if o.part and mixed and not cross.chunkable(parts, grid):
        raise OptionError(
            "option part: this kernel's vector cores work inside of its loops", "leave it out"
        )
    crossing = cross.plan(low, parts, grid, axes, cubes) if mixed else {}
    kinds: list[tuple[CoreKind, int]] = []
    if parts.cube:
        kinds.append(("cube", cubes))
    if parts.vector:
        kinds.append(("vector", o.ratio * cubes if mixed else vectors))
    functions = []
    for kind, cores in kinds:
        make = partial(_function, low, parts, before, grid, axes, total, kind, cores, crossing)
        made = make(1)
        parted = kind == "vector" and mixed and cross.chunkable(parts, grid)
        if parted and not o.part and not fits(made, low.chip):
            made = next((f for f in map(make, CHUNKS) if fits(f, low.chip)), made)
        functions.append(made)
    return Phase(tuple(functions), o.ratio)


def _function(
    low: Lowering,
    parts: Split,
    before: tuple[Stmt, ...],
    grid: Loop,
    axes: list[GridAxis],
    total: Scalar,
    kind: CoreKind,
    cores: int,
    crossing: Mapping[int, cross.Crossing],
    chunks: int,
) -> CoreFn:
    ratio = low.options.ratio if crossing else 1
    group = var("core") if kind == "cube" or not crossing else make("div", var("core"), ratio)
    groups = cores if kind == "cube" or not crossing else cores // ratio
    make_core: type[Core] = CubeCore if kind == "cube" else VectorCore
    core = make_core(low, parts, crossing, group)
    for a in (x for x in low.kernel.axes if not x.block):
        extent = low.dims[a.dim]
        core.set_range(a.name, Range(0, extent, extent))
    core.enter(before)
    core.depth = 1
    with core.e.nested() as body:
        numbers = place(axes, var("block"), low.options.swizzle)
        for v, a, number in zip(grid.vars, axes, numbers, strict=True):
            if v.var is not None:
                core.numbers.set(v.var, add(a.lo, number))
            else:
                core.set_range(v.name, block_range(a, number))
        axis, part = None, low.options.part
        if kind == "vector" and crossing:
            axis = cross.halve(core, parts, grid, ratio)
        if axis is not None and (chunks > 1 or part):
            cap = core.e.ranges[axis].cap
            cross.chunked(core, grid.body, axis, min(part or -(-cap // chunks), cap))
        else:
            core.block(grid.body)
    loop = For("block", group, total, groups, tuple(body), grid.loc)
    whole = (*core.prologue, *core.e.body, *core.credits(), loop, *core.drains())
    return CoreFn(kind, whole, tuple(core.e.buffers), cores)


def _granule(kernel: Kernel, grid: Loop) -> int:
    """Indices that a block should be a multiple of: whole 512-byte lines where the blocked axis is
    some tensor's innermost."""
    for v in grid.vars:
        for p in kernel.params:
            if p.tensor and p.dims and p.dims[-1] == v.dim and isinstance(p.dtype, DType):
                return 512 // p.dtype.bytes
    return 1
