"""`mmad_l1` spelt out: steps along k, each a move to L0A, a move to L0B and a `mmad`.

A step is as long as both halves of L0 allow, so that the moves of one step run while the Cube works
on the one before; all products of a function take turns with the halves. Where one does not fit
half of L0 in its shortest step, all get the whole of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from terrazzo.errors import CapacityError
from terrazzo.ir.place import mark
from terrazzo.targets.davinci.chips import BLOCK, CAPACITY, FRACTAL_ROWS
from terrazzo.targets.davinci.expr import Scalar, add, make, mul, sub, var
from terrazzo.targets.davinci.program import Buffer, CoreFn, For, If, Instr, Space, Stmt, View, walk


def expand(fn: CoreFn) -> CoreFn:
    """`fn` without `mmad_l1`. Raises CapacityError for an operand that L0 cannot take."""
    products = [s for s in walk(fn.body) if isinstance(s, Instr) and s.op == "mmad_l1"]
    e = _Expander(min((_slots(*_sides(s), s) for s in products), default=2))
    body = e.body(fn.body)
    return replace(fn, body=body, buffers=(*fn.buffers, *e.buffers))


@dataclass(frozen=True)
class _Side:
    """An operand: `view` in L1 holds [outer, k], or [k, outer] where `turned`. Extents by room."""

    view: View
    turned: bool
    outer: int
    k: int

    @property
    def bytes(self) -> int:
        return self.view.dtype.bytes

    def part(self, at: Scalar, length: Scalar) -> View:
        """Elements at .. at + length along k."""
        v = self.view
        rows, columns = v.sizes
        if self.turned:
            offset, sizes = mul(at, v.strides[0]), (length, columns)
        else:  # whole fractals
            per = v.strides[1]
            assert isinstance(per, int)
            offset, sizes = mul(at, per // v.fractal), (rows, length)
        return replace(v, sizes=sizes, offset=add(v.offset, offset))


class _Expander:
    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.buffers: list[Buffer] = []
        self.count = 0

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, (For, If)):
                out.append(replace(s, body=self.body(s.body)))
            elif isinstance(s, Instr) and s.op == "mmad_l1":
                out += self.product(s)
            else:
                out.append(s)
        return tuple(out)

    def product(self, s: Instr) -> list[Stmt]:
        left, right = _sides(s)
        first = s.ins[2]
        assert not isinstance(first, View)
        self.count += 1
        step = _step(left, right, self.slots)
        n = self.count
        l0a = self.buffer(f"l0a{n}", "L0A", left, step, s)
        l0b = self.buffer(f"l0b{n}", "L0B", right, step, s)
        whole = left.view.sizes[0 if left.turned else 1]
        long = max(left.k, right.k) > step
        at: Scalar = var(f"k{n}") if long else 0
        length = make("min", step, sub(whole, at)) if long else whole
        if isinstance(whole, int) and whole % step == 0:
            length = step
        m = left.view.sizes[1 if left.turned else 0]
        columns = right.view.sizes[1 if right.turned else 0]
        to_a = _l0(l0a, (m, length), left.outer)
        # L0B as [k, n]: its fractals lie along n, which a view with fractal columns is not; the
        # bytes are the same.
        to_b = _l0(l0b, (length, columns), step)
        out = replace(s.out, sizes=(m, columns))
        begins = make("and", first, make("eq", at, 0)) if long else first
        inner: list[Stmt] = [
            Instr("l1_to_l0a", to_a, (left.part(at, length),), _turned(left.turned), s.loc),
            Instr("l1_to_l0b", to_b, (right.part(at, length),), _turned(not right.turned), s.loc),
            Instr("mmad", out, (to_a, to_b, begins), (), s.loc),
        ]
        return [For(f"k{n}", 0, whole, step, tuple(inner), s.loc)] if long else inner

    def buffer(self, name: str, space: Space, side: _Side, step: int, s: Instr) -> Buffer:
        tile = getattr(side.view.memory, "tile", "")
        elements = _padded(side.outer, side) * step
        made = Buffer(name, space, side.view.dtype, elements, self.slots, (), tile, s.loc)
        self.buffers.append(made)
        return made


def _sides(s: Instr) -> tuple[_Side, _Side]:
    a, b = s.ins[:2]
    assert isinstance(a, View) and isinstance(b, View)
    return _side(a, bool(s.attr("transpose_a"))), _side(b, not s.attr("transpose_b"))


def _side(v: View, turned: bool) -> _Side:
    memory, c0 = v.memory, v.fractal
    assert isinstance(memory, Buffer) and c0 and isinstance(v.strides[1], int)
    height = v.strides[1] // c0
    width = memory.elements // height
    return _Side(v, turned, *((width, height) if turned else (height, width)))


def _padded(n: int, side: _Side) -> int:
    unit = max(FRACTAL_ROWS, BLOCK // side.bytes)
    return -(-n // unit) * unit


def _room(left: _Side, right: _Side, slots: int) -> int:
    """Elements along k that L0 takes in `slots` slots, in whole fractals."""
    unit = _padded(1, left)
    sides = (("L0A", left), ("L0B", right))
    room = (CAPACITY[at] // slots // (_padded(x.outer, x) * x.bytes) for at, x in sides)
    return min(room) // unit * unit


def _step(left: _Side, right: _Side, slots: int) -> int:
    return min(_padded(min(left.k, right.k), left), _room(left, right, slots))


def _slots(left: _Side, right: _Side, s: Instr) -> int:
    """Two where the shortest step leaves room for them."""
    for slots in (2, 1):
        if _room(left, right, slots):
            return slots
    sides = f"{left.outer} rows and {right.outer} columns of {left.view.dtype}"
    text = (
        f"a product of {sides} does not fit L0A and L0B, {CAPACITY['L0A']:,} B each, even in steps"
        f" of {_padded(1, left)} along the summed axis"
    )
    raise mark(CapacityError(text, "choose a smaller tile"), s.loc)


def _turned(yes: bool) -> tuple[tuple[str, object], ...]:
    return (("transpose", 1),) if yes else ()


def _l0(buffer: Buffer, sizes: tuple[Scalar, Scalar], height: int) -> View:
    c0 = BLOCK // buffer.dtype.bytes
    height = -(-height // FRACTAL_ROWS) * FRACTAL_ROWS
    return View(buffer, sizes, (c0, height * c0), 0, 0, c0)
