"""Scheduled core programs by hand, for tests: statements of one core function, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from terrazzo.ir.types import DType
from terrazzo.targets.davinci.expr import Expr, Scalar, make, var
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
    Phase,
    Pipe,
    PipeBarrier,
    Program,
    SetFlag,
    Space,
    Stmt,
    View,
    WaitFlag,
)  # fmt: skip


class Body:
    """Collects the statements of one core function."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._open: list[list[Stmt]] = [[]]
        self._names = 0

    def add(self, s: Stmt) -> None:
        self._open[-1].append(s)

    def buffer(
        self, space: Space, dtype: DType, elements: int, *addresses: int, name: str = ""
    ) -> Buffer:
        made = Buffer(name or f"{space.lower()}{len(self.buffers)}", space, dtype, elements,
                      max(len(addresses), 1), addresses or (0,))  # fmt: skip
        self.buffers.append(made)
        return made

    def do(self, op: str, out: View, *ins: Operand, **attrs: object) -> None:
        self.add(Instr(op, out, ins, tuple(sorted(attrs.items()))))

    def set(self, src: Pipe, dst: Pipe, event: Scalar = 0) -> None:
        self.add(SetFlag(src, dst, event))

    def wait(self, src: Pipe, dst: Pipe, event: Scalar = 0) -> None:
        self.add(WaitFlag(src, dst, event))

    def after(self, src: Pipe, dst: Pipe, event: Scalar = 0) -> None:
        """What `dst` is given next starts when what `src` was given so far is done."""
        self.set(src, dst, event)
        self.wait(src, dst, event)

    def barrier(self, pipe: Pipe | Literal["ALL"] = "V") -> None:
        self.add(PipeBarrier(pipe))

    def cross_set(self, flag: Scalar, pipe: Pipe) -> None:
        self.add(CrossSet(flag, pipe))

    def cross_wait(self, flag: Scalar, pipe: Pipe) -> None:
        self.add(CrossWait(flag, pipe))

    def let(self, name: str, value: Scalar) -> Expr:
        self.add(Let(name, value))
        return var(name)

    @contextmanager
    def loop(self, lo: Scalar, hi: Scalar, step: Scalar = 1, name: str = "") -> Iterator[Expr]:
        self._names += 1
        name = name or f"i{self._names}"
        self._open.append([])
        yield var(name)
        body = tuple(self._open.pop())
        self.add(For(name, lo, hi, step, body))

    @contextmanager
    def when(self, condition: Scalar) -> Iterator[None]:
        self._open.append([])
        yield
        body = tuple(self._open.pop())
        self.add(If(condition, body))

    def function(self, kind: CoreKind, cores: int) -> CoreFn:
        return CoreFn(kind, tuple(self._open[0]), tuple(self.buffers), cores)


def program(name: str, gm: tuple[Gm, ...], *phases: Phase) -> Program:
    return Program(name, gm, (), phases, scheduled=True)


def flat(memory: Buffer | Gm, count: Scalar, offset: Scalar = 0, slot: Scalar = 0) -> View:
    """`count` elements in a row."""
    return View(memory, (count,), (1,), offset, slot)


def rows(
    memory: Buffer | Gm, sizes: tuple[Scalar, Scalar], stride: int, offset: Scalar = 0,
    slot: Scalar = 0,
) -> View:  # fmt: skip
    """[rows, columns], rows `stride` elements apart."""
    return View(memory, sizes, (stride, 1), offset, slot)


def tail(step: int, extent: int, index: Scalar) -> Scalar:
    """Size of block `index` of `extent` cut into blocks of `step`."""
    if extent % step == 0:
        return step
    return make("min", step, make("sub", extent, make("mul", index, step)))
