"""Emission of the Cube operation and of packed tensors: operands are pointed at, the micro-kernels
do the rest."""

from __future__ import annotations

from collections.abc import Callable

from terrazzo.errors import KernelError
from terrazzo.ir.graph import Graph
from terrazzo.ir.ops import Block, Load, Store, Whole
from terrazzo.ir.pages import Paged, whole_pages
from terrazzo.ir.types import DTYPES, Format, TileType, Value
from terrazzo.targets.cpu import layouts, micro
from terrazzo.targets.cpu.builder import W
from terrazzo.targets.cpu.evaluate import Evaluator
from terrazzo.targets.cpu.frame import Frame, element_type
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.nest import Ahead, Buf, Dot, OperandA, Root
from terrazzo.targets.cpu.planes import pair_at, zero_rest

PANEL_ROW = W * 4  # bytes of one k-row of a scratch panel


class DotEmitter:
    def __init__(
        self, frame: Frame, ev: Evaluator, graph: Graph, isa: Isa, pieces: dict[str, micro.Micro]
    ) -> None:
        self.fr, self.f, self.ev, self.graph = frame, frame.f, ev, graph
        self.isa, self.pieces, self.guards = isa, pieces, ev.guards

    def use(self, piece: micro.Micro) -> str:
        self.pieces[piece.name] = piece
        return piece.name

    # -- addresses ------------------------------------------------------------------------------
    def base(self, load: Load | Store, skip: tuple[str, ...]) -> tuple[str, dict[str, str]]:
        """(element offset with the axes of `skip` at their starts left out, stride of each skipped
        axis)."""
        f = self.f
        offset, strides = "0", {}
        for dim, e in enumerate(load.index):
            by = self.fr.stride(load.param, dim)
            if isinstance(e, (Whole, Block)):
                if e.axis in skip:
                    strides[e.axis] = by
                    continue
                at = f.add(self.fr.start(e.axis), self.fr.position.get(e.axis, "0"))
            elif e.axes:
                continue  # a page table or a lane: the caller walks it
            else:
                at = f.wide(self.ev.scalar(e))
                self.guards.index(load, dim, at)
            offset = f.add(offset, f.mul(at, by))
        return offset, strides

    def operand_a(self, a: OperandA, m: tuple[str, ...], k: str) -> tuple[str, str]:
        """(pointer, elements between rows) of f32 rows, or of the tensor's elements."""
        f = self.f
        if a.buf is not None:
            rows = a.buf.axes[:-1]
            return self.fr.addresses[a.buf.name], self.fr.pitch(a.buf) if rows else "0"
        if a.load is None:
            raise KernelError("internal: an operand without a place")
        offset, strides = self.base(a.load, (*m, k))
        for axis, by in strides.items():
            offset = f.add(offset, f.mul(self.fr.start(axis), by))
        dtype = self.fr.kernel.param(a.load.param).dtype
        p = f.gep(self.fr.pointer(a.load.param), offset, element_type(dtype))
        return p, strides[m[0]] if m else "0"

    # -- the product ----------------------------------------------------------------------------
    def dot(self, s: Dot, trip: str | None) -> None:
        f = self.f
        rows = "1"
        for axis in s.m:
            rows = f.mul(rows, self.fr.extent(axis))
        n, k = self.fr.extent(s.n), self.fr.extent(s.k)
        c = self.fr.addresses[s.c.name]
        ldc = self.fr.pitch(s.c)
        first = {"always": "true", "never": "false"}.get(s.first) or trip or "true"
        tail = [("i64", rows), ("i64", n), ("i64", k), ("i1", first)]
        if s.b.kind == "p16" and s.b.load is not None and s.b.buf is None and self.quantised(s):
            self.dot_q(s, c, ldc, tail)
            return
        a, lda = self.operand_a(s.a, s.m, s.k)
        head = [("ptr", a), ("i64", lda)]
        if s.b.buf is not None and s.b.buf.kind == "pairs":
            self.dot_tiles(s, s.b.buf, head, [("ptr", c), ("i64", ldc), *tail])
        elif s.b.kind == "panels" and s.b.buf is not None:
            stride = f.mul(self.fr.size(s.k), PANEL_ROW)
            b = [("ptr", self.fr.addresses[s.b.buf.name]), ("i64", stride), ("i64", str(W))]
            self.call_f32("f32", [*head, *b, ("ptr", c), ("i64", ldc), *tail])
        elif s.b.kind == "p16" and s.b.load is not None:
            self.dot_weights(s, head, c, ldc, tail, n, k)
        elif s.b.kind == "rows" and s.b.load is not None:
            self.dot_rows(s, s.b.load, head, [("ptr", c), ("i64", ldc), *tail])
        else:
            self.dot_paged(s, head, [("ptr", c), ("i64", ldc)], tail)

    def dot_tiles(
        self, s: Dot, b: Buf, head: list[tuple[str, str]], tail: list[tuple[str, str]]
    ) -> None:
        """On matrix tiles; panels of a weight tensor (of bf16) are paired first."""
        f, to = self.f, self.fr.addresses[b.name]
        room = f.mul(self.fr.depth(b), 2 * W * b.planes)
        if s.b.load is not None:
            w, stride, _ = self.weights(s.b.load, s.n, s.k)
            pair, k = self.use(micro.pair_panel()), self.fr.extent(s.k)

            def one(j: str) -> None:
                panel, out = f.gep(w, f.mul(j, stride)), f.gep(to, f.mul(j, room))
                f.call("void", pair, [("ptr", panel), ("ptr", out), ("i64", k)])

            self.fr.loop(0, f.op(f"lshr i64 {f.add(self.fr.extent(s.n), W - 1)}, 4"), one)
        kind = "f32" if s.a.load is None else str(self.fr.kernel.param(s.a.load.param).dtype)
        args = [*head, ("ptr", to), ("i64", room), *tail]
        f.call("void", self.use(micro.dot_tiles(self.isa, kind, s.a.planes, b.planes)), args)

    def call_f32(self, b_dtype: str, args: list[tuple[str, str]]) -> None:
        self.f.call("void", self.use(micro.dot_f32(self.isa, DTYPES[b_dtype])), args)

    def dot_rows(
        self, s: Dot, load: Load, head: list[tuple[str, str]], tail: list[tuple[str, str]]
    ) -> None:
        """B as it lies in memory: its panels are 16 elements apart, its rows a stride."""
        f, dtype = self.f, DTYPES[str(self.fr.kernel.param(load.param).dtype)]
        offset, strides = self.base(load, (s.n, s.k))
        for axis, by in strides.items():
            offset = f.add(offset, f.mul(self.fr.start(axis), by))
        p = f.gep(self.fr.pointer(load.param), offset, element_type(dtype))
        b = [("ptr", p), ("i64", str(W * dtype.bytes)), ("i64", strides[s.k])]
        self.call_f32(dtype.name, [*head, *b, *tail])

    def quantised(self, s: Dot) -> bool:
        if s.a.buf is not None:
            return s.a.buf.kind == "a8"
        a = s.a.load
        return a is not None and isinstance(self.fr.kernel.param(a.param).dtype, Format)

    def weights(self, load: Load, n: str, k: str) -> tuple[str, str, Format]:
        """(pointer to the first panel of block n at its first k, bytes between panels, format)."""
        f = self.f
        fmt = self.fr.kernel.param(load.param).dtype
        if not isinstance(fmt, Format) or len(load.index) != 2:
            raise KernelError(f"{load.param}: packed weights are matrices")
        stride = self.fr.stride(load.param, 0)
        panel = f.op(f"lshr i64 {self.fr.start(n)}, 4") if self.fr.start(n) != "0" else "0"
        p = f.gep(self.fr.pointer(load.param), f.mul(panel, stride))
        return f.gep(p, self.k_offset(fmt, self.fr.start(k))), stride, fmt

    def k_offset(self, fmt: Format, k0: str) -> str:
        """Byte offset of k-row k0 (a multiple of the group's block) within a panel."""
        if k0 == "0":
            return "0"
        f = self.f
        if fmt.group == 1:
            return f.mul(k0, W * DTYPES[fmt.name].bytes)
        lay = layouts.P16S[fmt.name]
        per_block = lay.per * 32
        return f.mul(f.op(f"sdiv i64 {k0}, {per_block}"), lay.block)

    def dot_q(self, s: Dot, c: str, ldc: str, tail: list[tuple[str, str]]) -> None:
        f = self.f
        if s.b.load is None:
            raise KernelError("internal: int8 product without weights in memory")
        w, stride, fmt = self.weights(s.b.load, s.n, s.k)
        q, row, scale, total = self.a8_rows(s.a, s.m, s.k)
        args = [
            ("ptr", q),
            ("i64", row),
            ("i64", scale),
            ("i64", total),
            ("ptr", w),
            ("i64", stride),
            ("ptr", c),
            ("i64", ldc),
            *tail,
        ]
        f.call("void", self.use(micro.dot_q(self.isa, fmt)), args)

    def a8_rows(self, a: OperandA, m: tuple[str, ...], k: str) -> tuple[str, str, str, str]:
        """(pointer to q, bytes between rows, offsets from q to the scale and to the sum) at block
        k."""
        f = self.f
        if a.buf is not None:
            scale, total = self.a8_planes(self.fr.size(k), "0")
            return self.fr.addresses[a.buf.name], self.fr.pitch(a.buf), scale, total
        if a.load is None:
            raise KernelError("internal: an operand without a place")
        p, row, dim = self.a8_base(a.load, m, k)
        k0 = self.fr.start(k)
        scale, total = self.a8_planes(dim, k0)
        return f.gep(p, k0), row, f.sub(scale, k0), f.sub(total, k0)

    def a8_planes(self, dim: str, k0: str) -> tuple[str, str]:
        """Byte offsets in an a8 row of `dim` values of the scale and of the sum at k0, a multiple
        of 32: after the values, 4 bytes for every 16 and then for every 32 of them."""
        f = self.f
        eighth = f.op(f"lshr i64 {k0}, 3") if k0 != "0" else "0"
        end = f.add(dim, f.op(f"lshr i64 {dim}, 2"))
        return f.add(dim, f.mul(eighth, 2)), f.add(end, eighth)

    def a8_base(self, s: Load | Store, m: tuple[str, ...], k: str) -> tuple[str, str, str]:
        """(pointer to the row's first byte, bytes between rows of axis m, extent of the innermost
        dim)."""
        f = self.f
        offset, strides = self.base(s, (*m, k))
        for axis in m:
            offset = f.add(offset, f.mul(self.fr.start(axis), strides[axis]))
        dim = self.fr.dim(self.fr.kernel.param(s.param).dims[-1])
        return f.gep(self.fr.pointer(s.param), offset), strides[m[0]] if m else "0", dim

    def dot_weights(self, s: Dot, head: list[tuple[str, str]], c: str, ldc: str,
                    tail: list[tuple[str, str]], n: str, k: str) -> None:  # fmt: skip
        """f32 activations: plain panels are read in place, low-bit ones decoded into scratch
        panels."""
        f = self.f
        if s.b.load is None:
            raise KernelError("internal: weights without a load")
        w, stride, fmt = self.weights(s.b.load, s.n, s.k)
        if s.b.buf is None:
            b = [("ptr", w), ("i64", stride), ("i64", str(W))]
            self.call_f32(fmt.name, [*head, *b, ("ptr", c), ("i64", ldc), *tail])
            return
        room = f.mul(self.fr.size(s.k), PANEL_ROW)
        decode = self.use(micro.decode_panel(self.isa, fmt))
        out = self.fr.addresses[s.b.buf.name]

        def one(j: str) -> None:
            args = [
                ("ptr", f.gep(w, f.mul(j, stride))),
                ("ptr", f.gep(out, f.mul(j, room))),
                ("i64", "0"),
                ("i64", k),
            ]
            f.call("void", decode, args)

        self.fr.loop(0, f.op(f"lshr i64 {f.add(n, W - 1)}, 4"), one)
        b = [("ptr", out), ("i64", room), ("i64", str(W))]
        self.call_f32("f32", [*head, *b, ("ptr", c), ("i64", ldc), *tail])

    # -- pages ----------------------------------------------------------------------------------
    def dot_paged(
        self,
        s: Dot,
        a: list[tuple[str, str]],
        c: list[tuple[str, str]],
        tail: list[tuple[str, str]],
    ) -> None:
        """Pages of a cache read in place, by a list of their addresses. Keys (d x 16 tokens): a
        page is a panel. Values (16 tokens x d): a page is 16 k-rows of all panels."""
        f, load, buf = self.f, s.b.load, s.b.buf
        if load is None or buf is None:
            raise KernelError("internal: pages without a load")
        keys = s.b.kind == "paged_k"
        dtype = DTYPES[str(self.fr.kernel.param(load.param).dtype)]
        tokens, inner = (s.n, s.k) if keys else (s.k, s.n)
        p = self.pages(load)
        count = f.op(f"lshr i64 {f.add(self.fr.extent(tokens), W - 1)}, 4")
        first = f.op(f"sdiv i64 {self.fr.start(tokens)}, {p.page}")
        self.guards.span(p.table, len(p.table.index) - 1, first, 1, count)
        self.guards.page(load, p.lane_dim, p.page)
        strides = self.list_pages(load, inner, buf, count, lambda n: f.add(first, n), True)
        addresses = ahead = self.fr.addresses[buf.name]
        if s.b.ahead is not None:
            ahead = self.fr.addresses[s.b.ahead.buf.name]
            self.list_ahead(s.b.ahead, tokens, inner, count, first)
        row = strides[inner] if keys else self.fr.stride(load.param, p.lane_dim)
        b = [("ptr", addresses), ("i64", str(W * dtype.bytes)), ("i64", row)]
        piece = micro.dot_f32(self.isa, dtype, "n" if keys else "k")
        f.call("void", self.use(piece), [*a, *b, *c, *tail, ("ptr", ahead)])

    def pages(self, load: Load) -> Paged:
        p = whole_pages(self.graph, load)
        if p is None:
            raise KernelError("internal: pages without a table")
        return p

    def list_pages(self, load: Load, inner: str, buf: Buf, count: str,
                   entry: Callable[[str], str], read: bool) -> dict[str, str]:  # fmt: skip
        """Writes the addresses of `count` pages into `buf`: those that the table names at
        entry(n). `read`: they will be, so their numbers are checked. Returns the strides of
        `inner`."""
        f, p = self.f, self.pages(load)
        dtype = DTYPES[str(self.fr.kernel.param(load.param).dtype)]
        offset, strides = self.base(load, (inner,))
        base = f.gep(self.fr.pointer(load.param), offset, element_type(dtype))
        table, _ = self.base(p.table, ())
        numbers = f.gep(self.fr.pointer(p.table.param), table, "i32")
        step = f.mul(self.fr.stride(load.param, p.table_dim), dtype.bytes)

        def one(n: str) -> None:
            page = f.wide(f.load("i32", f.gep(numbers, entry(n), "i32"), 4))
            if read:
                self.guards.index(load, p.table_dim, page)
            at = f.gep(self.fr.addresses[buf.name], n, "ptr")
            f.store("ptr", f.gep(base, f.mul(page, step)), at, 8)

        self.fr.loop(0, count, one)
        return strides

    def list_ahead(self, a: Ahead, tokens: str, inner: str, count: str, first: str) -> None:
        """As many pages of what the loop reads next as it reads now; past its end the last one."""
        f, page = self.f, self.pages(a.load).page
        if not a.wraps:
            self.list_pages(a.load, inner, a.buf, count, lambda n: f.add(first, n), False)
            return
        start, end = self.fr.follows[tokens]
        first = f.op(f"sdiv i64 {start}, {page}")
        last = f.op(f"sdiv i64 {f.add(end, -1)}, {page}")
        at = lambda n: f.min(f.add(first, n), last)  # noqa: E731
        self.list_pages(a.load, inner, a.buf, count, at, False)

    # -- packing and packed tensors
    # -----------------------------------------------------------------
    def put_panel(self, r: Root, x: str) -> None:
        """16 columns of one k-row of a B operand (buf axes: k, n) into its panels."""
        f = self.f
        if r.buf is None:
            return
        k = r.buf.axes[0]
        base, chunk = self.fr.addresses[r.buf.name], self.ev.chunk or "0"
        stride = f.mul(self.fr.size(k), W)
        x = self.as_f32(r.value, x)
        panel = f.mul(f.op(f"lshr i64 {chunk}, 4") if chunk != "0" else "0", stride)
        at = f.add(panel, f.mul(self.fr.position.get(k, "0"), W))
        f.store(f"<{W} x float>", x, f.gep(base, at, "float"), 64)

    def put_square(
        self, r: Root, n0: str, k0: str, rows: list[str], mask: tuple[str, str] | None
    ) -> None:
        """16 k-rows of the panel of columns n0 .. n0 + 15, from k0 on; fewer if masked."""
        f = self.f
        if r.buf is None:
            return
        panel = f.mul(f.op(f"lshr i64 {n0}, 4"), f.mul(self.fr.size(r.buf.axes[0]), W))
        p = f.gep(self.fr.addresses[r.buf.name], f.add(panel, f.mul(k0, W)), "float")
        for i, x in enumerate(rows):
            at = f.gep(p, i * W, "float")
            if mask is None:
                f.store(f"<{W} x float>", x, at, 64)
            else:
                f.when(f.op(f"icmp slt i64 {i}, {mask[1]}"),
                       lambda x=x, at=at: f.store(f"<{W} x float>", x, at, 64))  # fmt: skip

    def put_pairs(self, buf: Buf, n0: str, k0: str, plane: int, words: str, kind: str) -> None:
        """A plane of 16 columns of two k-rows: 64 bytes of the LLVM type `kind`."""
        f = self.f
        panel = f.mul(f.op(f"lshr i64 {n0}, 4"), f.mul(self.fr.depth(buf), 2 * W * buf.planes))
        at = f.add(panel, pair_at(f, k0, plane, buf.planes))
        f.store(kind, words, f.gep(self.fr.addresses[buf.name], at), 64)

    def end_pairs(self, buf: Buf, n: str, k: str) -> None:
        """Zeros after k-row `k` of all panels of `n` columns."""
        f, room = self.f, self.f.mul(self.fr.depth(buf), 2 * W * buf.planes)

        def one(j: str) -> None:
            zero_rest(f, f.gep(self.fr.addresses[buf.name], f.mul(j, room)), k, buf.planes)

        self.fr.loop(0, f.op(f"lshr i64 {f.add(n, W - 1)}, 4"), one)

    def as_f32(self, v: Value, x: str) -> str:
        return self.ev.widen(x, v, True)

    def quantize(self, r: Root) -> None:
        """A row buffer of f32 to a row (or whole groups of one) of an a8 tensor or buffer."""
        f, s = self.f, r.store
        if r.buf is None:
            return
        col = r.buf.axes[-1]
        k0, n = self.fr.start(col), self.fr.extent(col)
        if r.packed is not None:
            p, dim, k0 = self.fr.row_of(r.packed), self.fr.size(col), "0"
        elif s is not None:
            p, _, dim = self.a8_base(s, (), col)
            self.guards.finite_row(s, self.fr.row_of(r.buf), n)
        else:
            raise KernelError("internal: nowhere to quantise to")
        scale, total = self.a8_planes(dim, k0)
        args = [
            ("ptr", self.fr.row_of(r.buf)),
            ("ptr", f.gep(p, k0)),
            ("ptr", f.gep(p, scale)),
            ("ptr", f.gep(p, total)),
            ("i64", n),
        ]
        f.call("void", self.use(micro.quantize_a8(self.isa)), args)

    def decode_row(self, r: Root) -> None:
        """One row of a packed p16 matrix to a row buffer of f32 (embedding)."""
        f = self.f
        op = self.graph.op(r.value)
        load = self.graph.defs[op.args[0].id] if op else None
        if not isinstance(load, Load) or r.buf is None:
            raise KernelError("internal: decode without a load")
        fmt = self.fr.kernel.param(load.param).dtype
        entry = load.index[0]
        if isinstance(entry, (Whole, Block)):
            row = f.add(self.fr.start(entry.axis), self.fr.position.get(entry.axis, "0"))
        else:
            row = f.wide(self.ev.scalar(entry))
            self.guards.index(load, 0, row)
        whole = isinstance(load.index[-1], Whole)
        if not isinstance(fmt, Format) or fmt.layout != "p16" or len(load.index) != 2 or not whole:
            raise KernelError(
                f"{load.param}: rows of a packed matrix are read whole, in layout p16"
            )
        if fmt.group == 1:
            self.gather_row(load, fmt, row, r.buf)
            return
        args = [
            ("ptr", self.fr.pointer(load.param)),
            ("i64", self.fr.stride(load.param, 0)),
            ("i64", row),
            ("ptr", self.fr.row_of(r.buf)),
            ("i64", self.fr.extent(r.buf.axes[-1])),
        ]
        f.call("void", self.use(micro.decode_row(self.isa, fmt)), args)

    def gather_row(self, load: Load, fmt: Format, row: str, buf: Buf) -> None:
        """One row out of plain panels: element k lies 16 elements after element k - 1."""
        f, dtype = self.f, DTYPES[fmt.name]
        panel = f.mul(f.op(f"lshr i64 {row}, 4"), self.fr.stride(load.param, 0))
        t = element_type(dtype)
        lane = f.gep(f.gep(self.fr.pointer(load.param), panel), f.op(f"and i64 {row}, 15"), t)
        out, like = self.fr.row_of(buf), Value(-1, TileType(dtype))

        def one(k: str) -> None:
            x = f.load(t, f.gep(lane, f.mul(k, W), t), dtype.bytes)
            f.store("float", self.ev.widen(x, like, False), f.gep(out, k, "float"), 4)

        self.fr.loop(0, self.fr.extent(buf.axes[-1]), one)
