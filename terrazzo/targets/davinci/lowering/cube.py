"""The cube core's side of a phase: operands into L1 in the NZ layout, products into L0C, results
out through FixPipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from terrazzo.errors import KernelError
from terrazzo.ir.graph import walk
from terrazzo.ir.ops import Block, Carry, Load, Loop, Op, Stmt, Store, Whole
from terrazzo.ir.pages import paged
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, Value
from terrazzo.targets.davinci.chips import BLOCK, CAPACITY, FRACTAL_ROWS
from terrazzo.targets.davinci.expr import Scalar, add, make, mul, var
from terrazzo.targets.davinci.lowering.core import Core
from terrazzo.targets.davinci.lowering.pages import to_l1
from terrazzo.targets.davinci.lowering.split import first_product
from terrazzo.targets.davinci.lowering.tiles import Matrix
from terrazzo.targets.davinci.program import For, View


def round_up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


class CubeCore(Core):
    kind = "cube"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sums: dict[int, tuple[Matrix, Scalar]] = {}  # carried sum -> where, first trip?
        self.loaded: dict[int, Matrix] = {}  # of loads outside of the loop that uses them
        self.early = set(_early(self.low.kernel.body, self.parts.loads))

    def relevant(self, s: Loop) -> bool:
        return any(isinstance(x, Op) and x.op in ("dot", "dot_acc") for x in walk(s.body)) or any(
            isinstance(x, (Op, Load)) and x.result.id in self.parts.to_cube for x in walk(s.body)
        )

    def tile_statement(self, s: Op | Load | Store) -> None:
        if isinstance(s, Store):
            if id(s) in self.parts.direct:
                self.store(s)
            return
        v = s.result
        coming = self.crossing.get(v.id)
        if isinstance(s, Load) and id(s) in self.early:
            self.loaded[id(s)] = self.load(s)
        if coming is not None and coming.reader == "cube":
            self.kept[v.id] = self.receive(v)
        elif isinstance(s, Op) and s.op in ("dot", "dot_acc"):
            self.product(s)
            if coming is not None:
                self.send(v)

    # -- operands ------------------------------------------------------------------------------

    def operand(self, v: Value) -> Matrix:
        """A product's operand in L1."""
        load = self.parts.loads.get(v.id)
        if load is None:
            return self.kept[v.id]
        return self.loaded[id(load)] if id(load) in self.loaded else self.load(load)

    def matrix(self, stem: str, dtype: DType, rows: Sequence[str], columns: Sequence[str],
               slots: int) -> Matrix:  # fmt: skip
        c0 = BLOCK // dtype.bytes
        height = round_up(self._room(rows), FRACTAL_ROWS)
        width = round_up(self._room(columns), c0)
        buffer = self.e.buffer(stem, "L1", dtype, height * width, slots)
        return Matrix(buffer, tuple(rows), tuple(columns), height, c0)

    def _room(self, axes: Sequence[str]) -> int:
        out = 1
        for a in axes:
            out *= self.e.ranges[a].cap
        return out

    def size(self, axes: Sequence[str]) -> Scalar:
        out: Scalar = 1
        for a in axes:
            out = mul(out, self.e.ranges[a].size)
        return out

    def whole(self, m: Matrix) -> View:
        """All rows and columns that the matrix has now."""
        return View(m.buffer, (self.size(m.rows), self.size(m.columns)),
                    (m.c0, m.height * m.c0), 0, m.slot, m.c0)  # fmt: skip

    def load(self, s: Load) -> Matrix:
        v = s.result
        found = paged(self.graph, s)
        if found is not None:
            return to_l1(self, s, found)
        if any(isinstance(e, Value) and e.axes for e in s.index):
            raise mark(KernelError("rows chosen by an index tile cannot go to the Cube directly",
                                   "gather them with a vector kernel first"), s.loc)  # fmt: skip
        assert isinstance(v.dtype, DType)
        axes = [e.axis for e in s.index if isinstance(e, (Whole, Block))]
        rows, columns = axes[:-1], axes[-1:]
        m = self.matrix(s.param, v.dtype, rows, columns, self.stages if self.depth else 1)
        offset, strides = self.address(s, s.param)
        if strides[columns[0]] != 1:
            raise self.across(s, columns[0], strides[columns[0]])
        self._to_nz(m, View(self.low.gm[s.param], (), (), offset), rows, strides)
        return m

    def across(self, s: Load, axis: str, stride: Scalar) -> KernelError:
        return mark(KernelError(f"`{s.param}` goes to the Cube across its rows: `{axis}` has a"
                                f" stride of {stride} elements",
                                "store the tensor the other way round"), s.loc)  # fmt: skip

    def _to_nz(self, m: Matrix, gm: View, rows: Sequence[str], strides: dict[str, Scalar]) -> None:
        """Rows of global memory into `m`; row axes that do not follow each other evenly are loops
        around one transfer."""
        inner = list(rows[-1:])
        outer = list(rows[:-1])
        while outer and self._even(strides, outer[-1], inner[0], inner):
            inner.insert(0, outer.pop())
        stride = strides[inner[-1]] if inner else 0
        count, width = self.size(inner), self.size(m.columns)
        offset, row = gm.offset, 0
        names = []
        for n, a in enumerate(outer):
            name = self.e.name(f"{a}_row")
            names.append((name, a))
            offset = add(offset, mul(var(name), strides[a]))
            row = add(row, mul(var(name), self.size([*outer[n + 1 :], *inner])))
        with self.e.nested() as body:
            to = View(m.buffer, (count, width), (m.c0, m.height * m.c0), mul(row, m.c0), m.slot,
                      m.c0)  # fmt: skip
            self.e.emit("nd2nz", to, View(gm.memory, (count, width), (stride, 1), offset))
        for name, a in reversed(names):
            body = [For(name, 0, self.e.ranges[a].size, 1, tuple(body), self.e.loc)]
        self.e.body += body

    def _even(self, strides: dict[str, Scalar], outer: str, first: str, inner: list[str]) -> bool:
        return strides[outer] == mul(strides[first], self.e.ranges[first].size)

    # -- products ------------------------------------------------------------------------------

    def product(self, s: Op) -> None:
        a, b = s.args[-2:]
        shared = [x for x in a.axes if x in b.axes]
        if self._place(a, shared) > self._place(b, shared):  # so that rows lie outside of columns
            a, b = b, a
        left, right = self.operand(a), self.operand(b)
        rows = self.e.sorted([x for x in a.axes if x not in shared])
        columns = self.e.sorted([x for x in b.axes if x not in shared])
        out, first = self._target(s, rows, columns)
        attrs = {
            "transpose_a": int(self._contracted(left, shared, s) == "rows"),
            "transpose_b": int(self._contracted(right, shared, s) == "columns"),
        }
        self.e.emit("mmad_l1", self.whole(out), self.whole(left), self.whole(right), first,
                    **attrs)  # fmt: skip
        self.kept[s.result.id] = out

    def _place(self, v: Value, shared: Sequence[str]) -> int:
        return min((self.e.order[x] for x in v.axes if x not in shared), default=-1)

    def _contracted(self, m: Matrix, shared: Sequence[str], s: Op) -> str:
        if set(m.columns) == set(shared):
            return "columns"
        if set(m.rows) == set(shared):
            return "rows"
        raise mark(KernelError(
            f"this product sums over {', '.join(shared)}, which is neither all rows nor all columns"
            f" of an operand [{', '.join((*m.rows, *m.columns))}]",
            "let the summed axis be the operand's first or last"), s.loc)  # fmt: skip

    def _target(self, s: Op, rows: Sequence[str], columns: Sequence[str]) -> tuple[Matrix, Scalar]:
        if s.op == "dot_acc":
            partial = self.kept.get(s.args[0].id) if s.args[0].id in self.parts.cube else None
            known = self.sums.get(s.args[0].id) or (partial and (partial, 0))
            if known is None:
                raise mark(KernelError("the Cube adds to what its own loop carries from 0",
                                       "begin the sum with tz.zeros, before the loop"),
                           s.loc)  # fmt: skip
            if (known[0].rows, known[0].columns) != (tuple(rows), tuple(columns)):
                raise mark(KernelError(
                    f"the Cube's sum has rows {', '.join(known[0].rows)}, this product has rows"
                    f" {', '.join(rows)}", "add products of operands with the same axes"),
                    s.loc)  # fmt: skip
            return known
        return self._accumulator(s.result, rows, columns), 1

    def _accumulator(self, v: Value, rows: Sequence[str], columns: Sequence[str]) -> Matrix:
        assert isinstance(v.dtype, DType)
        height = round_up(self._room(rows), FRACTAL_ROWS)
        width = round_up(self._room(columns), FRACTAL_ROWS)
        slots = 2 if 2 * height * width * v.dtype.bytes <= CAPACITY["L0C"] else 1
        buffer = self.e.buffer("acc", "L0C", v.dtype, height * width, slots)
        return Matrix(buffer, tuple(rows), tuple(columns), height, FRACTAL_ROWS)

    # -- sums ----------------------------------------------------------------------------------

    def begin_carry(self, s: Loop, c: Carry, lo: Scalar) -> None:
        if c.var.id not in self.parts.cube:
            return
        op = first_product(self.graph, c.next, c.var)
        assert op is not None
        if self.graph.const(c.init) != 0:
            raise mark(KernelError("the Cube's sum begins with a value that is not 0",
                                   "begin with tz.zeros and add the value afterwards"),
                       s.loc)  # fmt: skip
        a, b = op.args[1:]
        shared = [x for x in a.axes if x in b.axes]
        if self._place(a, shared) > self._place(b, shared):
            a, b = b, a
        rows = self.e.sorted([x for x in a.axes if x not in shared])
        columns = self.e.sorted([x for x in b.axes if x not in shared])
        self.kept[c.var.id] = self._accumulator(c.var, rows, columns)

    def _trip(self, s: Loop, v: Any, start: Scalar, lo: Scalar, hi: Scalar) -> None:
        super()._trip(s, v, start, lo, hi)
        for c in s.carries:
            if c.var.id in self.parts.cube:
                self.sums[c.var.id] = self.kept[c.var.id], make("eq", start, lo)

    def finish_carry(self, c: Carry) -> None:
        pass  # it was added to in place

    def end(self, s: Loop) -> None:
        super().end(s)
        for c in s.carries:
            if c.result.id in self.crossing and c.result.id in self.parts.cube:
                self.send(c.result)

    # -- results -------------------------------------------------------------------------------

    def store(self, s: Store) -> None:
        value, relu = self.parts.direct[id(s)]
        m = self.kept[value.id]
        offset, strides = self.address(s, s.param)
        self._out(m, View(self.low.gm[s.param], (), (), offset), strides, relu, s)

    def _out(self, m: Matrix, gm: View, strides: dict[str, Scalar], relu: bool, s: Any) -> None:
        for side in (m.rows, m.columns):
            for outer, inner in zip(side, side[1:], strict=False):
                if not self._even(strides, outer, inner, [inner]):
                    raise mark(KernelError(
                        f"axes {', '.join(side)} of this product do not follow each other in"
                        " memory", "store the tensor so that they do"), s.loc)  # fmt: skip
        columns = strides[m.columns[-1]] if m.columns else 1
        rows = strides[m.rows[-1]] if m.rows else 0
        if columns != 1:
            raise mark(KernelError("a product leaves the Cube row by row; here its columns are not"
                                   " contiguous in memory", "swap the operands"),
                       s.loc)  # fmt: skip
        to = View(gm.memory, (self.size(m.rows), self.size(m.columns)), (rows, 1), gm.offset)
        self.e.emit("fixpipe", to, self.whole(m), relu=int(relu))

    def send(self, v: Value) -> None:
        c = self.crossing[v.id]
        m = self.kept[v.id]
        strides: dict[str, Scalar] = dict(zip(c.axes, c.strides, strict=True))
        c.begin_write(self)
        source = c.view(self)
        rows = strides[m.rows[-1]] if m.rows else 0
        to = View(source.memory, (self.size(m.rows), self.size(m.columns)), (rows, 1),
                  source.offset)  # fmt: skip
        self.e.emit("fixpipe", to, self.whole(m), relu=0)
        c.end_write(self)

    def receive(self, v: Value) -> Matrix:
        c = self.crossing[v.id]
        assert isinstance(v.dtype, DType)
        m = self.matrix("received", v.dtype, c.axes[:-1], c.axes[-1:], self.options_slots())
        strides: dict[str, Scalar] = dict(zip(c.axes, c.strides, strict=True))
        c.begin_read(self)
        source = c.view(self)
        self._to_nz(m, View(source.memory, (), (), source.offset), c.axes[:-1], strides)
        c.end_read(self)
        return m

    def options_slots(self) -> int:
        return self.low.options.slots if self.depth > 1 else 1


def _early(body: Sequence[Stmt], loads: Mapping[int, Load]) -> Iterator[int]:
    """Of `loads`, by the operands that they are, those that only loops beside them use: they are
    done once, before the loop."""
    here = {id(loads[v.id]) for s in body if isinstance(s, Op) and s.op in ("dot", "dot_acc")
            for v in s.args[-2:] if v.id in loads}  # fmt: skip
    all_loads = set(map(id, loads.values()))
    for s in body:
        if isinstance(s, Loop):
            yield from _early(s.body, loads)
        elif id(s) in all_loads and id(s) not in here:
            yield id(s)
