"""Nest IR -> LLVM IR: one function a phase, plus `scratch_bytes`. Goals: emit what the nest IR
says, all sizes at run time. Not goals: choices (schedule.py), micro-kernels (micro.py).
"""

from __future__ import annotations

from collections.abc import Callable

from terrazzo.errors import KernelError
from terrazzo.ir.graph import Graph, index_values
from terrazzo.ir.ops import Kernel, Load, Loop, LoopVar
from terrazzo.ir.types import DType, Value, bf16, f16
from terrazzo.targets.cpu.builder import LANES, VB, VF, VI, Function, W, isplat
from terrazzo.targets.cpu.dots import DotEmitter
from terrazzo.targets.cpu.evaluate import Evaluator, tail_helpers
from terrazzo.targets.cpu.frame import Frame, element_type, phase_name
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.micro import Micro
from terrazzo.targets.cpu.nest import (
    Copy,
    Dot,
    ForLoop,
    Level,
    Nest,
    NestStmt,
    Phase,
    Program,
    Root,
)
from terrazzo.targets.cpu.schedule import schedule

UNROLL = 4
FEW = 4  # units a thread up to which they are dealt out in advance
STATIC_CHUNKS = 8  # a column loop of at most this many known chunks is written out


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
    ) -> None:
        self.program, self.phase, self.isa = program, phase, isa
        args = [("ptr", "table"), ("i32", "tid"), ("i32", "threads")]
        self.f = Function(name, args)
        self.fr = Frame(program, self.f)
        self.graph = Graph(program.kernel)
        self.ev = Evaluator(self.fr, self.graph, helpers)
        self.dots = DotEmitter(self.fr, self.ev, self.graph, isa, pieces)
        self.pieces = pieces
        self.trip: str | None = None

    def emit(self) -> Function:
        f = self.f
        self.fr.read_table()
        self.fr.bind_scratch()
        if self.phase.grid is None:
            f.when(
                f.op("icmp eq i32 %tid, 0"), lambda: self.scoped(lambda: self.body(self.phase.body))
            )
        else:
            self.grid(self.phase.grid)
        f.put("ret void")
        return f

    def scoped(self, body: Callable[[], None]) -> None:
        self.fr.scopes.append({})
        body()
        self.fr.scopes.pop()

    # -- grids and loops ------------------------------------------------------------------------
    def bound(self, v: Value) -> str:
        return self.f.wide(self.ev.scalar(v))

    def grid(self, g: Loop) -> None:
        """Blocks are equal and as large as `step` allows; when threads share the work evenly
        anyway, the longest axis is cut into a multiple of the thread count."""
        f = self.f
        threads = f.wide("%threads")
        sizes: list[str | None] = []
        counts: list[str] = []
        spans: list[str] = []
        for v in g.vars:
            span = f.max(f.sub(self.bound(v.hi), self.bound(v.lo)), 0)
            spans.append(span)
            if v.step is None:
                sizes.append(None)
                counts.append(span)
                continue
            grain = W if v.step % W == 0 else 1
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
                else:
                    begin = f.mul(at, size)
                    self.fr.starts[v.name] = f.add(lo, begin)
                    self.fr.extents[v.name] = f.min(size, f.sub(span, begin))
            self.body(self.phase.body)

        tid = f.wide("%tid")
        first = f.op(f"sdiv i64 {f.mul(total, tid)}, {threads}")
        last = f.op(f"sdiv i64 {f.mul(total, f.add(tid, 1))}, {threads}")
        if self.phase.dynamic:
            self.take_turns(total, first, last, unit)
        else:
            f.loop(first, last, 1, [], lambda u, _: self.scoped(lambda: unit(u)))

    @staticmethod
    def _widest(g: Loop) -> LoopVar:
        """The variable to cut for balance: the last one with a step (the columns of a product)."""
        return [v for v in g.vars if v.step is not None][-1]

    def take_turns(self, total: str, first: str, last: str, unit: Callable[[str], None]) -> None:
        """Many units come from a shared counter, last first: causal attention's later blocks are the
        heavier ones. Few units have fixed threads: a sequence that decodes stays where its keys and
        values are cached."""
        f = self.f
        head, shared, mine = f.fresh("take"), f.fresh("shared"), f.fresh("mine")
        inside, done, out = f.fresh("unit"), f.fresh("check"), f.fresh("none")
        many = f.op(f"icmp sgt i64 {total}, {f.mul(f.wide('%threads'), FEW)}")
        begin, at, after = f.current, "%" + f.fresh("i"), "%" + f.fresh("n")
        f.put(f"br label %{head}")
        f.label(head)
        phi = len(f.lines)
        f.put("")
        f.put(f"br i1 {many}, label %{shared}, label %{mine}")
        f.label(shared)
        counter = f.gep("%table", 3, "i64")
        ticket = f.op(f"atomicrmw add ptr {counter}, i64 1 monotonic")
        taken = f.sub(f.add(total, -1), ticket)
        f.put(f"br label %{done}")
        f.label(mine)
        f.put(f"br label %{done}")
        f.label(done)
        u = f.op(f"phi i64 [ {taken}, %{shared} ], [ {at}, %{mine} ]")
        more = f.op(
            f"select i1 {many}, i1 {f.op(f'icmp sge i64 {u}, 0')}, "
            f"i1 {f.op(f'icmp slt i64 {u}, {last}')}"
        )
        f.put(f"br i1 {more}, label %{inside}, label %{out}")
        f.label(inside)
        self.scoped(lambda: unit(u))
        f.put(f"{after} = add nsw i64 {at}, 1")
        f.lines[phi] = f"  {at} = phi i64 [ {first}, %{begin} ], [ {after}, %{f.current} ]"
        f.put(f"br label %{head}")
        f.label(out)

    def set_scalar(self, v: LoopVar, at: str) -> None:
        if v.var is not None:
            self.fr.keep((v.var.id, None), self.f.narrow(at))

    def for_loop(self, s: ForLoop) -> None:
        f = self.f
        v = s.loop.vars[0]
        lo, hi = self.bound(v.lo), self.bound(v.hi)
        if s.empty:
            f.when(
                f.op(f"icmp sge i64 {lo}, {hi}"), lambda: self.scoped(lambda: self.body(s.empty))
            )
        for c in s.loop.carries:
            if c.var.axes:
                self.ev.buf_of[c.var.id] = self.program.placed[c.result.id]
        kinds = [("float" if _float(c.var) else "i32", self.ev.scalar(c.init)) for c in s.scalars]

        def trip(iv: str, phis: list[str]) -> list[str]:
            self.fr.scopes.append({})
            for c, phi in zip(s.scalars, phis, strict=True):
                self.fr.keep((c.var.id, None), phi)
            if v.step is None:
                self.set_scalar(v, iv)
            else:
                self.fr.starts[v.name] = iv
                self.fr.extents[v.name] = f.min(f.sub(hi, iv), v.step)
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
                self.nest(s)
            elif isinstance(s, Dot):
                self.dots.dot(s, self.trip)
                self.ev.buf_of[s.op.result.id] = s.c
            elif isinstance(s, Copy):
                self.f.call("void", "llvm.memcpy.p0.p0.i64", [
                    ("ptr", self.fr.addresses[s.dst.name]), ("ptr", self.fr.addresses[s.src.name]),
                    ("i64", self.fr.bytes(s.dst)), ("i1", "false")])  # fmt: skip
            else:
                self.for_loop(s)

    # -- nests ----------------------------------------------------------------------------------
    def nest(self, s: Nest) -> None:
        passing = [
            r.value.id for level in s.levels for r in level.roots if r.buf and r.buf.kind == "row"
        ]

        first = s.levels[0].roots[0]
        if first.kind == "pack" and first.buf is not None and s.levels[0].col == first.buf.axes[0]:
            self.pack_across(first, s.rows[0], first.buf.axes[0])
            return

        def rows(left: tuple[str, ...]) -> None:
            if left:
                axis = left[0]

                def one(iv: str, _: list[str]) -> None:
                    self.fr.position[axis] = iv
                    self.scoped(lambda: rows(left[1:]))
                    del self.fr.position[axis]

                self.f.loop(0, self.fr.extent(axis), 1, [], one)
                return
            for level in s.levels:
                self.level(level)

        self.scoped(lambda: rows(s.rows))
        for v in passing:
            self.ev.buf_of.pop(v, None)

    def pack_across(self, r: Root, n: str, k: str) -> None:
        """A B operand that is contiguous along k: 16 rows of 16 at a time are transposed into a
        panel. Rows past the end repeat the last one; their columns are never stored."""
        f, ev, fr = self.f, self.ev, self.fr
        ext_n, ext_k = fr.extent(n), fr.extent(k)
        last = f.sub(ext_n, 1)

        def block(j: str, _: list[str]) -> None:
            rows = [f.min(f.add(j, i), last) for i in range(W)]

            def chunk(c: str, mask: tuple[str, str] | None) -> None:
                ev.col, ev.chunk, ev.mask = k, c, mask
                tile: list[str] = []
                for row in rows:
                    fr.position[n] = row
                    fr.scopes.append({})
                    tile.append(self.as_stored(r.value, ev.vector(r.value), True))
                    fr.scopes.pop()
                del fr.position[n]
                ev.col, ev.chunk, ev.mask = None, None, None
                self.dots.put_square(r, j, c, transposed(f, tile), mask)

            full = f.op(f"and i64 {ext_k}, {-W}")
            fr.loop(0, f.op(f"lshr i64 {full}, 4"), lambda c: chunk(f.mul(c, W), None))
            f.when(
                f.op(f"icmp slt i64 {full}, {ext_k}"),
                lambda: self.scoped(lambda: chunk(full, self.mask(f.sub(ext_k, full)))),
            )

        f.loop(0, ext_n, W, [], lambda j, a: self.scoped(lambda: block(j, a)))

    def level(self, level: Level) -> None:
        for r in level.roots:
            if r.kind == "quantize":
                self.dots.quantize(r)
            elif r.kind == "decode":
                self.dots.decode_row(r)
        roots = [r for r in level.roots if r.kind not in ("quantize", "decode")]
        if roots and level.col is None:
            done = [(r, self.ev.scalar(r.value)) for r in roots]
            for r, x in done:
                if r.kind == "store" and r.store is not None:
                    self.ev.store(r.store)
                elif r.buf is not None:
                    self.put_scalar(r, x)
        elif roots and level.col is not None:
            self.columns(level.col, roots)
        for r in level.roots:
            if r.buf is not None and r.kind in ("mat", "reduce", "decode"):
                self.ev.buf_of[r.value.id] = r.buf

    def put_scalar(self, r: Root, x: str) -> None:
        """A value of the current row into its buffer (floats as f32, integers as i32)."""
        if r.buf is None:
            return
        t = "float" if _float(r.value) else "i32"
        self.f.store(t, self.as_stored(r.value, x, False), self.fr.element_of(r.buf), 4)

    def as_stored(self, v: Value, x: str, vec: bool) -> str:
        if v.dtype in (f16, bf16):
            return self.ev.widen(x, v, vec)
        if isinstance(v.dtype, DType) and v.dtype.kind != "float" and v.dtype.bits < 32:
            t = "i1" if v.dtype.kind == "bool" else element_type(v.dtype)
            ext = "sext" if v.dtype.kind == "int" else "zext"
            return self.f.op(f"{ext} {f'<{W} x {t}>' if vec else t} {x} to {VI if vec else 'i32'}")
        return x

    def columns(self, col: str, roots: list[Root]) -> None:
        """One loop over a column axis: full chunks (unrolled), then a masked tail."""
        f, ev = self.f, self.ev
        ext = self.fr.extent(col)
        reduces = [r for r in roots if r.kind == "reduce"]
        ev.col = col
        self.prehoist(roots)
        accs: list[tuple[str, str]] = []
        for r in reduces:
            accs += self.identity(r)

        def chunk(c: str, mask: tuple[str, str] | None, acc: list[str]) -> list[str]:
            self.fr.scopes.append({})
            ev.chunk, ev.mask = c, mask
            work = [r for r in roots if r.kind != "reduce"]
            values = [self.ev.vector(r.value) if r.kind != "store" else self.touch(r) for r in work]
            for r, x in zip(work, values, strict=True):
                if r.kind == "store" and r.store is not None:
                    ev.store(r.store)
                elif r.kind == "pack":
                    self.dots.put_panel(r, x)
                elif r.buf is not None:
                    x = self.as_stored(r.value, x, True)
                    t = "float" if _float(r.value) else "i32"
                    at = f.gep(self.fr.row_of(r.buf), c, "float")
                    f.store(f"<{W} x {t}>", x, at, 4)
            out: list[str] = []
            rest = list(acc)
            for r in reduces:
                n = len(self.identity(r))
                out += self.combine(r, rest[:n], c, mask)
                rest = rest[n:]
            ev.chunk, ev.mask = None, None
            self.fr.scopes.pop()
            return out

        if ext.isdigit() and int(ext) <= STATIC_CHUNKS * W:
            acc = [x for _, x in accs]
            for c in range(0, int(ext), W):
                left = int(ext) - c
                acc = chunk(str(c), None if left >= W else self.mask(str(left)), acc)
        else:
            acc = self.strip(ext, accs, chunk)
        ev.col = None
        rest = acc
        for r in reduces:
            n = len(self.identity(r))
            self.put_scalar(r, self.fold(r, rest[:n]))
            rest = rest[n:]

    def strip(
        self, ext: str, accs: list[tuple[str, str]], chunk: Callable[..., list[str]]
    ) -> list[str]:
        f = self.f
        wide = f.op(f"and i64 {ext}, {-W * UNROLL}")
        full = f.op(f"and i64 {ext}, {-W}")

        def many(c: str, acc: list[str]) -> list[str]:
            for u in range(UNROLL):
                acc = chunk(f.add(c, u * W), None, acc)
            return acc

        acc = f.loop(0, wide, W * UNROLL, accs, many)
        types = [t for t, _ in accs]
        acc = f.loop(
            wide, full, W, list(zip(types, acc, strict=True)), lambda c, a: chunk(c, None, a)
        )
        # the tail runs at most once; written as a loop so that its accumulators join up
        return f.loop(full, ext, W, list(zip(types, acc, strict=True)),
                      lambda c, a: chunk(c, self.mask(f.sub(ext, c)), a))  # fmt: skip

    def mask(self, left: str) -> tuple[str, str]:
        f = self.f
        n = f.splat("i32", f.narrow(left))
        return f.op(f"icmp sgt {VI} {n}, {LANES}"), left

    def touch(self, r: Root) -> str:
        """Evaluate everything a store needs before any store of this chunk is made."""
        if r.store is not None:
            for v in index_values(r.store):
                self.ev.arg(v, self.ev.is_vector(v))
        return self.ev.arg(r.value, self.ev.is_vector(r.value))

    def prehoist(self, roots: list[Root]) -> None:
        """Evaluate, before the column loop, what does not change along it."""
        seen: set[int] = set()

        def visit(v: Value) -> None:
            if v.id in seen:
                return
            seen.add(v.id)
            if not self.ev.is_vector(v):
                if self.graph.const(v) is None:
                    self.ev.vector(v)
                return
            if v.id in self.ev.buf_of:
                b = self.ev.buf_of[v.id]
                if b.axes and b.axes[-1] == self.ev.col:
                    self.fr.row_of(b)
                return
            d = self.graph.defs[v.id]
            if isinstance(d, Load):
                self.ev.place_of(d)
            for x in self.graph.args(v):
                visit(x)

        for r in roots:
            for v in self.graph.args(r.value) if r.kind == "reduce" else (r.value,):
                visit(v)
            if r.store is not None:
                self.ev.place_of(r.store)
                for v in index_values(r.store):
                    visit(v)
            if r.buf is not None and r.kind == "mat":
                self.fr.row_of(r.buf)

    # -- reductions -----------------------------------------------------------------------------
    def kind_of(self, r: Root) -> tuple[str, Value]:
        op = self.graph.op(r.value)
        if op is None:
            raise KernelError("internal: a reduction without its operation")
        return str(op.attr("kind")), op.args[0]

    def identity(self, r: Root) -> list[tuple[str, str]]:
        kind, x = self.kind_of(r)
        fl = _float(x)
        if kind == "sum":
            return [(VF if fl else VI, "zeroinitializer")]
        low = kind in ("max", "argmax")
        if fl:
            value = (
                "splat (float 0xFFF0000000000000)" if low else "splat (float 0x7FF0000000000000)"
            )
        else:
            signed = isinstance(x.dtype, DType) and x.dtype.kind == "int"
            value = isplat((-(2**31) if signed else 0) if low else (2**31 - 1 if signed else -1))
        first = [(VF if fl else VI, value)]
        return [*first, (VI, isplat(2**31 - 1))] if kind == "argmax" else first

    def combine(self, r: Root, acc: list[str], c: str, mask: tuple[str, str] | None) -> list[str]:
        """Lane l of the accumulator takes columns l, l + 16, ... in order: the order depends on
        nothing but the extent."""
        f = self.f
        kind, v = self.kind_of(r)
        t, start = self.identity(r)[0]
        x = self.as_stored(v, self.ev.vector(v), True)
        if mask is not None:
            x = f.op(f"select {VB} {mask[0]}, {t} {x}, {t} {start}")
        if kind != "argmax":
            return [self.two(kind, v, acc[0], x)]
        op = "fcmp ogt" if t == VF else f"icmp {'ugt' if _unsigned(v) else 'sgt'}"
        better = f.op(f"{op} {t} {x}, {acc[0]}")
        fresh = f.op(f"icmp eq {VI} {acc[1]}, {isplat(2**31 - 1)}")
        if mask is not None:
            fresh = f.op(f"and {VB} {fresh}, {mask[0]}")
        better = f.op(f"or {VB} {better}, {fresh}")
        begin = f.splat("i32", f.narrow(f.add(self.fr.start(self.ev.col or ""), c)))
        at = f.op(f"add {VI} {begin}, {LANES}")
        return [f.op(f"select {VB} {better}, {t} {x}, {t} {acc[0]}"),
                f.op(f"select {VB} {better}, {VI} {at}, {VI} {acc[1]}")]  # fmt: skip

    def two(self, kind: str, v: Value, a: str, b: str) -> str:
        """One combining step on 16 lanes. max and min let a NaN through."""
        f = self.f
        if not _float(v):
            if kind == "sum":
                return f.op(f"add {VI} {a}, {b}")
            cmp = ("u" if _unsigned(v) else "s") + ("gt" if kind == "max" else "lt")
            return f.op(f"select {VB} {f.op(f'icmp {cmp} {VI} {b}, {a}')}, {VI} {b}, {VI} {a}")
        if kind == "sum":
            return f.op(f"fadd {VF} {a}, {b}")
        order = "ugt" if kind == "max" else "ult"  # unordered: a NaN in b is taken
        y = f.op(f"select {VB} {f.op(f'fcmp {order} {VF} {b}, {a}')}, {VF} {b}, {VF} {a}")
        return f.op(f"select {VB} {f.op(f'fcmp uno {VF} {a}, {a}')}, {VF} {a}, {VF} {y}")

    def fold(self, r: Root, acc: list[str]) -> str:
        """16 lanes to one by halves: (l, l + 8), then 4, 2, 1 apart."""
        f = self.f
        kind, v = self.kind_of(r)
        t = self.identity(r)[0][0]
        x = acc[0]
        half = 8
        index = acc[1] if kind == "argmax" else ""
        while half:
            pick = ", ".join(f"i32 {(i + half) % W}" for i in range(W))
            y = f.op(f"shufflevector {t} {x}, {t} {x}, {VI} <{pick}>")
            if kind == "argmax":
                other = f.op(f"shufflevector {VI} {index}, {VI} {index}, {VI} <{pick}>")
                cmp = "fcmp o" if t == VF else f"icmp {'u' if _unsigned(v) else 's'}"
                gt = f.op(f"{cmp}gt {t} {y}, {x}")
                eq = f.op(f"{'fcmp o' if t == VF else 'icmp '}eq {t} {y}, {x}")
                lower = f.op(f"and {VB} {eq}, {f.op(f'icmp ult {VI} {other}, {index}')}")
                take = f.op(f"or {VB} {gt}, {lower}")
                index = f.op(f"select {VB} {take}, {VI} {other}, {VI} {index}")
                x = f.op(f"select {VB} {take}, {t} {y}, {t} {x}")
            else:
                x = self.two(kind, v, x, y)
            half //= 2
        if kind == "argmax":
            return f.op(f"extractelement {VI} {index}, i32 0")
        out = f.op(f"extractelement {t} {x}, i32 0")
        if r.value.dtype in (f16, bf16):  # buffers keep the rounded value as f32
            return self.ev.round_to(out, r.value, False)
        return out


