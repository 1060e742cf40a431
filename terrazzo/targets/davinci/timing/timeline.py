"""What the timing simulation found out about one launch: the figures every report is made from.

Times are cycles of the chip's core clock unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from terrazzo.ir.ops import Loc
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.program import CoreKind, Pipe


@dataclass(frozen=True)
class Span:
    """One instruction on one core's pipe: it was issued at `start` and complete at `end` (a read of
    global memory frees its pipe before the data has arrived). `waited`: how long the pipe stood
    idle before it, and `on`: the pipe it waited for ("" if it did not; "S" for the core's own
    order; "cube" or "vector" for cores of the other kind). `moved`: bytes."""

    core: int  # number among the cores of its kind
    kind: CoreKind
    pipe: Pipe
    op: str
    start: float
    end: float
    waited: float = 0.0
    on: str = ""
    moved: int = 0
    loc: Loc | None = None


@dataclass(frozen=True)
class Arrow:
    """A flag raised by one instruction and waited for by another: a timeline's flow arrows."""

    kind: CoreKind
    core: int
    src: Pipe
    dst: Pipe
    raised: float
    taken: float
    to_core: int | None = None  # another core's, of the other kind (a cross-core flag)


@dataclass(frozen=True)
class PipeUse:
    """A pipe over all cores of a kind: `busy` is the mean over the cores that take part, of the
    time some instruction is between issue and completion; `waits`: mean cycles it stood idle, by
    the pipe it waited for."""

    kind: CoreKind
    pipe: Pipe
    busy: float
    instructions: float  # a core's
    moved: float  # bytes, a core's
    waits: dict[str, float]


@dataclass(frozen=True)
class LineUse:
    """Cycles a source line's instructions keep each pipe busy, mean over the cores of the kind."""

    loc: Loc
    kind: CoreKind
    pipes: dict[str, float]


@dataclass(frozen=True)
class Timeline:
    """The launch. `cycles` is the slowest core's, without the launch itself (`launch_us`).

    spans and arrows: of one core of each class, the first `window` cycles at least (a long loop
    that repeats itself is not replayed). traffic: bytes by path ("GM->UB", "GM->L1", "UB->GM",
    "L0C->GM", "L1->L0A" …) over all cores; `hbm_bytes`: those that reach device memory. flops: 2 a
    multiply-add of the cube. vector_flops: 1 an element and V instruction. throttle: the factor by
    which shared bandwidth slowed every transfer down (1: not at all). conflicts: cycles the vector
    units lost to bank conflicts, a core's.
    """

    chip: Chip
    name: str
    cycles: float
    launch_us: float
    cores: dict[CoreKind, int]
    pipes: tuple[PipeUse, ...]
    lines: tuple[LineUse, ...]
    spans: tuple[Span, ...]
    arrows: tuple[Arrow, ...]
    traffic: dict[str, float]
    hbm_bytes: float
    flops: float
    vector_flops: float
    cube_bits: int  # of the cube's input elements, 0 without a cube
    throttle: float
    conflicts: float

    @property
    def us(self) -> float:
        """Predicted time of the whole task in microseconds."""
        return self.cycles / self.chip.mhz + self.launch_us

    @property
    def tflops(self) -> float:
        return (self.flops or self.vector_flops) / self.us / 1e6

    def pipe(self, kind: CoreKind, pipe: Pipe) -> PipeUse | None:
        return next((p for p in self.pipes if p.kind == kind and p.pipe == pipe), None)

    def ratio(self, kind: CoreKind, pipe: Pipe) -> float:
        """A pipe's share of the time that its cores ran, 0 for one that was not used."""
        use = self.pipe(kind, pipe)
        return use.busy / self.cycles if use and self.cycles else 0.0
