"""Nest IR -> LLVM IR: one function a phase, plus `scratch_bytes`. Goals: emit what the nest IR
says, all sizes at run time. Not goals: choices (schedule.py), micro-kernels (micro.py).
"""

from __future__ import annotations

from terrazzo.ir.graph import Graph, walk
from terrazzo.ir.ops import Kernel, Loop, LoopVar, Store
from terrazzo.ir.types import Format, Value
from terrazzo.targets.cpu.builder import Function, W
from terrazzo.targets.cpu.columns import NestEmitter
from terrazzo.targets.cpu.dots import DotEmitter
from terrazzo.targets.cpu.evaluate import Evaluator
from terrazzo.targets.cpu.frame import Frame, phase_name, register_type
from terrazzo.targets.cpu.halves import HALVES_IR
from terrazzo.targets.cpu.handout import HandOut, Shares
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.memory import tail_helpers
from terrazzo.targets.cpu.micro import Micro
from terrazzo.targets.cpu.nest import (
    Copy,
    Dot,
    ForLoop,
    Nest,
    NestStmt,
    Phase,
    Program,
)
from terrazzo.targets.cpu.schedule import schedule


class PhaseEmitter:
    """Emits one phase."""

    def __init__(
        self,
        program: Program,
        phase: Phase,
        name: str,
        isa: Isa,
        pieces: dict[str, Micro],
        helpers: set[str],
        strict: bool,
    ) -> None:
        self.program, self.phase, self.isa = program, phase, isa
        args = [("ptr", "table"), ("i32", "tid"), ("i32", "threads")]
        self.f = Function(name, args, scalef=isa.scalef)
        self.fr = Frame(program, self.f)
        self.graph = Graph(program.kernel)
        self.ev = Evaluator(self.fr, self.graph, helpers, strict)
        self.dots = DotEmitter(self.fr, self.ev, self.graph, isa, pieces)
        self.nests = NestEmitter(self.fr, self.ev, self.graph, self.dots)
        self.trip: str | None = None

    def emit(self) -> Function:
        f = self.f
        self.fr.read_table()
        self.fr.bind_scratch()
        if self.phase.grid is None:
            f.when(
                f.op("icmp eq i32 %tid, 0"),
                lambda: self.fr.scoped(lambda: self.body(self.phase.body)),
            )
        else:
            self.grid(self.phase.grid)
        f.put("ret void")
        return f

    # -- grids and loops ------------------------------------------------------------------------
    def bound(self, v: Value) -> str:
        return self.f.wide(self.ev.scalar(v))

    def grid(self, g: Loop) -> None:
        """Blocks are equal and as large as `step` allows; on several threads the longest axis is
        cut into a multiple of the thread count, the columns of a single row of products as
        `Shares` says."""
        f = self.f
        threads = f.wide("%threads")
        sizes: list[str | None] = []
        counts: list[str] = []
        spans: list[str] = []
        for v in g.vars:
            self.ev.guards.bounds(g, v, self.bound(v.lo), self.bound(v.hi))
            span = f.max(f.sub(self.bound(v.hi), self.bound(v.lo)), 0)
            spans.append(span)
            if v.step is None:
                sizes.append(None)
                counts.append(span)
                continue
            grain = self.grain(v)
            blocks = f.cdiv(span, v.step)
            if len(g.vars) == 1 or v is self._widest(g):
                rounded = f.mul(
                    f.op(f"sdiv i64 {f.add(f.add(blocks, threads), -1)}, {threads}"), threads
                )
                enough = f.op(f"icmp sge i64 {span}, {f.mul(rounded, grain)}")
                blocks = f.op(f"select i1 {enough}, i64 {rounded}, i64 {blocks}")
            size = f.roundup(f.cdiv(span, f.max(blocks, 1)), grain)
            size = f.max(f.min(size, v.step), 1)
            sizes.append(size)
            counts.append(f.cdiv(span, size))
        total = "1"
        for c in counts:
            total = f.mul(total, c)
        hand_out = HandOut.equal(f, total, self.phase.dynamic)
        shares: Shares | None = None
        v = g.vars[-1]
        if self.phase.products and not self.phase.dynamic and v.step is not None:
            others = "1"
            for c in counts[:-1]:
                others = f.mul(others, c)
            shares = Shares(f, spans[-1], v.step, self.grain(v), f.op(f"icmp eq i64 {others}, 1"))
            hand_out = shares.hand_out(hand_out)

        def unit(u: str) -> None:
            rest = u
            for v, size, count, span in reversed(
                list(zip(g.vars, sizes, counts, spans, strict=True))
            ):
                at = f.op(f"srem i64 {rest}, {count}") if v is not g.vars[0] else rest
                rest = f.op(f"sdiv i64 {rest}, {count}") if v is not g.vars[0] else rest
                lo = self.bound(v.lo)
                if size is None:
                    self.set_scalar(v, f.add(lo, at))
                    continue
                begin = f.mul(at, size)
                extent = f.min(size, f.sub(span, begin))
                if shares is not None and v is g.vars[-1]:
                    begin, extent = shares.block(u, begin, extent)
                    rest = shares.rest(rest)
                self.fr.starts[v.name] = f.add(lo, begin)
                self.fr.extents[v.name] = extent
            self.body(self.phase.body)

        self.fr.scoped(lambda: self.body(self.phase.before))
        hand_out.emit(f, lambda u: self.fr.scoped(lambda: unit(u)))

    def grain(self, v: LoopVar) -> int:
        """What sizes of blocks along v are a multiple of: lanes; a8 sums 32 values."""
        step = v.step or 1
        packed = any(
            isinstance(s, Store) and isinstance(s.value.dtype, Format) and v.name in s.value.axes
            for s in walk(self.phase.grid.body if self.phase.grid else ())
        )
        grain = 2 * W if packed else W
        return grain if step % grain == 0 else 1

    @staticmethod
    def _widest(g: Loop) -> LoopVar:
        """The variable to cut for balance: the last one with a step (the columns of a product)."""
        return [v for v in g.vars if v.step is not None][-1]

    def set_scalar(self, v: LoopVar, at: str) -> None:
        if v.var is not None:
            self.fr.keep((v.var.id, None), self.f.narrow(at))

    def for_loop(self, s: ForLoop) -> None:
        f = self.f
        v = s.loop.vars[0]
        lo, hi = self.bound(v.lo), self.bound(v.hi)
        self.ev.guards.bounds(s.loop, v, lo, hi)
        if s.empty:
            f.when(
                f.op(f"icmp sge i64 {lo}, {hi}"), lambda: self.fr.scoped(lambda: self.body(s.empty))
            )
        for c in s.loop.carries:
            if c.var.axes:
                self.ev.buf_of[c.var.id] = self.program.placed[c.result.id]
        kinds = [(register_type(c.var, False), self.ev.scalar(c.init)) for c in s.scalars]

        def trip(iv: str, phis: list[str]) -> list[str]:
            self.fr.scopes.append({})
            for c, phi in zip(s.scalars, phis, strict=True):
                self.fr.keep((c.var.id, None), phi)
            if v.step is None:
                self.set_scalar(v, iv)
            else:
                self.fr.starts[v.name] = iv
                self.fr.extents[v.name] = f.min(f.sub(hi, iv), v.step)
                self.fr.follows[v.name] = f.add(iv, v.step), hi
            outer, self.trip = self.trip, f.op(f"icmp eq i64 {iv}, {lo}")
            self.body(s.body)
            self.trip = outer
            new = [self.ev.scalar(c.next) for c in s.scalars]
            self.fr.scopes.pop()
            return new

        last = f.loop(lo, hi, v.step or 1, kinds, trip)
        for c, x in zip(s.scalars, last, strict=True):
            self.fr.keep((c.result.id, None), x)
        for c in s.loop.carries:
            if c.var.axes:
                self.ev.buf_of[c.result.id] = self.program.placed[c.result.id]

    def body(self, stmts: tuple[NestStmt, ...]) -> None:
        for s in stmts:
            if isinstance(s, Nest):
                self.nests.nest(s)
            elif isinstance(s, Dot):
                self.dots.dot(s, self.trip)
                self.ev.buf_of[s.op.result.id] = s.c
            elif isinstance(s, Copy):
                self.f.call("void", "llvm.memcpy.p0.p0.i64", [
                    ("ptr", self.fr.addresses[s.dst.name]), ("ptr", self.fr.addresses[s.src.name]),
                    ("i64", self.fr.bytes(s.dst)), ("i1", "false")])  # fmt: skip
            else:
                self.for_loop(s)


