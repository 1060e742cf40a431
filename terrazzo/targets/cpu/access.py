"""How index entries address memory: affine forms and pages."""

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


@dataclass(frozen=True)
class Paged:
    """A load whose axis `axis` runs through pages: entry `table_dim` is `table[.., axis // page]`,
    entry `lane_dim` is `axis % page`."""

    axis: str
    page: int
    table_dim: int
    lane_dim: int
    table: Load


def _div_mod(graph: Graph, v: Value, name: str) -> tuple[str, int] | None:
    op = graph.op(v)
    if op is None or op.op != name:
        return None
    base, by = graph.op(op.args[0]), graph.const(op.args[1])
    if base is None or base.op != "index" or by is None:
        return None
    return str(base.attr("axis")), int(by)


def paged(graph: Graph, load: Load) -> Paged | None:
    """Recognise `x[table[b, j // P], .., j % P, ..]` with constant P; None if the load is not of
    that form."""
    found: dict[str, tuple[int, int, Load]] = {}
    for dim, entry in enumerate(load.index):
        if isinstance(entry, Value) and entry.axes:
            d = graph.defs[entry.id]
            if isinstance(d, Load) and d.index and isinstance(d.index[-1], Value):
                got = _div_mod(graph, d.index[-1], "floordiv")
                if got and not any(isinstance(e, Value) and e.axes for e in d.index[:-1]):
                    found[got[0]] = (dim, got[1], d)
    for dim, entry in enumerate(load.index):
        if isinstance(entry, Value) and entry.axes:
            got = _div_mod(graph, entry, "mod")
            if got and got[0] in found and found[got[0]][1] == got[1]:
                table_dim, page, table = found[got[0]]
                return Paged(got[0], page, table_dim, dim, table)
    return None


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
