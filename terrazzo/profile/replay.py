"""Walks through a core function: what a core executes, in order, and how often each instruction.

Values of scalar parameters and index tensors are taken from `Inputs`; a program that reads one that
is not there raises KeyError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from terrazzo.targets.davinci.expr import Scalar, compiled
from terrazzo.targets.davinci.program import CoreFn, For, If, Instr, Let, Phase, Stmt, View


@dataclass(frozen=True)
class Inputs:
    """What a launch's scalars depend on: scalar parameters, and index tensors as arrays."""

    scalars: Mapping[str, Any] = field(default_factory=dict)
    indices: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Use:
    """An instruction of a core function as its first execution on core 0 finds it.

    `loops`: around it, outer first. `times`: how often the core executes it, as the first trip of
    each loop says. `sizes`: of the output; `sources`: the sizes of the inputs that are views.
    """

    instr: Instr
    fn: CoreFn
    loops: tuple[For, ...]
    times: int
    sizes: tuple[int, ...]
    sources: tuple[tuple[int, ...], ...]
    env: Mapping[str, Any]

    @property
    def elements(self) -> int:
        """Of the output, or of the largest source where that is more (a reduction)."""
        return max(_product(s) for s in (self.sizes, *self.sources))


@lru_cache(maxsize=4096)
def _compiled(e: Scalar) -> Any:
    return compiled(e)


def value(e: Scalar, env: Mapping[str, Any], inputs: Inputs) -> Any:
    if isinstance(e, (int, float)):
        return e
    return _compiled(e)(env, inputs.indices)


def start(core: int, phase: Phase, fn: CoreFn, inputs: Inputs) -> dict[str, Any]:
    """The variables that a core begins with."""
    half = core % 2 if phase.mixed and phase.ratio == 2 and fn.kind == "vector" else 0
    return {**inputs.scalars, "core": core, "half": half}


def replay(body: tuple[Stmt, ...], env: dict[str, Any], inputs: Inputs) -> Iterator[Instr]:
    """Every instruction in the order that the core meets them; `env` has the variables then."""
    for s in body:
        if isinstance(s, Instr):
            yield s
        elif isinstance(s, Let):
            env[s.name] = value(s.value, env, inputs)
        elif isinstance(s, For):
            lo, hi, step = (value(e, env, inputs) for e in (s.lo, s.hi, s.step))
            for at in range(lo, hi, step):
                env[s.var] = at
                yield from replay(s.body, env, inputs)
        elif isinstance(s, If) and value(s.condition, env, inputs):
            yield from replay(s.body, env, inputs)


def trips(loop: For, env: Mapping[str, Any], inputs: Inputs) -> int:
    lo, hi, step = (value(e, env, inputs) for e in (loop.lo, loop.hi, loop.step))
    return len(range(lo, hi, step))


def uses(phase: Phase, fn: CoreFn, inputs: Inputs) -> list[Use]:
    """Every instruction of `fn`, each once: core 0, the first trip of every loop. Both branches of
    a condition count as executed; a loop without trips counts none."""
    out: list[Use] = []
    env = start(0, phase, fn, inputs)

    def walk(body: tuple[Stmt, ...], loops: tuple[For, ...], times: int) -> None:
        for s in body:
            if isinstance(s, Instr):
                sizes = tuple(value(x, env, inputs) for x in s.out.sizes)
                ins = (v for v in s.ins if isinstance(v, View))
                sources = tuple(tuple(value(x, env, inputs) for x in v.sizes) for v in ins)
                out.append(Use(s, fn, loops, times, sizes, sources, dict(env)))
            elif isinstance(s, Let):
                env[s.name] = value(s.value, env, inputs)
            elif isinstance(s, For):
                count = trips(s, env, inputs)
                env[s.var] = value(s.lo, env, inputs)
                walk(s.body, (*loops, s), times * count)
            elif isinstance(s, If):
                walk(s.body, loops, times)

    walk(fn.body, (), 1)
    return out


def _product(sizes: tuple[int, ...]) -> int:
    out = 1
    for size in sizes:
        out *= size
    return out