def emit_scratch(program: Program) -> Function:
    """`i64 scratch_bytes(ptr table)`: what one thread needs for these extents."""
    f = Function("scratch_bytes", [("ptr", "table")], "i64")
    fr = Frame(program, f)
    fr.read_table()
    f.put(f"ret i64 {fr.lay_out()}")
    return f


def emit_count(program: Program) -> Function:
    """`i64 phase_count()`."""
    f = Function("phase_count", [], "i64")
    f.put(f"ret i64 {len(program.phases)}")
    return f


def lower(kernel: Kernel, isa: Isa, strict: bool = False) -> tuple[str, tuple[str, ...], Program]:
    """A kernel's LLVM IR text, the names of its phases, and its nest IR. `strict`: with checks of
    indices and stored values."""
    program = schedule(kernel, isa.matrix)
    pieces: dict[str, Micro] = {}
    helpers: set[str] = set()
    functions: list[Function] = []
    names: list[str] = []
    for n, phase in enumerate(program.phases):
        name = phase_name(kernel, n)
        functions.append(PhaseEmitter(program, phase, name, isa, pieces, helpers, strict).emit())
        names.append(name)
    functions += [emit_scratch(program), emit_count(program), *tail_helpers(helpers)]
    decls: set[str] = set().union(*(f.decls for f in functions))
    decls = decls.union(*(p.decls for p in pieces.values()))
    text = "\n".join(
        [*sorted(decls), *(f.text() for f in functions), *(p.text for p in pieces.values())]
    )
    if not isa.half and "half" in text:
        text += HALVES_IR
    return text, tuple(names), program
