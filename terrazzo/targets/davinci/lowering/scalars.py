"""The scalars of a kernel: rank-0 values that the core's scalar unit computes, as expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast as typed

from terrazzo.errors import KernelError
from terrazzo.ir.graph import Graph
from terrazzo.ir.ops import Load, Op, Stmt
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, Value, bool_
from terrazzo.targets.davinci.expr import Expr, Scalar, add, make
from terrazzo.targets.davinci.lowering.tiles import Range

_OPS = {"add": "add", "sub": "sub", "mul": "mul", "floordiv": "div", "mod": "mod", "min": "min",
        "max": "max", "lt": "lt", "le": "le", "eq": "eq", "ne": "ne", "and": "and", "or": "or",
        "neg": "neg", "div": "fdiv", "sqrt": "sqrt"}  # fmt: skip


class Scalars:
    """Expressions by value. `blocks` (filled by the walk) says where axes are; `own`, which part of
    them is this core's."""

    def __init__(self, graph: Graph, dims: Mapping[str, int], own: Mapping[str, Range]) -> None:
        self.graph, self.dims, self.own = graph, dims, own
        self.blocks: dict[str, Range] = {}
        self._known: dict[int, Scalar] = {}

    def set(self, v: Value, value: Scalar) -> None:
        self._known[v.id] = value

    def has(self, v: Value) -> bool:
        return v.id in self._known

    def get(self, v: Value) -> Scalar:
        return self._known[v.id]

    def statement(self, s: Stmt) -> bool:
        """Whether `s` is a scalar computation; then it is known from now on."""
        if not isinstance(s, (Op, Load)) or s.result.axes:
            return False
        value = self._load(s) if isinstance(s, Load) else self._compute(s)
        if value is None:
            return False
        self._known[s.result.id] = value
        return True

    def _load(self, s: Load) -> Scalar | None:
        if any(not isinstance(i, Value) or not self.has(i) for i in s.index):
            return None
        return Expr("load", (s.param, *(self.get(typed(Value, i)) for i in s.index)))

    def _compute(self, s: Op) -> Scalar | None:
        dtype = typed(DType, s.result.dtype)
        match s.op:
            case "const":
                return typed(int, s.attr("value"))
            case "dim":
                return self.dims[typed(str, s.attr("name"))]
            case "arg":
                return Expr("arg", (s.attr("name"),))
            case "start":
                return self.blocks[typed(str, s.attr("axis"))].start
            case "extent":
                return self.blocks[typed(str, s.attr("axis"))].size
        if not all(self.has(a) for a in s.args):
            return None
        args = [self.get(a) for a in s.args]
        if s.op == "cast":
            (x,) = args
            if dtype.kind == "float" and isinstance(x, int):
                return float(x)
            return x
        if s.op == "not" and dtype == bool_:
            return make("eq", args[0], 0)
        if s.op == "rsqrt":
            return make("fdiv", 1.0, make("sqrt", args[0]))
        if s.op == "gt":
            return make("lt", args[1], args[0])
        if s.op == "ge":
            return make("le", args[1], args[0])
        if s.op == "where":
            return make("select", *args)
        if s.op not in _OPS:
            text = f"the scalar unit has no rule for `{s.op}` in {dtype}"
            raise mark(KernelError(text, "compute it before the launch"), s.loc)
        name = _OPS[s.op]
        if s.op == "div" and dtype.kind != "float":
            name = "div"
        return make(name, *args)

    def at(self, v: Value, places: Mapping[str, Scalar]) -> Scalar | None:
        """Element of an index tile: `v` where each axis is at its place within this core's part.
        None if it is not made of index tensors, indices and scalars."""
        if self.has(v):
            return self.get(v)
        d = self.graph.defs[v.id]
        if isinstance(d, Load):
            return self._element(d, places)
        if not isinstance(d, Op):
            return None
        if d.op == "index":
            axis = typed(str, d.attr("axis"))
            return add(self.own[axis].start, places[axis])
        args = [self.at(a, places) for a in d.args]
        if d.op not in _OPS or any(a is None for a in args):
            return None
        return make(_OPS[d.op], *typed(list[Scalar], args))

    def _element(self, d: Load, places: Mapping[str, Scalar]) -> Scalar | None:
        index: list[Scalar] = []
        for i in d.index:
            if isinstance(i, Value):
                at = self.at(i, places)
                if at is None:
                    return None
                index.append(at)
            else:
                index.append(add(self.own[i.axis].start, places[i.axis]))
        return Expr("load", (d.param, *index))
