"""Cores that do the same: traced one by one, simulated once a class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from terrazzo.errors import KernelError
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.program import CoreFn, CoreKind, Phase, Program
from terrazzo.targets.davinci.timing.constants import DEFAULT
from terrazzo.targets.davinci.timing.cost import work
from terrazzo.targets.davinci.timing.trace import Tracer
from terrazzo.targets.davinci.timing.traffic import Chunks, chunks

Number = int | float


@dataclass(eq=False)
class Class:
    """Groups of cores that do the same. `members`: for each group the numbers of its cores, a cube
    core first. `fns`, `roots`: the function that each runs and its trace."""

    fns: tuple[TracedFn, ...]
    roots: tuple[int, ...]
    members: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.members)


@dataclass(eq=False)
class TracedFn:
    fn: CoreFn
    tracer: Tracer
    chunks: tuple[Chunks, ...]


def trace(
    program: Program, chip: Chip, scalars: Mapping[str, Number], tensors: Mapping[str, np.ndarray]
) -> tuple[tuple[Class, ...], ...]:
    """The classes of every phase of a scheduled program. They serve any constants."""
    if not program.scheduled:
        raise KernelError(
            f"{program.name} is at the buffer level, which has no time", "schedule it first"
        )
    return tuple(_classes(program, phase, chip, scalars, tensors) for phase in program.phases)


def _classes(
    program: Program, phase: Phase, chip: Chip, scalars: Mapping[str, Number],
    tensors: Mapping[str, np.ndarray],
) -> tuple[Class, ...]:  # fmt: skip
    fns: list[TracedFn] = []
    roots: dict[CoreKind, list[int]] = {}
    for fn in phase.functions:
        if fn.cores > chip.cores(fn.kind):
            raise KernelError(
                f"{program.name} wants {fn.cores} {fn.kind} cores, {chip.name} has "
                f"{chip.cores(fn.kind)}",
                "lower it for this chip",
            )
        tracer = Tracer(fn, tensors, lambda i, shapes: work(i, shapes, DEFAULT, DEFAULT.fix_store))
        envs = [{**scalars, "core": i, "half": i % phase.ratio} for i in range(fn.cores)]
        moved = tuple(chunks(fn, envs, tensors))
        fns.append(TracedFn(fn, tracer, moved))
        roots[fn.kind] = [tracer.trace(env) for env in envs]
    fns.sort(key=lambda f: f.fn.kind)  # the cube first
    own = (fns[0], *[fns[1]] * phase.ratio) if phase.mixed else (fns[0],)
    found: dict[tuple[int, ...], Class] = {}
    for first in range(fns[0].fn.cores):
        second = range(first * phase.ratio, (first + 1) * phase.ratio) if phase.mixed else ()
        members = (first, *second)
        same = tuple(roots[f.fn.kind][m] for f, m in zip(own, members, strict=True))
        found.setdefault(same, Class(own, same)).members.append(members)
    return tuple(found.values())
