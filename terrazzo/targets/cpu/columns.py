"""Emission of nests: row loops, and in them column loops in chunks of 16 lanes."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from terrazzo.ir.graph import Graph, index_values
from terrazzo.ir.ops import Load, Op
from terrazzo.ir.types import Value
from terrazzo.targets.cpu.around import Around
from terrazzo.targets.cpu.builder import W
from terrazzo.targets.cpu.dots import DotEmitter
from terrazzo.targets.cpu.evaluate import Evaluator
from terrazzo.targets.cpu.frame import Frame
from terrazzo.targets.cpu.nest import Level, Nest, Root
from terrazzo.targets.cpu.pairs import PairPacker, transposed
from terrazzo.targets.cpu.reduce import Reducer, as_stored, is_float
from terrazzo.targets.cpu.streams import Streams

Join = Callable[[str, str], str]
UNROLL = 4
STATIC_CHUNKS = 8  # a column loop of at most this many known chunks is written out


class NestEmitter:
    def __init__(self, frame: Frame, ev: Evaluator, graph: Graph, dots: DotEmitter) -> None:
        self.fr, self.f, self.ev, self.graph, self.dots = frame, frame.f, ev, graph, dots
        self.reducer = Reducer(frame, ev, graph)
        self.pairs = PairPacker(frame, ev, dots)
        self.around = Around(frame, ev)
        self.streams = Streams(frame, ev, graph)

    def nest(self, s: Nest) -> None:
        passing = [
            r.value.id for level in s.levels for r in level.roots if r.buf and r.buf.kind == "row"
        ]

        first = s.levels[0].roots[0]
        if first.kind == "pack" and first.buf is not None and first.buf.kind == "pairs":
            along_k = s.levels[0].col == first.buf.axes[0]
            (self.pairs.across if along_k else self.pairs.along)(first, first.buf)
            return
        if first.kind == "pack" and first.buf is not None and s.levels[0].col == first.buf.axes[0]:
            self.pack_across(first, s.rows[0], first.buf.axes[0])
            return

        def rows(left: tuple[str, ...]) -> None:
            if left:
                axis = left[0]

                def one(iv: str, _: list[str]) -> None:
                    self.fr.position[axis] = iv
                    self.fr.scoped(lambda: rows(left[1:]))
                    del self.fr.position[axis]

                self.f.loop(0, self.fr.extent(axis), 1, [], one)
                return
            for level in s.levels:
                self.streams.enter(level)
                self.level(level)

        def all_rows() -> None:
            large = self.around.prepare(s)
            self.streams.begin(s, large is not None)
            rows(s.rows)
            if large is not None:  # such stores are ordered by fences alone
                self.f.when(large, lambda: self.f.put("fence seq_cst"))

        self.fr.scoped(all_rows)
        for v in passing:
            self.ev.buf_of.pop(v, None)

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
                    self.ev.memory.store(r.store)
                elif r.expect is not None:
                    self.ev.guards.expect(r.expect, x)
                elif r.buf is not None:
                    self.put_scalar(r, x)
        elif roots and level.col is not None:
            self.prefixed(level.col, roots)
        for r in level.roots:
            if r.buf is not None and r.kind in ("mat", "reduce", "decode"):
                self.ev.buf_of[r.value.id] = r.buf

    def put_scalar(self, r: Root, x: str) -> None:
        """A value of the current row into its buffer (floats as f32, integers as i32)."""
        if r.buf is None:
            return
        t = "float" if is_float(r.value) else "i32"
        self.f.store(t, as_stored(self.ev, r.value, x, False), self.fr.element_of(r.buf), 4)

    def prefixed(self, col: str, roots: list[Root]) -> None:
        """A column loop; twice where a `where` in it asks for `index(col) <= limit` (causal
        attention): rows whose columns all lie within the limit take the loop without it."""
        f, ev = self.f, self.ev
        limited = self.limited(col, roots)
        if limited is None:
            self.columns(col, roots)
            return
        limit = f.wide(ev.scalar(limited.args[1]))
        end = f.add(self.fr.start(col), self.fr.extent(col))
        free = f.op(f"icmp sle i64 {end}, {f.add(limit, 1)}")

        def without() -> None:
            ev.holds.add(limited.result.id)
            self.fr.scoped(lambda: self.columns(col, roots))
            ev.holds.remove(limited.result.id)

        f.when(free, without)
        f.when(
            f.op(f"xor i1 {free}, true"), lambda: self.fr.scoped(lambda: self.columns(col, roots))
        )

    def limited(self, col: str, roots: list[Root]) -> Op | None:
        """The condition `index(col) <= limit` of a `where` that the roots evaluate."""
        seen: set[int] = set()
        stack = [v for r in roots for v in (self.graph.args(r.value) if r.buf else (r.value,))]
        while stack:
            v = stack.pop()
            if v.id in seen or v.id in self.ev.buf_of:
                continue
            seen.add(v.id)
            op = self.graph.op(v)
            if op is not None and op.op == "where":
                c = self.graph.op(op.args[0])
                at = self.graph.op(c.args[0]) if c is not None and c.op == "le" else None
                runs = at is not None and at.op == "index" and at.attr("axis") == col
                if c is not None and runs and col not in c.args[1].axes:
                    return c
            stack += self.graph.args(v)
        return None

    def columns(self, col: str, roots: list[Root]) -> None:
        """One loop over a column axis: full chunks (unrolled), then a masked tail."""
        f, ev = self.f, self.ev
        ext = self.fr.extent(col)
        reduces = [r for r in roots if r.kind == "reduce"]
        ev.col = col
        self.prehoist(roots)
        accs: list[tuple[str, str]] = []
        joins: list[Join | None] = []
        for r in reduces:
            start = self.reducer.identity(r)
            accs += start
            joins += [self.reducer.join(r)] * len(start)

        def chunk(c: str, mask: tuple[str, str] | None, acc: list[str]) -> list[str]:
            self.fr.scopes.append({})
            ev.chunk, ev.mask = c, mask
            work = [r for r in roots if r.kind != "reduce"]
            values = [self.ev.vector(r.value) if r.kind != "store" else self.touch(r) for r in work]
            for r in reduces:
                self.ev.vector(self.reducer.kind_of(r)[1])  # what a store here may write over
            for r, x in zip(work, values, strict=True):
                if r.kind == "store" and r.store is not None:
                    ev.memory.store(r.store)
                elif r.kind == "pack":
                    self.dots.put_panel(r, x)
                elif r.buf is not None:
                    x = as_stored(self.ev, r.value, x, True)
                    t = "float" if is_float(r.value) else "i32"
                    at = f.gep(self.fr.row_of(r.buf), c, "float")
                    f.store(f"<{W} x {t}>", x, at, 4)
            out: list[str] = []
            rest = list(acc)
            for r in reduces:
                n = len(self.reducer.identity(r))
                out += self.reducer.combine(r, rest[:n], c, mask)
                rest = rest[n:]
            ev.chunk, ev.mask = None, None
            self.fr.scopes.pop()
            return out

        if ext.isdigit() and int(ext) <= STATIC_CHUNKS * W:
            acc = [x for _, x in accs]
            for c in range(0, int(ext), W):
                left = int(ext) - c
                acc = chunk(str(c), None if left >= W else self.ev.lanes(str(left)), acc)
        else:
            acc = self.strip(ext, accs, joins, chunk, self.around.condition(roots))
        ev.col = None
        rest = acc
        for r in reduces:
            n = len(self.reducer.identity(r))
            self.put_scalar(r, self.reducer.fold(r, rest[:n]))
            rest = rest[n:]

    def strip(
        self,
        ext: str,
        accs: list[tuple[str, str]],
        joins: list[Join | None],
        chunk: Callable[..., list[str]],
        around: tuple[str, frozenset[str]] | None,
    ) -> list[str]:
        """Chunks of the whole extent, in order, most of them stored around the caches if
        `around` (see around.py) holds. An accumulator that may be joined in any order
        takes turns in several registers, so that a chunk does not wait for the one before."""
        f, ev = self.f, self.ev
        wide = f.op(f"and i64 {ext}, {-W * UNROLL}")
        full = f.op(f"and i64 {ext}, {-W}")
        spread = [acc for acc, join in zip(accs, joins, strict=True) for _ in _turns(join)]
        firsts = [sum(len(_turns(x)) for x in joins[:n]) for n in range(len(joins))]

        ahead = self.streams.next_rows()

        def many(c: str, acc: list[str]) -> list[str]:
            acc = list(acc)
            for u in range(UNROLL):
                if ev.around or around is None:
                    self.streams.fetch(ahead, f.add(c, u * W), u)
                at = [n + _turns(x)[u % len(_turns(x))] for n, x in zip(firsts, joins, strict=True)]
                new = chunk(f.add(c, u * W), None, [acc[n] for n in at])
                for n, x in zip(at, new, strict=True):
                    acc[n] = x
            return acc

        start = "0"
        if around is not None:
            start = f.op(f"select i1 {around[0]}, i64 {wide}, i64 0")
            ev.around = around[1]
            done = f.loop(0, start, W * UNROLL, spread, many)
            ev.around = frozenset()
            spread = [(t, x) for (t, _), x in zip(spread, done, strict=True)]
        done = f.loop(start, wide, W * UNROLL, spread, many)
        acc: list[str] = []
        for n, join in zip(firsts, joins, strict=True):
            acc.append(done[n] if join is None else reduce(join, done[n : n + UNROLL]))
        types = [t for t, _ in accs]
        acc = f.loop(
            wide, full, W, list(zip(types, acc, strict=True)), lambda c, a: chunk(c, None, a)
        )
        # the tail runs at most once; written as a loop so that its accumulators join up
        return f.loop(full, ext, W, list(zip(types, acc, strict=True)),
                      lambda c, a: chunk(c, ev.lanes(f.sub(ext, c)), a))  # fmt: skip

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
                self.ev.memory.place_of(d)
            for x in self.graph.args(v):
                visit(x)

        for r in roots:
            for v in self.graph.args(r.value) if r.kind == "reduce" else (r.value,):
                visit(v)
            if r.store is not None:
                self.ev.memory.place_of(r.store)
                for v in index_values(r.store):
                    visit(v)
            if r.buf is not None and r.kind == "mat":
                self.fr.row_of(r.buf)

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
                    tile.append(as_stored(ev, r.value, ev.vector(r.value), True))
                    fr.scopes.pop()
                del fr.position[n]
                ev.col, ev.chunk, ev.mask = None, None, None
                self.dots.put_square(r, j, c, transposed(f, tile), mask)

            full = f.op(f"and i64 {ext_k}, {-W}")
            fr.loop(0, f.op(f"lshr i64 {full}, 4"), lambda c: chunk(f.mul(c, W), None))
            f.when(
                f.op(f"icmp slt i64 {full}, {ext_k}"),
                lambda: self.fr.scoped(lambda: chunk(full, self.ev.lanes(f.sub(ext_k, full)))),
            )

        f.loop(0, ext_n, W, [], lambda j, a: self.fr.scoped(lambda: block(j, a)))


def _turns(join: Join | None) -> range:
    return range(1 if join is None else UNROLL)
