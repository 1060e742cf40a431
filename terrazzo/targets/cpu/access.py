"""How index entries address memory: affine forms."""

from __future__ import annotations

from dataclasses import dataclass

from terrazzo.ir.graph import Graph
from terrazzo.ir.ops import Block, Load, Op, Store, Whole
from terrazzo.ir.types import Value


@dataclass(frozen=True)
class Affine:
    """const + sum(coef * scalar) + sum(coef * absolute index of axis)."""

    const: int
    scalars: tuple[tuple[int, Value], ...]
    axes: tuple[tuple[int, str], ...]

    def coef(self, axis: str) -> int:
        return sum(c for c, a in self.axes if a == axis)


def _scaled(a: Affine, c: int) -> Affine:
    return Affine(
        a.const * c, tuple((k * c, v) for k, v in a.scalars), tuple((k * c, x) for k, x in a.axes)
    )


def affine(graph: Graph, v: Value) -> Affine | None:
    """The affine form of an i32 index value, or None (then it is evaluated lane by lane)."""
    op = graph.op(v)
    c = graph.const(v)
    if c is not None:
        return Affine(int(c), (), ())
    if op is not None and op.op == "index":
        return Affine(0, (), ((1, str(op.attr("axis"))),))
    if op is not None and op.op in ("add", "sub"):
        a, b = (affine(graph, x) for x in op.args)
        if a is None or b is None:
            return None
        if op.op == "sub":
            b = _scaled(b, -1)
        return Affine(a.const + b.const, a.scalars + b.scalars, a.axes + b.axes)
    if op is not None and op.op == "mul":
        for x, y in (op.args, op.args[::-1]):
            c = graph.const(y)
            a = affine(graph, x)
            if c is not None and a is not None:
                return _scaled(a, int(c))
    return Affine(0, ((1, v),), ()) if not v.axes else None


def scattered(graph: Graph, s: Load) -> bool:
    """Whether elements lie where a table or the like says: no affine form holds along some axis."""
    return any(isinstance(e, Value) and e.axes and affine(graph, e) is None for e in s.index)


def unit_axis(graph: Graph, s: Load | Store) -> str | None:
    """The axis along which the access is contiguous (stride 1 in the innermost dimension), or
    None."""
    if not s.index:
        return None
    last = s.index[-1]
    if isinstance(last, (Whole, Block)):
        return last.axis
    form = affine(graph, last)
    if form is not None and len({a for _, a in form.axes}) == 1 and last.axes:
        return last.axes[0]
    op: Op | None = graph.op(last)
    if op is not None and op.op == "mod" and last.axes:
        return last.axes[0]
    return None
