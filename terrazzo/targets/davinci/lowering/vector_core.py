"""The vector core's side of a phase: loads into UB, elementwise work and reductions, stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from terrazzo.errors import KernelError
from terrazzo.ir.graph import operands, walk
from terrazzo.ir.ops import Carry, Load, Loop, Op, Stmt, Store
from terrazzo.ir.pages import paged
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, Value, f16, f32
from terrazzo.targets.davinci.expr import Scalar, add, make, mul, var
from terrazzo.targets.davinci.lowering.core import Core
from terrazzo.targets.davinci.lowering.pages import to_ub
from terrazzo.targets.davinci.lowering.tiles import Affine, Constant, Tile
from terrazzo.targets.davinci.lowering.vector import Vector
from terrazzo.targets.davinci.program import For, If, Instr, View


class VectorCore(Core):
    kind = "vector"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.vector = Vector(self.e, self.prologue)
        self.uses: dict[int, int] = {}
        for s in walk(self.low.kernel.body):
            values = [v for c in s.carries for v in (c.init, c.next)] if isinstance(s, Loop) \
                else list(operands(s))  # fmt: skip
            for v in values:
                self.uses[v.id] = self.uses.get(v.id, 0) + 1
        self.born: dict[int, int] = {}  # value id -> depth of the loop it was made in
        self.carried: dict[int, Tile] = {}  # carried variable's id -> its tile
        self.targets: dict[int, Tile] = {}  # value id -> the carried tile it may be made in

    def relevant(self, s: Loop) -> bool:
        for x in walk(s.body):
            if isinstance(x, (Op, Load)) and x.result.axes and x.result.id in self.parts.needed:
                return True
            if isinstance(x, Store) and id(x) not in self.parts.direct:
                return True
        return False

    def tile_statement(self, s: Op | Load | Store) -> None:
        if isinstance(s, Store):
            if id(s) not in self.parts.direct:
                self.store(s)
            return
        v = s.result
        if v.id not in self.parts.needed:
            return
        self.born[v.id] = self.depth
        coming = self.crossing.get(v.id)
        if coming is not None and coming.reader == "vector":
            self.receive(v)
        elif isinstance(s, Load):
            self.kept[v.id] = self.load(s)
        else:
            self.kept[v.id] = self.op(s)
        if coming is not None and coming.reader == "cube":
            self.send(v)
        target = self.targets.get(v.id)
        if target is not None and self.kept[v.id] is not target:
            self.copy(self.kept[v.id], target, v)

    # -- operations ----------------------------------------------------------------------------

    def op(self, s: Op) -> Any:
        if s.op == "const":
            assert isinstance(s.result.dtype, DType)
            return Constant(s.attr("value"), s.result.dtype)  # type: ignore[arg-type]
        if s.op == "index":
            return Affine(str(s.attr("axis")), 0)
        out = self.targets.get(s.result.id) or self._over_carried(s)
        later = self.group_slots[0].get(s.result.id, 1) > 1  # groups that run behind read it
        if out is None and later:
            out = self._slotted("t", s.result)
        if s.op == "reduce":
            source = self.vector.tile(self.get(s.args[0]), self.dtype(s.args[0]),
                                      self.e.sorted(s.args[0].axes))  # fmt: skip
            return self.vector.reduce(s, source, out)
        made = self.vector.compute(s, [self.get(a) for a in s.args], out, self.free)
        if s.op == "exp2":
            self._merge_factors(s)
        if later and out is not None and isinstance(made, Tile) and made is not out:
            self.copy(made, out, s.result)
            return out
        return made

    def _over_carried(self, s: Op) -> Tile | None:
        """The tile of a carried value that `s` reads for the last time before it is set anew: its
        memory may hold the result until then."""
        if s.op not in ("add", "sub", "mul", "max", "min"):
            return None
        for v in s.args:
            tile = self.carried.get(v.id)
            if tile is None or self.uses.get(v.id) != 1 or self.uses.get(s.result.id) != 1:
                continue
            same = set(v.axes) == set(s.result.axes) and v.dtype == s.result.dtype
            if same and v.dtype in (f16, f32) and self.depth == self.born[v.id] + 1:
                return tile
        return None

    def _merge_factors(self, s: Op) -> None:
        """exp2(x · c), just emitted as exp(ln 2 · (x · c)): one multiplication, or none where it is
        the exponential to base e. Rounds once less than the reference."""
        before = self.graph.op(s.args[0])
        if before is None or before.op != "mul" or self.uses.get(before.result.id) != 1:
            return
        if len(self.e.body) < 3:
            return
        inner, outer, power = self.e.body[-3:]
        if not (isinstance(inner, Instr) and isinstance(outer, Instr) and isinstance(power, Instr)):
            return
        x, c = inner.ins if inner.op == "vmul" else (None, None)
        if not isinstance(x, View) or isinstance(c, View) or c is None or outer.ins[0] != inner.out:
            return
        assert not isinstance(outer.ins[1], View)
        factor = make("mul", c, outer.ins[1])
        if isinstance(factor, float) and abs(factor - 1) < 1e-6:
            self.e.body[-3:] = [replace(power, ins=(x,))]
        else:
            self.e.body[-3:] = [replace(outer, ins=(x, factor)), power]
        if inner.out.memory is not x.memory:
            self.e.buffers = [b for b in self.e.buffers if b is not inner.out.memory]

    def _slotted(self, stem: str, v: Value) -> Tile:
        """A tile for `v`, with a slot for every trip that is under way."""
        slots, trip = self.group_slots
        count = slots.get(v.id, 1)
        tile = self.e.tile(stem, self.dtype(v), v.axes, count)
        return replace(tile, slot=trip) if count > 1 else tile

    def dtype(self, v: Value) -> DType:
        assert isinstance(v.dtype, DType)
        return v.dtype

    def get(self, v: Value) -> Any:
        if v.id in self.kept:
            return self.kept[v.id]
        return Constant(self.numbers.get(v), self.dtype(v))

    def free(self, v: Value) -> bool:
        """Whether a value's tile may be overwritten by its reader: the only one, in one loop."""
        return (
            self.uses.get(v.id) == 1
            and self.born.get(v.id) == self.depth
            and (v.id not in self.crossing or self.crossing[v.id].reader == "vector")
        )

    def copy(self, kept: Any, target: Tile, v: Value) -> None:
        """`kept` into `target`."""
        axes = self.e.sorted(v.axes)
        if isinstance(kept, Constant):
            self.e.emit("vbrc", self.e.view(target, axes), kept.value)
            return
        tile = self.vector.tile(kept, self.dtype(v), axes)
        self.e.emit("vcopy", self.e.view(target, axes), self.e.view(tile, axes))

    # -- carried values ------------------------------------------------------------------------

    def begin_carry(self, s: Loop, c: Carry, lo: Scalar) -> None:
        if c.var.id in self.parts.cube or c.result.id not in self.parts.needed \
                and c.var.id not in self.parts.needed:  # fmt: skip
            return
        tile = self.e.tile("carried", self.dtype(c.var), c.var.axes)
        self.copy(self.get(c.init), tile, c.init)
        self.kept[c.var.id] = self.carried[c.var.id] = tile
        self.born[c.var.id] = self.depth
        if self._made_last(s, c):
            self.targets[c.next.id] = tile

    def _made_last(self, s: Loop, c: Carry) -> bool:
        """Whether the next value may be made where the present one is: nothing reads that later."""
        if any(o.var.id == c.next.id or (o is not c and o.next.id == c.next.id)
               for o in s.carries):  # fmt: skip
            return False
        made = False
        for x in s.body:
            if made and any(v.id == c.var.id for v in _reads(x)):
                return False
            if isinstance(x, Op) and x.result.id == c.next.id:
                if x.op in ("where", "reduce", "cast"):
                    return False
                made = True
        return made

    def finish_carry(self, c: Carry) -> None:
        tile = self.kept.get(c.var.id)
        if tile is not None and c.next.id not in self.targets:
            self.copy(self.get(c.next), tile, c.next)

    def end(self, s: Loop) -> None:
        super().end(s)
        for c in s.carries:
            self.born[c.result.id] = self.depth
            coming = self.crossing.get(c.result.id)
            if coming is not None and coming.reader == "vector":
                self.receive(c.result)

    # -- memory --------------------------------------------------------------------------------

    def load(self, s: Load) -> Tile:
        v = s.result
        if any(isinstance(e, Value) and e.axes for e in s.index):
            return self.gather(s)
        slots = self.stages if self.depth else 1
        tile = self.e.tile(s.param, self.dtype(v), v.axes, slots)
        offset, strides = self.address(s, s.param)
        self.transfer(tile, View(self.low.gm[s.param], self._sizes(tile.axes),
                                 self.strides(s, tile.axes, strides), offset))  # fmt: skip
        return tile

    def _sizes(self, axes: Sequence[str]) -> tuple[Scalar, ...]:
        return tuple(self.e.ranges[a].size for a in axes) or (1,)

    def strides(
        self, s: Load | Store, axes: Sequence[str], strides: dict[str, Scalar]
    ) -> tuple[Scalar, ...]:
        out = tuple(strides.get(a, 0) for a in axes) or (1,)
        if axes and out[-1] != 1 and self.e.ranges[axes[-1]].cap > 1:
            raise mark(KernelError(
                f"`{s.param}` is read or written across its rows: the innermost axis of the tile,"
                f" `{axes[-1]}`, has a stride of {out[-1]} elements in global memory",
                "transfers move contiguous runs: store the tensor the other way round"),
                s.loc)  # fmt: skip
        return out

    def transfer(self, tile: Tile, source: View) -> None:
        self.e.emit("load", self.e.view(tile, tile.axes), source)

    def gather(self, s: Load) -> Tile:
        """Rows chosen by an index tile: one transfer each, since addresses are scalars."""
        v = s.result
        found = paged(self.graph, s)
        if found is not None:
            return to_ub(self, s, found)
        axes = [a for e in s.index if isinstance(e, Value) for a in e.axes]
        if len(set(axes)) != 1:
            raise mark(KernelError("an index tile with several axes cannot be gathered here",
                                   "gather along one axis"), s.loc)  # fmt: skip
        (axis,) = set(axes)
        tile = self.e.tile(s.param, self.dtype(v), v.axes, self.stages if self.depth else 1)
        row = self.e.name("row")
        offset: Scalar = 0
        strides: dict[str, Scalar] = {}
        for entry, stride in zip(s.index, self.gm_strides(s.param), strict=True):
            if isinstance(entry, Value):
                at = self.numbers.at(entry, {axis: var(row)})
                if at is None:
                    raise mark(KernelError("indices that the vector unit computes cannot be"
                                           " addresses here", "load them from a tensor"),
                               s.loc)  # fmt: skip
                offset = add(offset, mul(at, stride))
            else:
                offset = add(offset, mul(self.e.ranges[entry.axis].start, stride))
                strides[entry.axis] = stride
        rest = [a for a in tile.axes if a != axis]
        own = dict(zip(tile.axes, tile.strides, strict=True))
        sizes = self._sizes(rest)
        to = View(tile.buffer, sizes, tuple(own[a] for a in rest) or (1,),
                  mul(var(row), own[axis]))  # fmt: skip
        source = View(self.low.gm[s.param], sizes, self.strides(s, rest, strides), offset)
        with self.e.nested() as body:
            self.e.emit("load", to, source)
        self.e.body.append(For(row, 0, self.e.ranges[axis].size, 1, tuple(body), s.loc))
        return tile

    def store(self, s: Store) -> None:
        v = s.value
        dtype = self.low.gm[s.param].dtype
        if any(isinstance(e, Value) and e.axes for e in s.index):
            raise mark(KernelError("a store to rows chosen by an index tile has no rule here"),
                       s.loc)  # fmt: skip
        offset, strides = self.address(s, s.param)
        axes = self.e.sorted(list(strides))
        kept = self.get(v)
        tile = self.vector.tile(kept, dtype, axes)
        if tile.axes != axes:  # broadcast by name
            full = self.e.tile("t", dtype, axes)
            self.e.emit("vbrc", self.e.view(full, axes), self.e.view(tile, axes))
            tile = full
        to = View(self.low.gm[s.param], self._sizes(axes), self.strides(s, axes, strides), offset)
        with self.e.nested() as body:
            self.e.emit("store", to, self.e.view(tile, tile.axes))
        everyone = self.alone == 1 and (not self.shifted or any(a in self.shifted for a in axes))
        self._by(everyone, body)

    def _by(self, everyone: bool, body: list[Any]) -> None:
        """Statements that both vector cores of a group run, or the first one alone."""
        if everyone or not self.crossing:
            self.e.body += body
            return
        first = self.alone if self.alone != 1 else _first(self.low.options.ratio)
        self.e.body.append(If(first, tuple(body), self.e.loc))

    # -- crossings -----------------------------------------------------------------------------

    def receive(self, v: Value) -> None:
        c = self.crossing[v.id]
        tile = self._slotted("received", v)
        c.begin_read(self)
        self.transfer(tile, c.view(self, tile.axes))
        c.end_read(self)
        self.kept[v.id] = tile

    def send(self, v: Value) -> None:
        c = self.crossing[v.id]
        axes = self.e.sorted(v.axes)
        tile = self.vector.tile(self.kept[v.id], self.dtype(v), axes)
        c.begin_write(self)
        with self.e.nested() as body:
            self.e.emit("store", c.view(self, axes), self.e.view(tile, axes))
        self._by(self.alone == 1 and any(a in self.shifted for a in axes), body)
        c.end_write(self)


def _reads(s: Stmt) -> list[Value]:
    if isinstance(s, Loop):
        return [v for c in s.carries for v in (c.init,)] + [v for x in s.body for v in _reads(x)]
    return list(operands(s))


def _first(ratio: int) -> Scalar:
    return make("eq", make("mod", var("core"), ratio), 0)
