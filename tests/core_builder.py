"""Scheduled core programs written by hand, statement by statement, and edits of them.

Every statement and buffer has a label: it stands for the source line, so that a finding's place can
be told by `finding.loc.text`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from terrazzo.ir.ops import Loc
from terrazzo.ir.types import DType
from terrazzo.targets.davinci.expr import Scalar, var
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    CoreKind,
    CrossSet,
    CrossWait,
    For,
    Gm,
    If,
    Instr,
    Let,
    Operand,
    Pipe,
    PipeBarrier,
    Program,
    SetFlag,
    Space,
    Stmt,
    View,
    WaitFlag,
)


class Builder:
    """One core function. Methods append a statement called `label`."""

    def __init__(self, kind: CoreKind) -> None:
        self.kind: CoreKind = kind
        self.body: list[Stmt] = []
        self.buffers: list[Buffer] = []
        self.line = 0

    def loc(self, label: str) -> Loc:
        self.line += 1
        return Loc(f"{self.kind}.py", self.line, 0, len(label), label)

    def buffer(self, label: str, space: Space, dtype: DType, n: int, *addresses: int) -> Buffer:
        b = Buffer(label, space, dtype, n, len(addresses), addresses, label, self.loc(label))
        self.buffers.append(b)
        return b

    def op(self, label: str, op: str, out: View, *ins: Operand, **attrs: object) -> None:
        self.body.append(Instr(op, out, ins, tuple(sorted(attrs.items())), self.loc(label)))

    def set(self, label: str, src: Pipe, dst: Pipe, event: Scalar = 0) -> None:
        self.body.append(SetFlag(src, dst, event, self.loc(label)))

    def wait(self, label: str, src: Pipe, dst: Pipe, event: Scalar = 0) -> None:
        self.body.append(WaitFlag(src, dst, event, self.loc(label)))

    def barrier(self, label: str) -> None:
        self.body.append(PipeBarrier("ALL", self.loc(label)))

    def cross_set(self, label: str, flag: int, pipe: Pipe) -> None:
        self.body.append(CrossSet(flag, pipe, self.loc(label)))

    def cross_wait(self, label: str, flag: int, pipe: Pipe) -> None:
        self.body.append(CrossWait(flag, pipe, self.loc(label)))

    def let(self, name: str, value: Scalar) -> None:
        self.body.append(Let(name, value, self.loc(name)))

    @contextmanager
    def loop(self, name: str, lo: Scalar, hi: Scalar, step: Scalar = 1) -> Iterator[Any]:
        outer, self.body = self.body, []
        place = self.loc(name)
        yield var(name)
        outer.append(For(name, lo, hi, step, tuple(self.body), place))
        self.body = outer

    def function(self, cores: int) -> CoreFn:
        return CoreFn(self.kind, tuple(self.body), tuple(self.buffers), cores)


def flat(m: Buffer | Gm, n: Scalar, offset: Scalar = 0, slot: Scalar = 0) -> View:
    return View(m, (n,), (1,), offset, slot)


def grid(m: Buffer | Gm, rows: Scalar, columns: Scalar, pitch: int, offset: Scalar = 0) -> View:
    return View(m, (rows, columns), (pitch, 1), offset)


def column(m: Buffer, rows: Scalar) -> View:
    """A value a row."""
    return View(m, (rows, 1), (1, 0))


def nz(m: Buffer, rows: Scalar, columns: Scalar, room: int, slot: Scalar = 0) -> View:
    """A matrix in L1 or L0 with room for so many rows."""
    c0 = 16 if m.space == "L0C" else 32 // m.dtype.bytes
    return View(m, (rows, columns), (c0, room * c0), 0, slot, c0)


# -- edits ---------------------------------------------------------------------------------------

Change = Callable[[Any], list[Any]]


def edit(program: Program, label: str, change: Change) -> Program:
    """Every statement called `label` becomes what `change` makes of it. There is one at least."""
    hits = 0

    def body(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        nonlocal hits
        out: list[Stmt] = []
        for s in statements:
            if isinstance(s, (For, If)):
                s = replace(s, body=body(s.body))
            if s.loc is not None and s.loc.text == label:
                hits += 1
                out += change(s)
            else:
                out.append(s)
        return tuple(out)

    made = _functions(program, lambda f: replace(f, body=body(f.body)))
    assert hits, f"nothing is called {label}"
    return made


def drop(program: Program, label: str) -> Program:
    return edit(program, label, lambda s: [])


def after(program: Program, label: str, other: str) -> Program:
    """The statement `label` moves to behind `other`."""
    moved: list[Any] = []
    edit(program, label, lambda s: moved.append(s) or [])
    return edit(drop(program, label), other, lambda s: [s, *moved])


def fields(program: Program, label: str, **changes: Any) -> Program:
    """Fields of the statement `label` anew."""
    return edit(program, label, lambda s: [replace(s, **changes)])


def out(program: Program, label: str, **changes: Any) -> Program:
    """Fields of its output view anew."""
    return edit(program, label, lambda s: [replace(s, out=replace(s.out, **changes))])


def source(program: Program, label: str, number: int, **changes: Any) -> Program:
    """Fields of an input view anew."""

    def change(s: Instr) -> list[Instr]:
        ins: list[Any] = list(s.ins)
        ins[number] = replace(ins[number], **changes)
        return [replace(s, ins=tuple(ins))]

    return edit(program, label, change)


def memory(program: Program, name: str, **changes: Any) -> Program:
    """Fields of a buffer anew, wherever it is used."""
    old = next(b for p in program.phases for f in p.functions for b in f.buffers if b.name == name)
    new = replace(old, **changes)

    def swap(x: Any) -> Any:
        return replace(x, memory=new) if isinstance(x, View) and x.memory is old else x

    def body(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for s in statements:
            if isinstance(s, (For, If)):
                s = replace(s, body=body(s.body))
            elif isinstance(s, Instr):
                s = replace(s, out=swap(s.out), ins=tuple(map(swap, s.ins)))
            made.append(s)
        return tuple(made)

    return _functions(program, lambda f: replace(
        f, body=body(f.body), buffers=tuple(new if b is old else b for b in f.buffers)
    ))  # fmt: skip


def _functions(program: Program, change: Callable[[CoreFn], CoreFn]) -> Program:
    phases = [replace(p, functions=tuple(map(change, p.functions))) for p in program.phases]
    return replace(program, phases=tuple(phases))
