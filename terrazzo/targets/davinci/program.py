"""The core program: what runs on the cube and vector cores of a DaVinci chip.

One structure serves two levels. At the *buffer level* an instruction works on whole tiles in named
buffers, buffers have no address, and nothing synchronises; it is what AscendNPU-IR text is printed
from. At the *scheduled level* buffers have addresses, `mmad_l1` is expanded into moves to L0A/L0B
and `mmad`, and `SetFlag`/`WaitFlag` order the pipes; it is what is simulated and checked. A program
read back from the vendor's compiler is at the scheduled level too.

Extents are those of one launch (a profile and a compile always know them): numbers, or expressions
where tails, index tensors and loop variables come in. Sizes, strides and offsets count elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from terrazzo.ir.ops import Loc
from terrazzo.ir.types import DType
from terrazzo.targets.davinci.expr import Scalar

Space = Literal["GM", "UB", "L1", "L0A", "L0B", "L0C"]
Pipe = Literal["S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"]
CoreKind = Literal["cube", "vector"]


@dataclass(frozen=True, eq=False)
class Gm:
    """A tensor in global memory: a parameter of the kernel, or a workspace that we allocate.

    `shape` is that of this launch, row-major and dense. `l2`: "normal", or "bypass" for data that
    is streamed past the L2 cache.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    workspace: bool = False
    l2: Literal["normal", "bypass"] = "normal"
    loc: Loc | None = None


@dataclass(frozen=True, eq=False)
class Buffer:
    """A tile's memory on the core. `elements` of `dtype` a slot, layout included; `slots` of them,
    for a loop that loads ahead. `addresses`: the slots' first bytes in `space` (scheduled level),
    or () before they are known. `tile`: what the author calls it, for messages."""

    name: str
    space: Space
    dtype: DType
    elements: int
    slots: int = 1
    addresses: tuple[int, ...] = ()
    tile: str = ""
    loc: Loc | None = None

    @property
    def bytes(self) -> int:
        """Of one slot."""
        return -(-self.elements * self.dtype.bits // 8)


@dataclass(frozen=True)
class View:
    """A part of a memory: element (i, j, …) lies at offset + Σ index · stride.

    A stride of 0 repeats (a broadcast operand). `fractal` c0 > 0 marks the NZ layout of two
    dimensions [rows, columns]: element (r, c) lies at
    offset + r · strides[0] + (c // c0) · strides[1] + c % c0; rows are padded to multiples of 16.
    `slot`: which of the buffer's slots, counted modulo their number.
    """

    memory: Buffer | Gm
    sizes: tuple[Scalar, ...]
    strides: tuple[Scalar, ...]
    offset: Scalar = 0
    slot: Scalar = 0
    fractal: int = 0

    @property
    def dtype(self) -> DType:
        return self.memory.dtype

    @property
    def space(self) -> Space:
        return "GM" if isinstance(self.memory, Gm) else self.memory.space


Operand = View | Scalar


@dataclass(frozen=True, eq=False)
class Instr:
    """One instruction of `isa.TABLE`: `out` = op(ins). Views of one instruction have the same
    number of dimensions, sizes that agree or are 1 (see the table for moves, reductions, cube).

    `attrs`: what else the table's entry asks for, by name. `loc`: the kernel's line it comes from.
    """

    op: str
    out: View
    ins: tuple[Operand, ...]
    attrs: tuple[tuple[str, object], ...] = ()
    loc: Loc | None = None

    def attr(self, name: str, default: object = None) -> object:
        return dict(self.attrs).get(name, default)


@dataclass(frozen=True, eq=False)
class SetFlag:
    """Pipe `src` raises `event` for pipe `dst` when all it was given so far is done."""

    src: Pipe
    dst: Pipe
    event: Scalar
    loc: Loc | None = None


@dataclass(frozen=True, eq=False)
class WaitFlag:
    """Pipe `dst` starts nothing further until `src` has raised `event`, which is lowered by it."""

    src: Pipe
    dst: Pipe
    event: Scalar
    loc: Loc | None = None


@dataclass(frozen=True, eq=False)
class PipeBarrier:
    """Nothing further on `pipe` starts before all it was given is done ("ALL": on any pipe)."""

    pipe: Pipe | Literal["ALL"]
    loc: Loc | None = None


@dataclass(frozen=True, eq=False)
class CrossSet:
    """When `pipe` is done with all it was given: flag `flag` counts up on the cores of the other
    kind in this core's group (one cube core and its vector cores)."""

    flag: Scalar
    pipe: Pipe
    loc: Loc | None = None


@dataclass(frozen=True, eq=False)
class CrossWait:
    """`pipe` starts nothing further until flag `flag` is above zero on this core; counts it down. A
    cube core waits for every vector core of its group, which count apart."""

    flag: Scalar
    pipe: Pipe
    loc: Loc | None = None


@dataclass(frozen=True, eq=False)
class Let:
    """Sets the scalar variable `name`; it may be set again (a counter)."""

    name: str
    value: Scalar
    loc: Loc | None = None


@dataclass(frozen=True, eq=False)
class For:
    """body for var = lo, lo + step, … below hi."""

    var: str
    lo: Scalar
    hi: Scalar
    step: Scalar
    body: tuple[Stmt, ...]
    loc: Loc | None = None


@dataclass(frozen=True, eq=False)
class If:
    """body where condition is not 0."""

    condition: Scalar
    body: tuple[Stmt, ...]
    loc: Loc | None = None


Stmt = Instr | SetFlag | WaitFlag | PipeBarrier | CrossSet | CrossWait | Let | For | If


@dataclass(frozen=True, eq=False)
class CoreFn:
    """What every core of a kind runs. `cores` of them take part; each knows itself by var("core"),
    vector cores of a mixed phase also by var("half") (core = 2 · the cube core's + half)."""

    kind: CoreKind
    body: tuple[Stmt, ...]
    buffers: tuple[Buffer, ...]
    cores: int


@dataclass(frozen=True, eq=False)
class Phase:
    """Functions that run at the same time: one, or a cube and a vector function of `cores` and
    (ratio ·) `cores` cores that exchange data through GM. Between phases all cores meet."""

    functions: tuple[CoreFn, ...]
    ratio: int = 2  # vector cores beside a cube core, of a mixed phase

    @property
    def mixed(self) -> bool:
        return len(self.functions) > 1


@dataclass(frozen=True, eq=False)
class Program:
    """A launch. `scalars`: names and types of scalar parameters, in the kernel's order."""

    name: str
    gm: tuple[Gm, ...]
    scalars: tuple[tuple[str, DType], ...]
    phases: tuple[Phase, ...]
    scheduled: bool = False
    notes: tuple[str, ...] = field(default=())  # decisions worth telling the author


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, outer before inner, in order."""
    for s in body:
        yield s
        if isinstance(s, (For, If)):
            yield from walk(s.body)


def views(s: Instr) -> Iterator[View]:
    """Output first, then the inputs that are views."""
    yield s.out
    yield from (v for v in s.ins if isinstance(v, View))


def with_views(body: tuple[Stmt, ...], change: Callable[[View], View]) -> tuple[Stmt, ...]:
    """`body` with every operand that is a view changed."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, (For, If)):
            s = replace(s, body=with_views(s.body, change))
        elif isinstance(s, Instr):
            ins = tuple(change(x) if isinstance(x, View) else x for x in s.ins)
            s = replace(s, out=change(s.out), ins=ins)
        out.append(s)
    return tuple(out)
