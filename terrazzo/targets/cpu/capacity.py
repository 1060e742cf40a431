"""What a kernel keeps in a thread's scratch, tile by tile, for given extents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from terrazzo.ir.graph import Graph
from terrazzo.ir.ops import Kernel, Load, Loc, Op
from terrazzo.ir.types import Value
from terrazzo.targets.cpu.compile import prepare
from terrazzo.targets.cpu.isa import detect
from terrazzo.targets.cpu.nest import Dot, ForLoop, Nest, NestStmt, Program
from terrazzo.targets.cpu.schedule import schedule
from terrazzo.targets.cpu.scratch import Numbers


@dataclass(frozen=True)
class Held:
    """One buffer: extents of its axes, bytes, and where the kernel makes the tile it holds."""

    axes: tuple[tuple[str, int], ...]
    bytes: int
    loc: Loc | None


def holdings(kernel: Kernel, dims: Mapping[str, int]) -> list[Held]:
    """All buffers of a traced kernel, the largest first. Raises KernelError for what this target
    cannot run."""
    program = schedule(prepare(kernel), detect().matrix)
    sizes, graph, made = Numbers(program.kernel, dims), Graph(program.kernel), _tiles(program)
    out: list[Held] = []
    for b in program.bufs:
        axes = tuple((a, int(sizes.room(a))) for a in b.axes)
        out.append(Held(axes, int(sizes.bytes(b)), _loc(graph, made.get(b.name))))
    return sorted(out, key=lambda h: -h.bytes)


def _loc(graph: Graph, v: Value | None) -> Loc | None:
    d = graph.defs.get(v.id) if v is not None else None
    return d.loc if isinstance(d, (Op, Load)) else None


def _tiles(program: Program) -> dict[str, Value]:
    """Of each buffer the first value that it holds."""
    out: dict[str, Value] = {}
    for phase in program.phases:
        for s in (*_walk(phase.before), *_walk(phase.body)):
            if isinstance(s, Nest):
                for r in (r for level in s.levels for r in level.roots):
                    for b in (r.buf, r.packed):
                        if b is not None:
                            out.setdefault(b.name, r.value)
            elif isinstance(s, Dot):
                a, b = s.op.args[-2:]
                for buf, v in ((s.a.buf, a), (s.b.buf, b), (s.c, s.op.result)):
                    if buf is not None:
                        out.setdefault(buf.name, v)
    return out


def _walk(body: tuple[NestStmt, ...]) -> Iterator[NestStmt]:
    for s in body:
        yield s
        if isinstance(s, ForLoop):
            yield from _walk(s.empty)
            yield from _walk(s.body)
