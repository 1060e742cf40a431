"""Programs made by the compiler, with one statement or address changed: what is found is of the
kind that the change makes, and where nothing is found the numbers are right all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest
from barrier_schedule import scheduled
from core_builder import memory
from davinci_launch import CHIP, Launch, launched

from terrazzo.targets.davinci.checking.check import check
from terrazzo.targets.davinci.expr import add
from terrazzo.targets.davinci.lowering.lower import Options
from terrazzo.targets.davinci.numbers.execute import run
from terrazzo.targets.davinci.program import (
    Buffer,
    CrossSet,
    CrossWait,
    For,
    Gm,
    If,
    Instr,
    PipeBarrier,
    Program,
    SetFlag,
    Stmt,
    View,
    WaitFlag,
    walk,
)
from terrazzo.targets.davinci.scheduling.schedule import schedule

Mutant = tuple[str, Program, set[str], set[str], set[int]]  # …, one must be found, may be, lines
SMALL = Options(cores=2, vector_cores=2)
LAUNCHES: dict[str, tuple[str, str, str]] = {
    "add": ("n=20011", "T=f32", ""), "rms_norm": ("rows=13,dim=100", "T=f16,R=f16", ""),
    "softmax": ("rows=9,dim=77", "", ""), "rope": ("tokens=5,heads=3,half=32", "T=f16,R=f16", ""),
    "matmul": ("m=140,n=270,k=200", "T=f16,R=f16", ""),
    "linear": ("m=50,n=300,k=200", "A=f16,W=f16,R=f16", "bias"),
    "flash_attention": ("heads=2,kvheads=1,s=40,t=100,d=16", "Q=f16,R=f16", ""),
}  # fmt: skip


SCHEDULES: dict[str, Callable[[Program], Program]] = {
    "barriers": scheduled, "events": lambda p: schedule(p, CHIP),
}  # fmt: skip


@cache
def made(name: str) -> Launch:
    return launched(name, *LAUNCHES[name], options=SMALL)


def statements(p: Program) -> Iterator[Stmt]:
    return (s for phase in p.phases for f in phase.functions for s in walk(f.body))


def changed(p: Program, target: Stmt, change: Callable[[Stmt], list[Stmt]]) -> Program:
    """One statement anew."""

    def body(old: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in old:
            if s is target:
                out += change(s)
            else:
                out.append(replace(s, body=body(s.body)) if isinstance(s, (For, If)) else s)
        return tuple(out)

    phases = [
        replace(q, functions=tuple(replace(f, body=body(f.body)) for f in q.functions))
        for q in p.phases
    ]
    return replace(p, phases=tuple(phases))


def line(s: Stmt) -> int:
    return s.loc.line if s.loc else 0


def mutants(p: Program) -> Iterator[Mutant]:
    for s in statements(p):
        where = f"{type(s).__name__} of line {line(s)}"
        without = changed(p, s, lambda _: [])
        match s:
            case PipeBarrier():
                yield f"no {where}", without, set(), {"race", "uninitialised"}, set()
            case SetFlag() | CrossSet():
                yield f"no {where}", without, {"deadlock"}, {"deadlock", "event"}, set()
            case WaitFlag():
                yield f"no {where}", without, {"event"}, {"event", "race", "uninitialised"}, set()
            case CrossWait():
                also = {"flag", "race", "uninitialised"}
                yield f"no {where}", without, {"flag"}, also, set()
            case Instr():
                readers = reads(p, s.out)
                if writers(p, s.out) == 1 and isinstance(s.out.memory, Buffer) and readers:
                    only = {"uninitialised", "overlap"}  # what another tile left there
                    yield f"no {s.op}: {where}", without, only, only, readers
                for n, v in enumerate((s.out, *s.ins)):
                    if isinstance(v, View) and isinstance(v.memory, Gm):
                        beyond = changed(p, s, lambda x, n=n: [shifted(x, n)])
                        yield f"beyond {v.memory.name}: {where}", beyond, {"bounds"}, {
                            "bounds", "uninitialised"} if v.memory.workspace else {"bounds"}, (
                            set() if v.memory.workspace else {line(s)})  # fmt: skip
            case _:
                pass
    for phase in p.phases:
        for f in phase.functions:
            for a, b in zip(f.buffers, f.buffers[1:], strict=False):
                if a.space == b.space and a.slots == b.slots:
                    onto = memory(p, b.name, addresses=a.addresses)
                    yield f"{b.name} on {a.name}", onto, set(), {
                        "overlap", "uninitialised", "race", "capacity"}, set()  # fmt: skip


def shifted(s: Stmt, n: int) -> Stmt:
    assert isinstance(s, Instr)
    operands = [s.out, *s.ins]
    v = operands[n]
    assert isinstance(v, View)
    operands[n] = replace(v, offset=add(v.offset, 1 << 24))
    out, *ins = operands
    assert isinstance(out, View)
    return replace(s, out=out, ins=tuple(ins))


def writers(p: Program, v: View) -> int:
    return sum(isinstance(s, Instr) and s.out.memory is v.memory for s in statements(p))


def reads(p: Program, v: View) -> set[int]:
    return {
        line(s) for s in statements(p) if isinstance(s, Instr)
        and any(isinstance(x, View) and x.memory is v.memory for x in s.ins)
    }  # fmt: skip


@pytest.mark.parametrize("by", SCHEDULES)
@pytest.mark.parametrize("name", LAUNCHES)
def test_mutants(name: str, by: str) -> None:
    launch = made(name)
    right = SCHEDULES[by](launch.program)
    assert check(right, CHIP, launch.args) == []
    told = total = 0
    for what, program, must, may, lines in mutants(right):
        found = check(program, CHIP, launch.args)
        kinds = {f.kind for f in found}
        assert (not must or must & kinds) and kinds <= may, (what, found)
        assert not lines or {f.loc.line for f in found if f.loc} <= lines, (what, found)
        total += 1
        told += bool(found)
        if not found:
            got = run(program, CHIP, launch.tensors, launch.scalars)
            try:
                launch.compare(got, 64)
            except AssertionError as error:
                raise AssertionError(f"{what}: nothing found, and wrong") from error
    assert told >= total // 3
