"""Fusing of roots into nests: which loops produce the values that get memory.

Roots that are pending together and have the same row axes share one row loop; inside it, one column
loop per level of reductions. Expensive values wanted by two column loops go through a row buffer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from terrazzo.errors import KernelError
from terrazzo.ir.graph import index_axes, walk
from terrazzo.ir.ops import Kernel, Load, Loop, Stmt
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, Value
from terrazzo.targets.cpu.access import unit_axis
from terrazzo.targets.cpu.effects import Effects
from terrazzo.targets.cpu.nest import Buf, Level, Nest, NestStmt, Root
from terrazzo.targets.cpu.values import Values
from terrazzo.targets.cpu.vecmath import EXPENSIVE


class NestBuilder(Values):
    """The memory plan so far and the fusing of roots into nests."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.bufs: list[Buf] = []
        self.placed: dict[int, Buf] = {}
        self.out: list[NestStmt] = []
        self.pending: list[Root] = []
        self.trip: set[int] = set()  # carry variables whose first trip starts from zero
        self.effects = Effects(kernel, self.graph)
        self.loaded: list[Load] = []  # loads whose values may still be wanted
        self.here = -1  # position of the last statement that is dealt with

    # -- small helpers --------------------------------------------------------------------------
    def buf(self, axes: Iterable[str], kind: str = "tile", name: str = "", planes: int = 1) -> Buf:
        name = f"{name or 'b'}{len(self.bufs)}"
        b = Buf(name, tuple(axes), kind, planes)  # type: ignore[arg-type]
        self.bufs.append(b)
        return b

    def place(self, v: Value, b: Buf) -> None:
        self.mat[v.id] = b
        self.placed[v.id] = b

    def fail(self, what: str, stmt: Stmt, remedy: str = "") -> KernelError:
        return mark(KernelError(what, remedy), getattr(stmt, "loc", None))

    # -- nests ----------------------------------------------------------------------------------
    def shape(self, r: Root) -> tuple[tuple[str, ...], str | None]:
        """(row axes, column axis) of a root."""
        if r.kind == "expect":
            return (), None
        if r.kind == "reduce":
            op = self.graph.op(r.value)
            if op is None:
                raise KernelError("a reduction was lost")
            return r.value.axes, str(op.attr("axis"))
        if r.kind in ("store", "quantize") and r.store is not None:
            axes = index_axes(r.store)
            unit = unit_axis(self.graph, r.store)
            if unit is None:
                inner = [a for a in r.value.axes if a in axes]
                unit = inner[-1] if inner else (axes[-1] if axes else None)
            col = unit
        elif r.packed is not None or r.buf is not None:
            axes = (r.packed or r.buf).axes  # pyright: ignore[reportOptionalMemberAccess]
            col = axes[-1] if axes else None
            if r.kind == "pack":
                k, n = axes
                along_k = any(unit_axis(self.graph, x) == k for x in self.loads(r.value, n))
                return ((n,), k) if along_k else ((k,), n)
        else:
            raise KernelError("a root without a place")
        if r.kind != "quantize" and len(axes) >= 1 and self.reaches([r.value], "reduce"):
            needed = self.reaches([r.value], "reduce")
            # a value per row of a reduction belongs to that row
            if any(set(v.axes) == set(axes) for v in needed):
                return axes, None
        return tuple(a for a in axes if a != col), col

    def need(self, values: Iterable[Value]) -> None:
        """Make sure that `values` (scalars about to be used) need no reduction any more."""
        values = list(values)
        for v in self.reaches(values, "reduce"):
            self.need_reduce(v)

    def need_reduce(self, v: Value) -> None:
        b = self.buf(v.axes, name="r")
        self.nests([Root("reduce", v, b)])
        self.place(v, b)

    def flush(self) -> None:
        """Emit what is pending. A value written to a carried buffer is not thereby placed: the
        buffer will change."""
        roots, self.pending = self.pending, []
        if roots:
            self.settle(self.endangered(roots))
            self.nests(roots)
        for r in roots:
            if r.kind == "mat" and r.buf is not None and not r.buf.name.startswith("acc"):
                self.place(r.value, r.buf)
            elif r.packed is not None:
                self.place(r.value, r.packed)

    def endangered(self, roots: list[Root]) -> list[Load]:
        """Virtual loads that the stores among `roots` would change before their last use, unless
        they are read in the same column loop, at the place that is written (then `nest` sees to
        the order)."""
        out: dict[int, Load] = {}
        for r in roots:
            if r.store is None:
                continue
            for load in self.loaded:
                v = load.result
                if v.id in self.mat or v.id in out or not self.effects.conflict(load, r.store):
                    continue
                readers = [x for x in roots if v.id in self.under(x)]
                together = not readers or (
                    load.index == r.store.index
                    and all(self.shape(x) == self.shape(r) for x in readers)
                )
                if self.effects.last_use(v) > self.here or not together:
                    out[v.id] = load
        return list(out.values())

    def settle(self, loads: list[Load]) -> None:
        """Write loaded values down before a store changes them in memory."""
        for load in loads:
            v = load.result
            if not isinstance(v.dtype, DType):
                raise self.fail(
                    f"`{load.param}` is stored to before this packed tile is used", load,
                    "decode it with .to(tz.f32) and store to another tensor",
                )  # fmt: skip
            b = self.buf(v.axes, name="s")
            self.nests([Root("mat", v, b)])
            self.place(v, b)

    def nests(self, roots: list[Root]) -> None:
        groups: dict[frozenset[str], tuple[tuple[str, ...], list[tuple[Root, str | None]]]] = {}
        for r in roots:
            rows, col = self.shape(r)
            groups.setdefault(frozenset(rows), (rows, []))[1].append((r, col))
        for rows, members in groups.values():
            self.nest(rows, members)

    def nest(self, rows: tuple[str, ...], members: list[tuple[Root, str | None]]) -> None:
        for v in self.gathered(rows, members):
            b = self.buf(v.axes, name="g")
            self.nests([Root("mat", v, b)])
            self.place(v, b)
        level_of: dict[int, int] = {}
        reduces: dict[int, Root] = {}

        def level(v: Value) -> int:
            """First level at which v can be evaluated; registers this nest's reductions on the
            way."""
            best = 0
            for red in self.reaches([v], "reduce"):
                if red.id not in level_of:
                    if set(red.axes) != set(rows):
                        self.need_reduce(red)
                        continue
                    args = self.graph.args(red)
                    level_of[red.id] = level(args[0])
                    reduces[red.id] = Root("reduce", red, self.buf(red.axes, name="r"))
                best = max(best, level_of[red.id] + 1)
            return best

        placed: list[tuple[int, str | None, Root]] = []
        carried = {
            c.var.id for s in walk(self.kernel.body) if isinstance(s, Loop) for c in s.carries
        }
        carry_bufs = {b.name for i, b in self.mat.items() if i in carried}
        decoded: set[int] = set()
        for r, col in members:
            for v in self.decodes(r.value):
                if v.id not in decoded and col is not None:
                    decoded.add(v.id)
                    placed.append((0, None, Root("decode", v, self.buf((col,), "row", "d"))))
            values = [r.value, *self.places(r)]
            if r.kind == "quantize":
                x = self.graph.args(r.value)[0]
                at = max(level(v) for v in [x, *values[1:]])
                row = self.buf((col,) if col else (), "row", "q")
                placed.append((at, col, Root("mat", x, row)))
                placed.append((at + 1, None, replace(r, buf=row)))
            else:
                placed.append((max(level(v) for v in values), col, r))
        if not placed:
            return
        last = max(at for at, _, _ in placed)
        for red_id, root in reduces.items():
            op = self.graph.op(root.value)
            placed.append((level_of[red_id], str(op.attr("axis")) if op else None, root))
        # updates of carried values come after everything that may read the old ones
        for n, (_, col, r) in enumerate(placed):
            if r.kind == "mat" and r.buf is not None and r.buf.name in carry_bufs:
                placed[n] = (last + (2 if col is None else 1), col, r)
        placed += self.kept(placed)
        placed += self.row_buffers(placed)
        levels: list[Level] = []
        for at in sorted({p[0] for p in placed}):
            cols: dict[str | None, list[Root]] = {}
            for _, col, r in (p for p in placed if p[0] == at):
                cols.setdefault(col, []).append(r)
            decode_first = [r for r in cols.get(None, []) if r.kind == "decode"]
            if decode_first:
                levels.append(Level(None, tuple(decode_first)))
                cols[None] = [r for r in cols[None] if r.kind != "decode"]
            for col, rs in sorted(cols.items(), key=lambda kv: (kv[0] is None, kv[0] or "")):
                if not rs:
                    continue
                order = {"mat": 0, "reduce": 1}
                levels.append(Level(col, tuple(sorted(rs, key=lambda r: order.get(r.kind, 2)))))
        self.out.append(Nest(rows, tuple(levels)))
        for r in reduces.values():
            if r.buf is not None:
                self.place(r.value, r.buf)

    def gathered(
        self, rows: tuple[str, ...], members: list[tuple[Root, str | None]]
    ) -> list[Value]:
        """The largest values that are the same for all rows and take loads of scattered elements:
        they are written down once, instead of being gathered for each row."""
        out: dict[int, Value] = {}
        seen: set[int] = set()
        stack = [v for r, _ in members for v in (r.value, *self.places(r))] if rows else []
        while stack:
            v = stack.pop()
            if v.id in seen or v.id in self.mat:
                continue
            seen.add(v.id)
            if v.axes and not set(v.axes) & set(rows) and self.gathers(v):
                out[v.id] = v
            else:
                stack += self.graph.args(v)
        return list(out.values())

    def kept(
        self, placed: list[tuple[int, str | None, Root]]
    ) -> list[tuple[int, str | None, Root]]:
        """Loads from the place that a store here writes, wanted again at a later level: one row
        of them is kept."""
        out: dict[int, tuple[int, str | None, Root]] = {}
        for at, col, r in placed:
            if r.store is None:
                continue
            for load in self.loaded:
                v = load.result
                if v.id in self.mat or v.id in out or not self.effects.conflict(load, r.store):
                    continue
                levels = [n for n, _, x in placed if v.id in self.touched(x)]
                if levels and max(levels) > at:
                    axes = (col,) if col is not None else ()
                    root = Root("mat", v, self.buf(axes, "row", "s"))
                    out[v.id] = (min(at, *levels), col, root)
        return list(out.values())

    def row_buffers(
        self, placed: list[tuple[int, str | None, Root]]
    ) -> list[tuple[int, str | None, Root]]:
        """Expensive column values wanted at two levels go through a buffer of one row."""
        wanted: dict[int, tuple[Value, str, set[int]]] = {}
        for at, col, r in placed:
            if col is None:
                continue
            seen: set[int] = set()
            start = (
                list(self.graph.args(r.value)) if r.kind in ("reduce", "quantize") else [r.value]
            )
            stack = start
            while stack:
                v = stack.pop()
                if v.id in seen or v.id in self.mat:
                    continue
                seen.add(v.id)
                op = self.graph.op(v)
                if op is not None and op.op in EXPENSIVE and col in v.axes:
                    wanted.setdefault(v.id, (v, col, set()))[2].add(at)
                if op is not None and op.op == "reduce":
                    continue
                stack += self.graph.args(v)
        out: list[tuple[int, str | None, Root]] = []
        done: set[int] = set()
        for vid in sorted(wanted, reverse=True):
            v, col, levels = wanted[vid]
            if len(levels) > 1 and not any(vid in self.closure(o) for o in self.results(done)):
                out.append((min(levels), col, Root("mat", v, self.buf((col,), "row", "e"))))
                done.add(vid)
        return out
