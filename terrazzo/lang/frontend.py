"""From a kernel's AST to IR: statements are walked here, expressions evaluated on symbolic values.

Only assignments, stores, `for` over grid/loop and `if` on compile-time values mean something of
their own; everything else is Python's operators and calls on operands. A name assigned in a loop's
body and bound to a tile or number before the loop is carried by the loop.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from terrazzo.errors import KernelError
from terrazzo.ir.ops import LoopVar
from terrazzo.ir.types import Axis, TileType, i32
from terrazzo.lang import arith
from terrazzo.lang.carry import Gone, LoopNames, Outer
from terrazzo.lang.loops import Spec
from terrazzo.lang.source import Source, locate
from terrazzo.lang.symbols import Block, Dim, Operand, Tile, View, describe
from terrazzo.lang.trace import Builder
from terrazzo.lang.types import TypeVar

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.MatMult: operator.matmul, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_REMEDIES = {
    "While": "loop with tz.loop(…)", "With": "tiles need no with",
    "Try": "a kernel has no exceptions",
    "Return": "a kernel returns nothing: store into a parameter",
    "FunctionDef": "define helper functions outside of the kernel",
    "Lambda": "define a helper function outside of the kernel",
    "ListComp": "compute it in a helper function",
    "GeneratorExp": "compute it in a helper function",
    "Break": "give the loop its bounds: tz.loop(lo, hi)",
    "Continue": "choose with tz.where(cond, a, b)",
    "NamedExpr": "write the assignment on its own line",
}  # fmt: skip


class Frontend:
    """Evaluates one kernel's body into a builder."""

    def __init__(
        self, source: Source, builder: Builder, arguments: dict[str, Any], outer: Mapping[str, Any]
    ) -> None:
        self.source = source
        self.builder = builder
        self.names = dict(arguments)
        self.outer = outer
        self.assigned_at: dict[str, ast.AST] = {}

    def run(self) -> None:
        self._body(self.source.function.body)

    @contextmanager
    def _at(self, node: ast.AST, inside: str = "") -> Iterator[None]:
        """Ops made here belong to `node`; errors raised here point at it."""
        before, self.builder.loc = self.builder.loc, self.source.loc(node)
        try:
            yield
        except KernelError as e:
            if e.where:
                raise
            error = type(e)(f"in {inside}: {e.what}", e.remedy) if inside else e
            raise locate(error, self.source.loc(node)) from e
        except (
            TypeError,
            ValueError,
            ArithmeticError,
            AttributeError,
            LookupError,
            NameError,
        ) as e:
            prefix = f"in {inside}: " if inside else ""
            raise locate(KernelError(f"{prefix}{e}"), self.source.loc(node)) from e
        finally:
            self.builder.loc = before

    def _fail(self, node: ast.AST, what: str, remedy: str = "") -> KernelError:
        return locate(KernelError(what, remedy), self.source.loc(node))

    # -- statements ---------------------------------------------------------------------------
    def _body(self, body: list[ast.stmt]) -> None:
        for node in body:
            handler = getattr(self, f"_stmt_{type(node).__name__.lower()}", None)
            if handler is None:
                raise self._unknown(node)
            handler(node)

    def _unknown(self, node: ast.AST) -> KernelError:
        kind = type(node).__name__
        spelled = {"FunctionDef": "a nested function", "ListComp": "a comprehension"}.get(
            kind, kind.lower()
        )
        return self._fail(
            node, f"{spelled} is not part of the kernel language", _REMEDIES.get(kind, "")
        )

    def _stmt_pass(self, node: ast.Pass) -> None:
        pass

    def _stmt_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return
        if isinstance(self._expr(node.value), Operand):
            raise self._fail(
                node, "this expression has no effect", "assign it, or store it: out[i] = …"
            )

    def _stmt_assign(self, node: ast.Assign) -> None:
        value = self._expr(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _stmt_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self._expr(node.value))

    def _stmt_augassign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            old: Any = self._name(target)
            value = self._expr(node.value)
            with self._at(node):
                self._bind(target, _BINARY[type(node.op)](old, value))
        elif isinstance(target, ast.Subscript):
            place = self._expr_subscript(target)
            value = self._expr(node.value)
            with self._at(node):
                self._store(place, _BINARY[type(node.op)](place, value))
        else:
            raise self._fail(target, "this cannot be assigned to")

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._bind(target, value)
        elif isinstance(target, ast.Subscript):
            place = self._expr_subscript(target)
            with self._at(target):
                self._store(place, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, Operand):
                raise self._fail(target, f"{describe(value)} cannot be unpacked", "")
            with self._at(target):
                items = list(value)
                if len(items) != len(target.elts):
                    raise KernelError(f"{len(target.elts)} names for {len(items)} values")
            for name, item in zip(target.elts, items, strict=True):
                self._assign(name, item)
        else:
            raise self._fail(
                target, "this cannot be assigned to", "assign names or tensor elements"
            )

    def _bind(self, target: ast.Name, value: Any) -> None:
        self.names[target.id] = value
        self.assigned_at[target.id] = target

    def _store(self, place: Any, value: Any) -> None:
        if not isinstance(place, View):
            raise KernelError(
                f"{describe(place)} cannot be stored to", "only tensor parameters can"
            )
        if len(self.builder.scopes) == 1:
            raise KernelError("a store outside of a grid", "put it into `for … in tz.grid(…)`")
        place.store(value)

    def _stmt_assert(self, node: ast.Assert) -> None:
        if not self._truth(node.test):
            message = self._expr(node.msg) if node.msg else ast.unparse(node.test)
            raise self._fail(node.test, f"the kernel's own check failed: {message}")

    def _stmt_if(self, node: ast.If) -> None:
        self._body(node.body if self._truth(node.test) else node.orelse)

    def _truth(self, node: ast.expr) -> bool:
        value = self._expr(node)
        with self._at(node):
            return bool(value)

    def _stmt_for(self, node: ast.For) -> None:
        spec = self._expr(node.iter)
        if node.orelse:
            raise self._fail(node.orelse[0], "for … else is not part of the kernel language")
        if isinstance(spec, (range, tuple, list)):
            for item in spec:  # unrolled at compile time
                self._assign(node.target, item)
                self._body(node.body)
            return
        if not isinstance(spec, Spec):
            raise self._fail(
                node.iter,
                f"a kernel cannot loop over {describe(spec)}",
                "use tz.grid(…), tz.loop(…) or range(…)",
            )
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if len(names) != len(targets) or len(names) != len(spec.ranges):
            raise self._fail(
                node.target, f"{len(spec.ranges)} loop variables are needed, got {len(targets)}"
            )
        depth = len(self.builder.scopes)
        if spec.kind == "grid" and depth > 1:
            raise self._fail(
                node.iter, "a grid inside of a loop", "grids are outermost; use tz.loop here"
            )
        if spec.kind == "loop" and depth == 1:
            raise self._fail(
                node.iter, "a loop outside of a grid", "put it into `for … in tz.grid(…)`"
            )
        self._loop(node, spec, names)

    def _loop(self, node: ast.For, spec: Spec, own: list[str]) -> None:
        label = f"the {spec.kind} over `{', '.join(own)}` (line {node.lineno})"
        names = LoopNames(self.names, self.builder, self.assigned_at, self._at)
        assigned = [n for n in _assigned(node.body) if n not in own]
        names.prepare(node, assigned, carries=spec.kind == "loop")
        scope = self.builder.enter(label)
        variables = self._variables(spec, own)
        names.enter()
        self._body(node.body)
        carries = names.leave(label, node.lineno, spec.kind, own)
        with self._at(node.iter):
            self.builder.loop(spec.kind, variables, scope, carries, spec.stages)

    def _variables(self, spec: Spec, names: list[str]) -> tuple[LoopVar, ...]:
        out = []
        for name, r in zip(names, spec.ranges, strict=True):
            unique = self.builder.unique(name)
            var = None
            if r.step is None:
                var = self.builder.new(TileType(i32))
                self.names[name] = Tile(var)
            else:
                self.builder.axes[unique] = Axis(unique, r.dim, r.step, True)
                self.names[name] = Block(unique, r.dim)
            out.append(LoopVar(unique, r.lo, r.hi, r.step, var, r.dim))
        return tuple(out)

    # -- expressions --------------------------------------------------------------------------
    def _expr(self, node: ast.expr) -> Any:
        handler = getattr(self, f"_expr_{type(node).__name__.lower()}", None)
        if handler is None:
            raise self._unknown(node)
        return handler(node)

    def _expr_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _expr_name(self, node: ast.Name) -> Any:
        return self._name(node)

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            value = self.names[node.id]
            if isinstance(value, Gone):
                raise self._fail(node, value.what, value.remedy)
            if isinstance(value, Outer):
                value.read = value.read or node
                value = value.value
        elif node.id in self.outer:
            value = self.outer[node.id]
        elif hasattr(builtins, node.id):
            value = getattr(builtins, node.id)
        else:
            raise self._fail(node, f"name `{node.id}` is not defined")
        return self._resolve(node, value)

    def _resolve(self, node: ast.AST, value: Any) -> Any:
        if isinstance(value, TypeVar):
            with self._at(node):
                return arith.element_type(value)
        return value

    def _expr_tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._items(node.elts))

    def _expr_list(self, node: ast.List) -> Any:
        return self._items(node.elts)

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        out: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                items = self._expr(n.value)
                with self._at(n):
                    out.extend(items)
            else:
                out.append(self._expr(n))
        return out

    def _expr_binop(self, node: ast.BinOp) -> Any:
        left, right = self._expr(node.left), self._expr(node.right)
        with self._at(node):
            return _BINARY[type(node.op)](left, right)

    def _expr_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self._expr(node.operand)
        with self._at(node):
            if isinstance(node.op, ast.Not):
                if self._run_time(value):
                    raise KernelError("`not` of a run-time value", "write ~condition")
                return not value
            return {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}[
                type(node.op)
            ](value)

    def _run_time(self, value: Any) -> bool:
        static = isinstance(value, Dim) and value.name in self.builder.statics
        return isinstance(value, Operand) and not static

    def _expr_boolop(self, node: ast.BoolOp) -> Any:
        sign = "and" if isinstance(node.op, ast.And) else "or"
        value: Any = None
        for n in node.values:
            value = self._expr(n)
            if self._run_time(value):
                raise self._fail(
                    n,
                    f"`{sign}` of a run-time value",
                    f"write (a) {'&' if sign == 'and' else '|'} (b)",
                )
            if bool(value) == (sign == "or"):
                break
        return value

    def _expr_compare(self, node: ast.Compare) -> Any:
        left = self._expr(node.left)
        result: Any = True
        for op, n in zip(node.ops, node.comparators, strict=True):
            right = self._expr(n)
            with self._at(node):
                one = _COMPARE[type(op)](left, right)
                if len(node.ops) == 1:
                    return one
                if not isinstance(one, Operand) and not isinstance(result, Operand):
                    result = result and one
                else:
                    result = one if result is True else result & one
            left = right
        return result

    def _expr_ifexp(self, node: ast.IfExp) -> Any:
        return self._expr(node.body if self._truth(node.test) else node.orelse)

    def _expr_attribute(self, node: ast.Attribute) -> Any:
        owner = self._expr(node.value)
        with self._at(node):
            return self._resolve(node, getattr(owner, node.attr))

    def _expr_slice(self, node: ast.Slice) -> Any:
        parts = [None if p is None else self._expr(p) for p in (node.lower, node.upper, node.step)]
        return slice(*parts)

    def _expr_subscript(self, node: ast.Subscript) -> Any:
        owner, index = self._expr(node.value), self._expr(node.slice)
        with self._at(node):
            return owner[index]

    def _expr_call(self, node: ast.Call) -> Any:
        fn = self._expr(node.func)
        args = self._items(node.args)
        kw: dict[str, Any] = {}
        for k in node.keywords:
            value = self._expr(k.value)
            kw.update({k.arg: value} if k.arg else value)
        if hasattr(fn, "specialise"):
            raise self._fail(
                node, f"kernel `{fn.name}` is called from a kernel", "use a plain Python function"
            )
        own = str(getattr(fn, "__module__", "")).startswith("terrazzo.lang")
        name = getattr(fn, "__name__", "")
        with self._at(node, "" if own or not name else f"`{name}`"):
            return fn(*args, **kw)


def _assigned(body: list[ast.stmt]) -> list[str]:
    """Names bound anywhere in the statements, in order of first appearance."""
    out: dict[str, None] = {}
    for stmt in body:
        for n in ast.walk(stmt):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                out[n.id] = None
    return list(out)
