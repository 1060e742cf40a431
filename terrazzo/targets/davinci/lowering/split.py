"""Split: which of a phase's values the cube computes, and which cross to the other kind of core.

The cube computes products and the sums they accumulate into; a product that is only cast and
stored leaves through FixPipe. Everything else is the vector core's. A value that the other kind
reads crosses through a workspace in global memory, since the chip has no other way. A kernel
without products has a vector function only; one whose products are all stored directly has a cube
function only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from terrazzo.ir.graph import Graph, operands, walk
from terrazzo.ir.ops import Load, Loop, Op, Stmt, Store
from terrazzo.ir.types import DType, Value, bf16, f16, f32, i8

CUBE_TYPES = (f16, bf16, f32, i8)


@dataclass
class Split:
    """By value id. cube: computed in L0C. direct: id(store) -> its cube value, and whether FixPipe
    clips it at 0. passed: casts and relus that FixPipe does. to_vector, to_cube: values that cross.
    loads: operand of a product -> the load that the cube does itself. vector: there is something
    for a vector core to do. needed: values the vector core computes (or receives)."""

    cube: set[int] = field(default_factory=set)
    direct: dict[int, tuple[Value, bool]] = field(default_factory=dict)
    passed: set[int] = field(default_factory=set)
    to_vector: dict[int, Value] = field(default_factory=dict)
    to_cube: dict[int, Value] = field(default_factory=dict)
    loads: dict[int, Load] = field(default_factory=dict)
    vector: bool = False
    needed: set[int] = field(default_factory=set)


def split(graph: Graph, body: tuple[Stmt, ...]) -> Split:
    """The split of one phase's statements."""
    s = Split()
    statements = list(walk(body))
    uses = _uses(statements)
    for st in statements:
        if isinstance(st, Op) and st.op in ("dot", "dot_acc"):
            s.cube.add(st.result.id)
    for st in statements:  # what a loop accumulates
        if isinstance(st, Loop):
            for c in st.carries:
                if first_product(graph, c.next, c.var) is not None:
                    s.cube |= {c.var.id, c.result.id}
    for st in statements:
        if isinstance(st, Op) and st.op in ("dot", "dot_acc"):
            _operands(graph, s, st)
    for st in statements:
        if isinstance(st, Store):
            _direct(graph, s, st, uses)
    _need(graph, s, statements)
    s.vector = bool(s.to_vector or s.to_cube) or any(
        isinstance(st, Store) and id(st) not in s.direct for st in statements
    )
    return s


def first_product(graph: Graph, total: Value, var: Value) -> Op | None:
    """The first of the products that make `total` of `var`, added one after another; None if
    something else happens on the way."""
    op = graph.op(total) if total.id in graph.defs else None
    while op is not None and op.op == "dot_acc":
        if op.args[0].id == var.id:
            return op
        op = graph.op(op.args[0])
    return None


def _need(graph: Graph, s: Split, statements: list[Stmt]) -> None:
    """Fills `needed` and `to_vector`: back from what vector code stores or hands to the cube."""
    carries = {c.result.id: c for st in statements if isinstance(st, Loop) for c in st.carries}
    carries |= {c.var.id: c for c in carries.values()}
    roots = [st.value for st in statements if isinstance(st, Store) and id(st) not in s.direct]
    wanted = roots + list(s.to_cube.values())
    while wanted:
        v = wanted.pop()
        if v.id in s.needed:
            continue
        s.needed.add(v.id)
        if v.id in s.cube:
            s.to_vector[v.id] = v
        elif v.id in carries:
            c = carries[v.id]
            wanted += [c.init, c.next, c.var, c.result]
        elif not isinstance(graph.defs[v.id], Load):  # whose addresses are scalars
            wanted += graph.args(v)


def peeled(graph: Graph, v: Value) -> Value:
    """`v` without casts that lose nothing (f16, bf16 or i8 to f32)."""
    op = graph.op(v)
    while op is not None and op.op == "cast" and op.args[0].dtype in (f16, bf16) and v.dtype == f32:
        v = op.args[0]
        op = graph.op(v)
    return v


def _operands(graph: Graph, s: Split, st: Op) -> None:
    a, b = st.args[-2:]
    bare = [peeled(graph, x) for x in (a, b)]
    if bare[0].dtype != bare[1].dtype or bare[0].dtype not in CUBE_TYPES:
        bare = [a, b]
    for given, x in zip((a, b), bare, strict=True):
        d = graph.defs[x.id]
        if isinstance(d, Load) and x.dtype in CUBE_TYPES and len(x.axes) >= 1:
            s.loads[given.id] = d
        elif x.id in s.cube:
            s.to_vector[x.id] = x
            s.to_cube[x.id] = x
        else:
            s.to_cube[x.id] = x


def _direct(graph: Graph, s: Split, st: Store, uses: dict[int, int]) -> None:
    v, relu, chain = st.value, False, []
    while v.id not in s.cube:
        op = graph.op(v)
        if op is None or uses.get(v.id, 0) != 1:
            return
        if op.op == "cast" and not relu and isinstance(v.dtype, DType) and v.dtype.kind == "float":
            chain.append(v.id)
            v = op.args[0]
        elif op.op == "max" and graph.const(op.args[1]) == 0:
            relu = True
            chain.append(v.id)
            v = op.args[0]
        else:
            return
    if st.value.dtype in (f16, bf16, f32) or v.dtype == st.value.dtype:
        s.direct[id(st)] = (v, relu)
        s.passed.update(chain)


def _uses(statements: list[Stmt]) -> dict[int, int]:
    out: dict[int, int] = {}
    for st in statements:
        if isinstance(st, Loop):
            used = [v for c in st.carries for v in (c.init, c.next)]
        else:
            used = list(operands(st))
        for v in used:
            out[v.id] = out.get(v.id, 0) + 1
    return out
