"""Runs core programs with numbers: phases, groups of cores, instructions.

Groups run one after another: a core of a phase with one function, or a cube core with its vector
cores, which take turns where they wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from terrazzo.errors import ArgumentError
from terrazzo.targets.davinci.checking.finding import Finding
from terrazzo.targets.davinci.checking.stuck import blamed
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.numbers.issue import Issuer
from terrazzo.targets.davinci.numbers.items import Indexed, Item
from terrazzo.targets.davinci.numbers.memory import POISON, Memories, Memory, Region
from terrazzo.targets.davinci.numbers.shapes import disagreement
from terrazzo.targets.davinci.numbers.unit import Core
from terrazzo.targets.davinci.numbers.values import execute, row_tails
from terrazzo.targets.davinci.numbers.watch import Watch
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    Gm,
    Instr,
    Phase,
    Program,
    views,
    walk,
)


def run(
    program: Program, chip: Chip, tensors: Mapping[str, Any], scalars: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The tensors (parameters by name; workspaces too) after a launch with these ones, which stay
    as they are. Buffer-level programs run too, whose pipes work in the program's order. Raises
    ArgumentError for a tensor that does not fit, KernelFault for a mistake in the program that
    shows while it runs: a place outside a memory, sizes that disagree, a wait that does not end."""

    def raise_it(f: Finding) -> None:
        raise f.error

    machine = Machine(program, chip, tensors, scalars, raise_it, Watch())
    machine.run()
    return machine.arrays