def _float(v: Value) -> bool:
    """Whether v is f32 (or narrower floats, or a decoded packed value) in a register."""
    return not isinstance(v.dtype, DType) or v.dtype.kind == "float"


def _unsigned(v: Value) -> bool:
    return isinstance(v.dtype, DType) and v.dtype.kind == "uint"


def transposed(f: Function, rows: list[str]) -> list[str]:
    """A 16 x 16 tile by four rounds of interleaving row i with row i + 8."""
    for _ in range(4):
        out: list[str] = []
        for i in range(W // 2):
            for half in (0, W // 2):
                pick = ", ".join(f"i32 {half + x}, i32 {W + half + x}" for x in range(W // 2))
                out.append(
                    f.op(f"shufflevector {VF} {rows[i]}, {VF} {rows[i + W // 2]}, {VI} <{pick}>")
                )
        rows = out
    return rows


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


def lower(kernel: Kernel, isa: Isa) -> tuple[str, tuple[str, ...], Program]:
    """A kernel's LLVM IR text, the names of its phases, and its nest IR."""
    program = schedule(kernel)
    pieces: dict[str, Micro] = {}
    helpers: set[str] = set()
    functions: list[Function] = []
    names: list[str] = []
    for n, phase in enumerate(program.phases):
        name = phase_name(kernel, n)
        functions.append(PhaseEmitter(program, phase, name, isa, pieces, helpers).emit())
        names.append(name)
    functions += [emit_scratch(program), emit_count(program), *tail_helpers(helpers)]
    decls: set[str] = set().union(*(f.decls for f in functions))
    decls = decls.union(*(p.decls for p in pieces.values()))
    text = "\n".join(
        [*sorted(decls), *(f.text() for f in functions), *(p.text for p in pieces.values())]
    )
    return text, tuple(names), program
