"""Loads through a table of pages, as of a paged cache."""

from __future__ import annotations

from dataclasses import dataclass

from terrazzo.ir.graph import Graph, walk
from terrazzo.ir.ops import Load, Loop
from terrazzo.ir.types import Value


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


def whole_pages(graph: Graph, load: Load) -> Paged | None:
    """`paged`, if every block of the axis starts with a page: a whole dimension does, and a loop's
    blocks of whole pages. A grid may choose smaller blocks than its step."""
    p = paged(graph, load)
    if p is None:
        return None
    for s in walk(graph.kernel.body):
        if not isinstance(s, Loop):
            continue
        for v in s.vars:
            if v.name == p.axis and v.step is not None:
                even = v.step % p.page == 0 and _multiple(graph, v.lo, p.page)
                return p if s.kind == "loop" and even else None
    return p


def _multiple(graph: Graph, v: Value, n: int) -> bool:
    """Whether v is known to be a multiple of n."""
    op = graph.op(v)
    factors = op.args if op is not None and op.op == "mul" else (v,)
    return any(c is not None and c % n == 0 for c in map(graph.const, factors))
