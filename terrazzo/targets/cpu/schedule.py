"""Tile IR -> nest IR: which values get memory, and which loops produce them.

Goals: few rules and no cost model. A value is virtual (recomputed at its use) unless it is an
operand or a result of `dot`, carried by a loop, the result of a reduction, or an expensive
operation wanted by two column loops. Everything pending between two dots or loops is fused: roots
with the same row axes share one row loop, and inside it one column loop per reduction level. Not
goals: tile sizes, vector code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from terrazzo.ir.graph import walk
from terrazzo.ir.ops import Carry, Expect, Kernel, Load, Loop, Op, Stmt, Store
from terrazzo.ir.pages import whole_pages
from terrazzo.ir.types import DType, Format, Value, bf16, f16, f32, i8, plain
from terrazzo.targets.cpu.access import unit_axis
from terrazzo.targets.cpu.builder import W
from terrazzo.targets.cpu.effects import stores
from terrazzo.targets.cpu.fuse import NestBuilder
from terrazzo.targets.cpu.nest import (
    Ahead,
    Buf,
    Copy,
    Dot,
    ForLoop,
    NestStmt,
    OperandA,
    OperandB,
    Phase,
    Program,
    Root,
)  # fmt: skip
from terrazzo.targets.cpu.planes import PLANES
from terrazzo.targets.cpu.scratch import STEPS

FEW_ROWS = 4  # the rows of one register tile
MANY_ROWS = 32  # of a block on matrix tiles: two of them


class Scheduler(NestBuilder):
    """Dots, loops and phases; see the top of the file."""

    def __init__(self, kernel: Kernel, matrix: bool) -> None:
        super().__init__(kernel)
        self.matrix = matrix

    # -- dots -----------------------------------------------------------------------------------
    def tiled(self, a: Value, b: Value, k: str) -> tuple[int, int]:
        """The planes of the operands of a product that goes to matrix tiles, else (0, 0).

        Blocks of k end where the instruction's steps do: then results do not depend on how long
        they are. bf16 with bf16 always goes there. Other floats, to be split, go where splitting
        pays: blocks of many rows (by the kernel, not by the call: a row's result does not depend on
        how many there are) of operands that are not weights or pages, which single rows share."""
        axis = self.kernel.axis(k)
        even = not axis.block or (axis.cap is not None and axis.cap % STEPS == 0)
        if not self.matrix or not even:
            return 0, 0
        if {plain(a.dtype), plain(b.dtype)} == {bf16}:
            return 1, 1
        rows = 1
        for x in a.axes:
            rows *= 1 if x == k else self.kernel.axis(x).cap or self.static(x) or 1
        loads = [
            x for v in (a, b) for i in self.closure(v) if isinstance(x := self.graph.defs[i], Load)
        ]
        regular = all(
            isinstance(self.kernel.param(x.param).dtype, DType)
            and not any(isinstance(e, Value) and e.axes for e in x.index)
            for x in loads
        )
        planes = self.planes(a), self.planes(b)
        return planes if rows >= MANY_ROWS and regular and all(planes) else (0, 0)

    def planes(self, v: Value) -> int:
        """So many bf16 make up a value exactly; 0: it is no float."""
        op = self.graph.op(v)
        if op is not None and op.op == "cast" and v.dtype == f32 and op.args[0].dtype in _HALF:
            v = op.args[0]
        return PLANES.get(str(v.dtype), 0)

    def operand_a(
        self, v: Value, m: tuple[str, ...], k: str, low_bit: bool, planes: int
    ) -> OperandA:
        """`low_bit`: the other operand is low-bit weights; then a8 rows are read in place, else
        decoded. `planes`: of a product on matrix tiles, else 0."""
        if v.id in self.mat:
            return OperandA(self.mat[v.id], planes=planes)
        d = self.graph.defs[v.id]
        if isinstance(d, Op) and d.op == "quantize":
            b = self.buf((*m, k), "a8", "a")
            self.pending.append(Root("quantize", v, packed=b))
            return OperandA(buf=b)
        if isinstance(d, Load) and len(m) <= 1 and unit_axis(self.graph, d) == k:
            regular = all(not (isinstance(e, Value) and e.axes) for e in d.index)
            direct = (planes > 0 or v.dtype == f32) and regular
            if (isinstance(v.dtype, Format) and low_bit) or direct:
                return OperandA(load=d, planes=planes)
        b = self.buf((*m, k), name="a")
        self.pending.append(Root("mat", v, b))
        return OperandA(b, planes=planes)

    def low_bit(self, v: Value) -> bool:
        """Whether v is a block of low-bit weights as they lie in memory."""
        d = self.graph.defs[v.id]
        fmt = self.kernel.param(d.param).dtype if isinstance(d, Load) else None
        return isinstance(fmt, Format) and fmt.layout == "p16" and fmt.group > 1

    def operand_b(self, v: Value, a_dtype: object, m: tuple[str, ...], k: str, n: str) -> OperandB:
        d = self.graph.defs[v.id]
        core = d
        op = self.graph.op(v)
        if op is not None and op.op == "cast" and v.dtype == f32:
            core = self.graph.defs[op.args[0].id]
        if isinstance(core, Load) and isinstance(self.kernel.param(core.param).dtype, Format):
            fmt = self.kernel.param(core.param).dtype
            if isinstance(fmt, Format) and fmt.layout == "p16":
                low_bit = isinstance(a_dtype, DType) and fmt.group > 1
                return OperandB("p16", self.buf((k, n), "panels", "w") if low_bit else None, core)
        if isinstance(core, Load) and self.kernel.param(core.param).dtype in _READ_IN_PLACE:
            p = whole_pages(self.graph, core)
            if p is not None and p.page == 16:
                lane = unit_axis(self.graph, core)
                if p.axis == n and lane == n and p.lane_dim == len(core.index) - 1:
                    return OperandB("paged_k", self.buf((n,), "row", "p"), core, p.page)
                vectors = self.whole_vectors(n) and p.lane_dim == len(core.index) - 2
                if p.axis == k and lane == n and vectors:
                    return OperandB("paged_v", self.buf((k,), "row", "p"), core, p.page)
            if self.in_place(core, m, n):
                return OperandB("rows", load=core)
        b = self.buf((k, n), "panels", "w")
        self.pending.append(Root("pack", v, b))
        return OperandB("panels", b)

    def tiled_b(self, v: Value, k: str, n: str, planes: int) -> OperandB:
        """The right operand of a product on matrix tiles."""
        d, b = self.graph.defs[v.id], self.buf((k, n), "pairs", "w", planes)
        if isinstance(d, Load) and isinstance(v.dtype, Format):
            return OperandB("p16", b, d)
        self.need([v])  # the loops that pack pairs make no reductions
        self.pending.append(Root("pack", v, b))
        return OperandB("panels", b)

    def in_place(self, load: Load, m: tuple[str, ...], n: str) -> bool:
        """Whether a right operand is read where it lies: whole vectors along n, and nothing to be
        gained from a copy: f32, or read by so few rows that each element is widened once."""
        rows = 1
        for axis in m:
            rows *= self.static(axis) or FEW_ROWS + 1
        regular = all(not (isinstance(e, Value) and e.axes) for e in load.index)
        once = self.kernel.param(load.param).dtype == f32 or rows <= FEW_ROWS
        return regular and once and self.whole_vectors(n) and unit_axis(self.graph, load) == n

    def whole_vectors(self, axis: str) -> bool:
        """Whether the extent is known to be a multiple of the vector's."""
        return self.static(axis) % W == 0 < self.static(axis)

    def static(self, axis: str) -> int:
        """The extent of a whole dimension if it is known now, else 0."""
        a = self.kernel.axis(axis)
        return 0 if a.block else dict(self.kernel.statics).get(a.dim, 0)

    def dot(self, op: Op, carries: dict[int, tuple[Carry, Buf]]) -> None:
        c_arg = op.args[0] if op.op == "dot_acc" else None
        a, b = op.args[-2:]
        shared = [x for x in a.axes if x in b.axes]
        m = tuple(x for x in a.axes if x not in shared)
        n = [x for x in b.axes if x not in shared]
        if len(shared) != 1 or len(n) != 1:
            raise self.fail(
                f"`@` of {a.type} and {b.type}: the CPU target contracts one axis and keeps one "
                f"axis of the right operand (shared: {shared}, kept: {n})",
                op,
            )
        if a.dtype not in (f32, *_HALF) and not isinstance(a.dtype, Format):
            raise self.fail(f"`@` takes f32, f16, bf16 or a8 on the left, got {a.dtype}", op)
        k = shared[0]
        first = "always"
        c: Buf | None = None
        if c_arg is not None:
            zero = self.graph.const(c_arg) == 0
            total = self.last_of_chain(op).result
            for var_id, (carry, buf) in carries.items():
                if carry.next.id == total.id and var_id in self.closure(c_arg):
                    users = {id(u) for u in self._users.get(var_id, [])}
                    inside = {id(self.graph.defs[i]) for i in self.closure(c_arg)} | {id(op)}
                    if users <= inside:
                        c = buf
                        if c_arg.id == var_id:
                            first = "trip" if var_id in self.trip else "never"
                        else:
                            first = "never"
                            if self.mat.get(c_arg.id) is not buf:  # not the chain's last product
                                self.pending.append(Root("mat", c_arg, buf))
                        break
            if c is None and not zero:
                c = self.buf((*m, n[0]), name="c")
                self.pending.append(Root("mat", c_arg, c))
                first = "never"
        c = c or self.buf((*m, n[0]), name="c")
        if c_arg is not None and c.axes != (*m, n[0]):
            raise self.fail(
                f"an accumulator with axes {c.axes} for a product with axes {(*m, n[0])}", op
            )
        read = self.closure(a) | self.closure(b)
        if any(
            r.store and self.effects.conflict(x, r.store)
            for r in self.pending
            for x in self.loaded
            if x.result.id in read
        ):
            self.flush()  # operands read in place are read now
        left, right = self.tiled(a, b, k)
        if right:
            ob = self.tiled_b(b, k, n[0], right)
        else:
            ob = self.operand_b(b, a.dtype, m, k, n[0])
        oa = self.operand_a(a, m, k, self.low_bit(b), left)
        self.flush()
        self.out.append(Dot(op, oa, ob, c, m, n[0], k, first))  # type: ignore[arg-type]
        for var_id, (_, buf) in carries.items():
            if buf is c:
                self.mat.pop(var_id, None)
        if c_arg is not None:
            self.mat.pop(c_arg.id, None)
        self.place(op.result, c)

    # Products added one to another, each sum read by the next product only, share a buffer.
    def last_of_chain(self, op: Op) -> Op:
        while True:
            match self._users.get(op.result.id):
                case [Op(op="dot_acc") as after] if after.args[0] == op.result:
                    op = after
                case _:
                    return op

    def first_of_chain(self, op: Op) -> Op:
        while (before := self.graph.op(op.args[0])) is not None and before.op == "dot_acc":
            if len(self._users[before.result.id]) != 1:
                break
            op = before
        return op

    # -- blocks and loops -----------------------------------------------------------------------
    def block(self, body: tuple[Stmt, ...], carries: dict[int, tuple[Carry, Buf]]) -> None:
        for s in body:
            self.here = self.effects.at(s) - 1
            if isinstance(s, Op) and s.op in ("dot", "dot_acc"):
                self.dot(s, carries)
            elif isinstance(s, Load):
                if any(r.store and self.effects.conflict(s, r.store) for r in self.pending):
                    self.flush()
                self.loaded.append(s)
            elif isinstance(s, Store):
                if any(r.store and self.effects.overlap(r.store, s) for r in self.pending):
                    self.flush()
                kind = "quantize" if isinstance(s.value.dtype, Format) else "store"
                if (
                    kind == "quantize"
                    and (op := self.graph.op(s.value)) is not None
                    and op.op != "quantize"
                ):
                    raise self.fail(f"a store of {s.value.dtype} needs tz.quantize", s)
                self.pending.append(Root(kind, s.value, store=s))
            elif isinstance(s, Expect):
                self.pending.append(Root("expect", s.condition, expect=s))
            elif isinstance(s, Loop):
                self.loop(s)

    def loop(self, s: Loop) -> None:
        if len(s.vars) != 1:
            raise self.fail(
                "a grid inside a grid runs in order: give it one variable, or nest loops", s
            )
        v = s.vars[0]
        self.flush()
        self.before_stores(s)
        self.need([v.lo, v.hi])
        bufs: dict[int, tuple[Carry, Buf]] = {}
        empty: list[Root] = []
        for c in s.carries:
            if not c.var.axes:
                self.need([c.init])
                continue
            b = self.buf(c.var.axes, name="acc")
            bufs[c.var.id] = (c, b)
            nxt = self.graph.op(c.next)
            if (
                self.graph.const(c.init) == 0
                and nxt
                and nxt.op == "dot_acc"
                and self.first_of_chain(nxt).args[0] == c.var
            ):
                self.trip.add(c.var.id)
                empty.append(Root("mat", c.init, b))
            else:
                self.pending.append(Root("mat", c.init, b))
        self.hoist(s.body)
        self.flush()
        outer, self.out = self.out, []
        self.nests(empty)
        fill, self.out = self.out, []
        inits = {c.init.id for c in s.carries}
        saved = {i: b for i, b in self.mat.items() if i not in inits}
        self.mat = dict(saved)
        for var_id, (_, b) in bufs.items():
            self.mat[var_id] = b
        outside = len(self.loaded)
        self.block(s.body, bufs)
        self.here = self.effects.end(s) - 1
        copies: list[NestStmt] = []
        reading = {
            var: [o for o in bufs if o != var and var in self.closure(bufs[o][0].next)]
            for var in bufs
        }
        for var_id, (c, b) in bufs.items():
            if self.mat.get(c.next.id) is b:
                continue
            target = b
            rows = {frozenset(bufs[o][1].axes) for o in reading[var_id]}
            if rows and rows != {
                frozenset(b.axes)
            }:  # read by nests that may run later: keep the old value
                target = self.buf(b.axes, name="next")
                copies.append(Copy(target, b))
            self.pending.append(Root("mat", c.next, target))
        scalars = tuple(c for c in s.carries if not c.var.axes)
        self.flush()
        self.need([c.next for c in scalars])
        inner = (*self.ahead(self.out, v.name), *copies)
        self.out = [*outer, ForLoop(s, inner, scalars, tuple(fill))]
        self.mat = saved
        del self.loaded[outside:]
        for c, b in bufs.values():
            self.place(c.result, b)

    def ahead(self, body: list[NestStmt], axis: str) -> list[NestStmt]:
        """Each product with pages along the loop's blocks brings the pages near that the loop's
        next such product reads: no chip's prefetcher follows a table."""
        reads = [
            n
            for n, s in enumerate(body)
            if isinstance(s, Dot) and s.b.page and s.b.buf is not None and s.b.buf.axes == (axis,)
        ]
        out = list(body)
        for n, at in enumerate(reads):
            last = n + 1 == len(reads)
            s, after = body[at], body[reads[0 if last else n + 1]]
            if isinstance(s, Dot) and isinstance(after, Dot) and after.b.load is not None:
                near = Ahead(after.b.load, self.buf((axis,), "row", "p"), last)
                out[at] = replace(s, b=replace(s.b, ahead=near))
        return out

    def before_stores(self, s: Loop) -> None:
        """Write down what was loaded before a loop that stores to it, and is used later."""
        start, written = self.effects.at(s), stores(s.body)
        self.settle([
            x for x in self.loaded
            if x.result.id not in self.mat and self.effects.last_use(x.result) > start
            and any(self.effects.conflict(x, w) for w in written)
        ])  # fmt: skip

    def hoist(self, body: Iterable[Stmt]) -> None:
        """Left operands of this loop's dots that were computed before it are written down before
        it."""
        body = tuple(body)
        made = {x.result.id for x in walk(body) if isinstance(x, (Op, Load))}
        made |= {c.var.id for x in walk(body) if isinstance(x, Loop) for c in x.carries}
        for s in body:
            if isinstance(s, Op) and s.op in ("dot", "dot_acc"):
                a, b = s.args[-2:]
                k = [x for x in a.axes if x in b.axes]
                if (
                    a.id not in made
                    and a.id not in self.mat
                    and len(k) == 1
                    and not (isinstance(a.dtype, Format) and self.graph.op(a) is None)
                ):
                    m = tuple(x for x in a.axes if x not in k)
                    pending = {r.value.id for r in self.pending}
                    if a.id not in pending:
                        self.operand_a(a, m, k[0], False, self.tiled(a, b, k[0])[0])

    def run(self) -> Program:
        phases: list[Phase] = []
        loose: list[Stmt] = []

        def single() -> None:
            if any(isinstance(x, (Store, Loop)) for x in loose):
                phases.append(Phase(None, self.body(tuple(loose), None)))
            loose.clear()

        for s in self.kernel.body:
            if isinstance(s, Loop) and s.kind == "grid":
                single()
                self.check_outer(s)
                body = self.body(s.body, s)
                phases.append(Phase(s, body, _uneven(s), self.before))
            else:
                loose.append(s)
        single()
        return Program(self.kernel, tuple(phases), tuple(self.bufs), self.placed)

    def check_outer(self, grid: Loop) -> None:
        """A tile loaded before a grid that stores to it cannot be kept for the grid's threads."""
        written = stores(grid.body)
        for s in self.kernel.body:
            if not isinstance(s, Load) or self.effects.at(s) > self.effects.at(grid):
                continue
            late = self.effects.last_use(s.result) > self.effects.at(grid)
            if late and any(self.effects.conflict(s, w) for w in written):
                raise self.fail(
                    f"`{s.param}` is loaded before a grid that stores to it, and used after",
                    s,
                    "load it inside the grid, or store to another tensor",
                )

    def body(self, stmts: tuple[Stmt, ...], grid: Loop | None) -> tuple[NestStmt, ...]:
        """A phase's statements; `before` is then what each thread does ahead of its blocks."""
        self.mat, self.out, self.pending = {}, [], []
        self.loaded = [s for s in self.kernel.body if isinstance(s, Load)]
        self.loaded = [s for s in self.loaded if self.effects.at(s) < self.effects.at(stmts[0])]
        self.before: tuple[NestStmt, ...] = ()
        if grid is not None:
            self.here = self.effects.at(grid) - 1
            self.hoist(walk(stmts))
            self.flush()
            self.before, self.out = tuple(self.out), []
        self.block(stmts, {})
        self.here = self.effects.end(stmts[-1])
        self.flush()
        return tuple(self.out)


def _uneven(grid: Loop) -> bool:
    """A loop inside whose bounds are not the same for all units: their costs differ."""
    made = {s.result.id for s in walk(grid.body) if isinstance(s, (Op, Load))}
    made |= {v.var.id for v in grid.vars if v.var is not None}
    const = {
        s.result.id
        for s in walk(grid.body)
        if isinstance(s, Op) and s.op in ("const", "dim", "arg")
    }
    return any(
        isinstance(s, Loop) and any({v.lo.id, v.hi.id} & (made - const) for v in s.vars)
        for s in walk(grid.body)
    )


_HALF = (f16, bf16)
_READ_IN_PLACE = (f32, *_HALF, i8)


def schedule(kernel: Kernel, matrix: bool) -> Program:
    """`matrix`: there are matrix tiles. Raises KernelError for what the CPU target
    cannot run."""
    return Scheduler(kernel, matrix).run()
