"""Runs a core program with numbers, one instruction after another, cores in turn: a small and slow
oracle. Flags within a core are counted (a wait for one that nobody raised is an error), flags
between cores switch from one core to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from terrazzo.ir.types import bf16
from terrazzo.targets.davinci.chips import CAPACITY
from terrazzo.targets.davinci.expr import Scalar, compiled
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    CrossSet,
    CrossWait,
    For,
    Gm,
    If,
    Instr,
    Let,
    Phase,
    Program,
    SetFlag,
    Stmt,
    View,
    WaitFlag,
)

Array = np.ndarray


def run(program: Program, tensors: dict[str, Array], scalars: dict[str, Any]) -> None:
    """All phases, in place on `tensors` (by name; workspaces are made here)."""
    memory = dict(tensors)
    for g in program.gm:
        if g.workspace:
            memory[g.name] = np.full(
                g.shape, np.nan if g.dtype.kind == "float" else 77, g.dtype.numpy
            )
    for phase in program.phases:
        _phase(phase, memory, scalars)


def _phase(phase: Phase, gm: dict[str, Array], scalars: dict[str, Any]) -> None:
    groups: dict[int, list[Core]] = {}
    for f in phase.functions:
        for i in range(f.cores):
            vector = phase.mixed and f.kind == "vector"
            group, half = divmod(i, phase.ratio) if vector else (i, 0)
            groups.setdefault(group, []).append(Core(f, i, half, gm, scalars))
    for cores in groups.values():
        live = {c: c.steps() for c in cores}
        while live:
            moved = False
            for core in list(live):
                for event in live[core]:
                    if isinstance(event, CrossSet):
                        for other in cores:
                            if other.f.kind != core.f.kind:
                                other.flags[core, core.number(event.flag)] += 1
                    if not isinstance(event, CrossWait):
                        moved = True
                        continue
                    break  # it waits
                else:
                    del live[core]
                    moved = True
            assert moved, "all cores wait"
        for core in cores:
            assert not +core.flags, "flags left between cores"


class Core:
    def __init__(
        self, f: CoreFn, number: int, half: int, gm: dict[str, Array], scalars: dict[str, Any]
    ) -> None:
        self.f = f
        self.gm = gm
        self.env: dict[str, Any] = {**scalars, "core": number, "half": half}
        self.flags: Counter[Any] = Counter()
        self.events: Counter[Any] = Counter()
        self.spaces = {s: np.full(n, 0xFF, np.uint8) for s, n in CAPACITY.items()}
        self.own: dict[Buffer, Array] = {}

    def number(self, e: Scalar) -> Any:
        return compiled(e)(self.env, self.gm)

    def steps(self) -> Iterator[Any]:
        yield from self._body(self.f.body)
        assert not +self.events, "flags left set"

    def _body(self, body: tuple[Stmt, ...]) -> Iterator[Any]:
        for s in body:
            match s:
                case Instr():
                    self._instr(s)
                case Let():
                    self.env[s.name] = self.number(s.value)
                case If():
                    if self.number(s.condition):
                        yield from self._body(s.body)
                case For():
                    for i in range(self.number(s.lo), self.number(s.hi), self.number(s.step)):
                        self.env[s.var] = i
                        yield from self._body(s.body)
                case SetFlag():
                    self.events[s.src, s.dst, int(self.number(s.event))] += 1
                case WaitFlag():
                    key = (s.src, s.dst, int(self.number(s.event)))
                    assert self.events[key] == 1, f"{key} is not raised once"
                    self.events[key] -= 1
                case CrossSet():
                    yield s
                case CrossWait():
                    flag = self.number(s.flag)
                    while not self._raised(flag):
                        yield s
                    for c, number in list(self.flags):
                        if number == flag:
                            self.flags[c, number] -= 1
                    yield None  # it goes on

    def _raised(self, flag: int) -> bool:
        """On a cube core by each of its vector cores."""
        counts = [n for (_, number), n in self.flags.items() if number == flag and n > 0]
        return len(counts) == (2 if self.f.kind == "cube" else 1)

    # -- memory --------------------------------------------------------------------------------

    def _flat(self, v: View) -> tuple[Array, int]:
        """The memory's elements, and where the view's buffer starts in them."""
        dtype = v.dtype.numpy
        if isinstance(v.memory, Gm):
            return self.gm[v.memory.name].reshape(-1), 0
        b = v.memory
        if not b.addresses:
            data = self.own.setdefault(
                b, np.full(b.slots * b.elements * dtype.itemsize, 0xFF, np.uint8)
            )
            return data.view(dtype), (int(self.number(v.slot)) % b.slots) * b.elements
        address = b.addresses[int(self.number(v.slot)) % len(b.addresses)]
        assert address % 32 == 0
        return self.spaces[b.space].view(dtype), address // dtype.itemsize

    def _where(self, v: View) -> tuple[Array, Array]:
        """The memory's elements, and the indices of the view's."""
        data, start = self._flat(v)
        start = start + self.number(v.offset)
        sizes = [max(0, int(self.number(n))) for n in v.sizes]
        strides = [int(self.number(n)) for n in v.strides]
        grids = np.ogrid[tuple(slice(n) for n in sizes)]
        if v.fractal:
            r, c = grids
            index = r * strides[0] + c // v.fractal * strides[1] + c % v.fractal
        else:
            index = sum(
                (g * st for g, st in zip(grids, strides, strict=True)), np.zeros(sizes, int)
            )
        return data, np.broadcast_to(index + start, sizes)

    def read(self, x: Any) -> Any:
        if not isinstance(x, View):
            return self.number(x)
        data, index = self._where(x)
        value = data[index]
        return value.astype(np.float32) if value.dtype in (np.float16, bf16.numpy) else value

    def _instr(self, s: Instr) -> None:
        temp = s.attr("temp")
        if isinstance(temp, View):
            data, index = self._where(temp)
            data[index] = 113  # the library's to use
        data, index = self._where(s.out)
        if index.size == 0:
            return
        if s.attr("bits"):  # the same bytes under another type
            (source,) = s.ins
            assert isinstance(source, View)
            bits, places = self._where(source)
            data[index] = bits[places].view(data.dtype)
            return
        value = np.asarray(self._value(s, [self.read(x) for x in s.ins]))
        if data.dtype.kind in "iu" and value.dtype.kind == "f":
            value = np.rint(value)
        data[index] = value.astype(data.dtype)

    def _value(self, s: Instr, ins: list[Any]) -> Any:
        if s.op in ("mmad", "mmad_l1"):
            a, b, first = ins
            a, b = (
                x.T if s.attr(f"transpose_{n}") else x for x, n in zip((a, b), "ab", strict=True)
            )
            wide = np.int32 if a.dtype == np.int8 else np.float32
            made = a.astype(wide) @ b.astype(wide)
            return made if first else made + self.read(s.out)
        if s.op == "vreduce":
            kind = {"sum": np.sum, "max": np.max, "min": np.min}[str(s.attr("kind"))]
            return kind(ins[0], axis=s.attr("axis", -1), keepdims=True)  # type: ignore[call-overload]
        if s.op == "vcmp":
            name = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
                    "eq": np.equal, "ne": np.not_equal}[str(s.attr("mode"))]  # fmt: skip
            return name(ins[0], ins[1])
        if s.op == "vsel":
            return np.where(ins[0], ins[1], ins[2])
        if s.op == "varange":
            return ins[0] + np.arange(int(self.number(s.out.sizes[-1])))
        if s.op == "vcast":
            how = {"trunc": np.trunc, "floor": np.floor}.get(str(s.attr("round")), np.rint)
            return how(ins[0]) if s.out.dtype.kind == "int" else ins[0]
        if s.op in (
            "fixpipe",
            "load",
            "store",
            "nd2nz",
            "load_nz",
            "l1_to_l0a",
            "l1_to_l0b",
            "vcopy",
        ):
            value = ins[0].T if s.attr("transpose") else ins[0]
            return np.maximum(value, 0) if s.attr("relu") else value
        meaning = TABLE[s.op].meaning
        assert meaning is not None, s.op
        kind = next((x.dtype for x in ins if isinstance(x, np.ndarray)), s.out.dtype.numpy)
        return meaning(*(np.asarray(x).astype(kind) for x in ins))
