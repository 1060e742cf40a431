"""A phase, ready to be timed: traces of all its cores, those with the same one as a class, and what
becomes of its traffic. Nothing here hangs on the simulator's constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from terrazzo.errors import KernelError
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.program import CoreFn, Gm, Instr, Phase, Program
from terrazzo.targets.davinci.streams import Addresses, Cache, Streams, Transfers
from terrazzo.targets.davinci.trace import Loop, Node, Tracer

Number = int | float


@dataclass(frozen=True, eq=False)
class Class:
    """Groups of cores that do the same. `members`: for each group the numbers of its cores, one a
    function and half; `fns`: which of the phase's functions each of them runs. `counts`: how often
    each of them does instruction number i."""

    roots: tuple[Node, ...]
    fns: tuple[int, ...]
    members: list[tuple[int, ...]]
    counts: tuple[dict[int, int], ...]
    hot: tuple[dict[Gm, int], ...]


@dataclass(frozen=True, eq=False)
class Prepared:
    phase: Phase
    tracers: tuple[Tracer, ...]
    classes: tuple[Class, ...]
    streams: Streams


def prepare(
    program: Program, chip: Chip, scalars: Mapping[str, Number], tensors: Mapping[str, np.ndarray]
) -> tuple[Prepared, ...]:
    """All phases of a scheduled program. Raises KernelError where one wants more cores than the
    chip has, or is not scheduled."""
    if not program.scheduled:
        raise KernelError(
            f"{program.name} is at the buffer level, which has no time", "schedule it first"
        )
    cache = Cache(chip.l2_bytes)
    prepared = []
    for phase in program.phases:
        for fn in phase.functions:
            if fn.cores > chip.cores(fn.kind):
                raise KernelError(
                    f"{program.name} wants {fn.cores} {fn.kind} cores, {chip.name} has "
                    f"{chip.cores(fn.kind)}",
                    "lower it for this chip",
                )
        tracers = tuple(Tracer(fn, tensors) for fn in phase.functions)
        addresses = [Addresses(t.steps, tensors) for t in tracers]
        roots: list[list[Node]] = []
        found: dict[tuple[str, int], list[Transfers]] = {}
        for fn, tracer, where in zip(phase.functions, tracers, addresses, strict=True):
            envs = [_env(fn, phase, core, scalars) for core in range(fn.cores)]
            roots.append([tracer.trace(env) for env in envs])
            found |= {(fn.kind, env["core"]): where.of(env) for env in envs}
        streams = cache.phase(found)
        prepared.append(Prepared(phase, tracers, _classes(phase, roots, streams), streams))
    cache.close()
    return tuple(prepared)


def _env(fn: CoreFn, phase: Phase, core: int, scalars: Mapping[str, Number]) -> dict[str, Number]:
    env = {**scalars, "core": core}
    if phase.mixed and fn.kind == "vector":
        env["half"] = core % phase.ratio
    return env


def _classes(phase: Phase, roots: list[list[Node]], streams: Streams) -> tuple[Class, ...]:
    kinds = [fn.kind for fn in phase.functions]
    if phase.mixed:
        cube, vector = kinds.index("cube"), kinds.index("vector")
        fns = (cube, *[vector] * phase.ratio)
        groups = [
            (i, *range(i * phase.ratio, (i + 1) * phase.ratio))
            for i in range(phase.functions[cube].cores)
        ]
    else:
        fns, groups = (0,), [(i,) for i in range(len(roots[0]))]
    members: dict[tuple[Node, ...], list[tuple[int, ...]]] = {}
    for group in groups:
        same = tuple(roots[f][core] for f, core in zip(fns, group, strict=True))
        members.setdefault(same, []).append(group)
    made = []
    for same, which in members.items():
        hot = tuple(
            streams.hot.get((kinds[f], core), {}) for f, core in zip(fns, which[0], strict=True)
        )
        made.append(Class(same, fns, which, tuple(map(counts, same)), hot))
    return tuple(made)


def counts(root: Node) -> dict[int, int]:
    """How often each instruction is done below `root`, by its number."""
    known: dict[Node, dict[int, int]] = {}

    def of(node: Node) -> dict[int, int]:
        if node not in known:
            total: dict[int, int] = {}
            for kind, what, _ in node.items:
                if kind == "do":
                    total[what] = total.get(what, 0) + 1
                elif kind == "loop":
                    _add_loop(total, what)
            known[node] = total
        return known[node]

    def _add_loop(total: dict[int, int], loop: Loop) -> None:
        trips: dict[Node, int] = {}
        for node in loop.trips:
            trips[node] = trips.get(node, 0) + 1
        for node, times in trips.items():
            for number, n in of(node).items():
                total[number] = total.get(number, 0) + times * n

    return of(root)


def instruction(tracer: Tracer, number: int) -> Instr:
    return tracer.works[number][0]