class Machine:
    """One launch. Mistakes go to `found`; an instruction that cannot be executed, or is to `skip`,
    is left out."""

    def __init__(
        self, program: Program, chip: Chip, tensors: Mapping[str, Any], scalars: Mapping[str, Any],
        found: Callable[[Finding], None], watch: Watch, skip: Collection[Instr] = (),
    ) -> None:  # fmt: skip
        self.program = program
        self.chip = chip
        self.found = found
        self.watch = watch
        self.skip = skip
        self.scalars = {n: scalars[n] for n, _ in program.scalars if n in scalars}
        self.arrays = {g.name: _array(g, tensors) for g in program.gm}
        self.gm = {
            g.name: Memory("GM", self.arrays[g.name].reshape(-1).view(np.uint8), g.dtype.bytes, g)
            for g in program.gm
        }
        for m in self.gm.values():
            if m.gm is not None and m.gm.workspace:
                m.poison()
        self.tensors = {n: Indexed(n, a) for n, a in self.arrays.items()}

    def run(self) -> None:
        with np.errstate(all="ignore"):
            for phase in self.program.phases:
                self._phase(phase)

    def _phase(self, phase: Phase) -> None:
        self.watch.phase(list(self.gm.values()))
        cores: list[Core] = []
        numbers: list[tuple[int, int, int]] = []  # of each: count in a group, its place, limit
        for f in phase.functions:
            each = phase.ratio if phase.mixed and f.kind == "vector" else 1
            for half in range(each):
                memories = Memories(_buffers(f), self.gm, self.chip)
                issuer = Issuer(f, len(cores), memories, self.tensors, self.watch, self.found)
                cores.append(Core(f, len(cores), issuer, self.watch, self.found, self._instr,
                                  not self.program.scheduled))  # fmt: skip
                numbers.append((each, half, f.cores))
        for core in cores:
            core.peers = [c for c in cores if c.f.kind != core.f.kind]
        groups = max((-(-limit // each) for each, _, limit in numbers), default=0)
        for group in range(groups):
            self.watch.group([c.issuer.memories.all for c in cores], group)
            for core, (each, half, _) in zip(cores, numbers, strict=True):
                core.start(each * group + half, half, self.scalars)
            self._group(cores)

    def _group(self, cores: list[Core]) -> None:
        while not all(c.done for c in cores):
            moved = [c.advance() for c in cores]
            if not any(moved):
                self._stuck(cores)
        for core in cores:
            for (src, dst, event), tokens in core.raised.items():
                for _, s in tokens:
                    self.found(Finding(
                        "event", f"event {event}, {src} to {dst}, is still set at the end", "wait"
                        " for it, so that the next kernel finds it down", s.loc))  # fmt: skip
            for (_, flag), tokens in core.flags.items():
                for _, s in tokens:
                    self.found(Finding("flag", f"flag {flag} is still raised at the end", "wait"
                                       " for it as often as it is raised", s.loc))  # fmt: skip

    def _stuck(self, cores: list[Core]) -> None:
        """Every pipe waits: says for what, and goes on as if it had come."""
        longer = [c.reach() for c in cores]
        if any(longer):
            return
        core, item, finding = blamed(cores)
        self.found(finding)
        core.force(item)

    # -- instructions --------------------------------------------------------------------------

    def _instr(self, core: Core, item: Item) -> None:
        s, out = item.s, item.out
        assert out is not None and isinstance(s, Instr)
        if not out.pieces:
            return
        pipe = TABLE[s.op].pipe
        problem = None if s in self.skip else self._problem(s, item)
        if problem is not None:
            self.found(problem)
        if problem is not None or s in self.skip:
            self.watch.refused(core.index, pipe, s, out)
            return
        tail = row_tails(out) if s.op == "load" else None
        self.watch.instr(core.index, pipe, s, out, item.ins, item.temp, tail)
        if item.temp is not None:
            for a in item.temp.arrays:
                a.view(np.uint8)[...] = POISON  # the library's to use
        try:
            execute(s, out, item.ins)
        except ValueError as error:
            self.found(Finding("misuse", str(error), "see isa.TABLE", s.loc))

    def _problem(self, s: Instr, item: Item) -> Finding | None:
        out = item.out
        regions = [x for x in (out, *item.ins, item.temp) if isinstance(x, Region)]
        for r in regions:
            if not _inside(r):
                return _outside(r, s.loc)
        sizes = [x.shape if isinstance(x, Region) else None for x in item.ins]
        text = disagreement(s, regions[0].shape, sizes)
        return (
            Finding("misuse", text, "give the operands sizes that agree", s.loc) if text else None
        )


def _buffers(f: CoreFn) -> list[Buffer]:
    """A function's own, and those of others that it takes for its own (a mistake)."""
    used = (v.memory for s in walk(f.body) if isinstance(s, Instr) for v in views(s))
    return list(dict.fromkeys((*f.buffers, *(m for m in used if isinstance(m, Buffer)))))


def _inside(r: Region) -> bool:
    low, high = r.limits
    return low <= r.low and r.high <= high


def _outside(r: Region, loc: Any) -> Finding:
    m = r.view.memory
    item = m.dtype.bytes
    low, high = r.limits
    first, last = (r.low - low) // item, -(-(r.high - low) // item) - 1
    if isinstance(m, Gm):
        shape = ", ".join(map(str, m.shape))
        text = f"elements {first} to {last} of `{m.name}` [{shape}], which has {high // item}"
        return Finding("bounds", text, "clip the transfer to the tensor", loc)
    text = (f"elements {first} to {last} of the tile `{m.tile or m.name}`, which has room for"
            f" {m.elements} in {m.space}")  # fmt: skip
    return Finding("bounds", text, "clip the operand to the tile, or enlarge the tile", loc)


def _array(g: Gm, tensors: Mapping[str, Any]) -> np.ndarray:
    """A dense copy of the argument for `g`, or a workspace."""
    if g.workspace:
        return np.zeros(g.shape, g.dtype.numpy)
    given = tensors.get(g.name)
    a = None if given is None else np.array(given, order="C")
    if a is None or a.shape != g.shape or a.dtype != g.dtype.numpy:
        got = "nothing" if a is None else f"{a.dtype} {list(a.shape)}"
        raise ArgumentError(f"`{g.name}` is {g.dtype} {list(g.shape)}, and was given {got}")
    return a
