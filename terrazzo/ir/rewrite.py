"""The frame that passes are written in: walk a kernel, map values, emit statements anew,
renumber."""

from __future__ import annotations

from dataclasses import replace

from terrazzo.ir.ops import (
    Block,
    Carry,
    Expect,
    Index,
    Kernel,
    Load,
    Loop,
    LoopVar,
    Op,
    Stmt,
    Store,
    Whole,
)
from terrazzo.ir.types import DType, TileType, Value


class Rewriter:
    """Copies a kernel statement by statement. A pass overrides `op`, `load`, `store` or `loop`.

    They get the old statement with its operands already mapped and return what takes the place of
    its result; `emit` and `make` append to the body under construction.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.map: dict[int, Value] = {}
        self.out: list[Stmt] = []
        self._next = 1 + max((v.id for v in defined(kernel.body)), default=-1)

    def run(self) -> Kernel:
        return renumber(replace(self.kernel, body=self.body(self.kernel.body)))

    # -- emitting ------------------------------------------------------------------------------
    def fresh(self, type: TileType) -> Value:
        self._next += 1
        return Value(self._next - 1, type)

    def make(
        self, op: str, args: tuple[Value, ...], type: TileType, like: Op, **attrs: object
    ) -> Value:
        """Emit a new op at the place in the source that `like` has."""
        return self.emit(Op(self.fresh(type), op, args, tuple(sorted(attrs.items())), like.loc))

    def const(self, value: int | float | bool, dtype: DType, like: Op) -> Value:
        return self.make("const", (), TileType(dtype), like, value=value)

    def emit(self, s: Op | Load) -> Value:
        self.out.append(s)
        return s.result

    # -- walking -------------------------------------------------------------------------------
    def value(self, v: Value) -> Value:
        return self.map.get(v.id, v)

    def index(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(self.value(e) if isinstance(e, Value) else e for e in index)

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        outer, self.out = self.out, []
        for s in body:
            if isinstance(s, Op):
                self.map[s.result.id] = self.op(replace(s, args=tuple(map(self.value, s.args))))
            elif isinstance(s, Load):
                self.map[s.result.id] = self.load(replace(s, index=self.index(s.index)))
            elif isinstance(s, Store):
                self.store(replace(s, index=self.index(s.index), value=self.value(s.value)))
            elif isinstance(s, Expect):
                self.out.append(replace(s, condition=self.value(s.condition)))
            else:
                self.loop(s)
        done, self.out = tuple(self.out), outer
        return done

    def op(self, s: Op) -> Value:
        return self.emit(s)

    def load(self, s: Load) -> Value:
        return self.emit(s)

    def store(self, s: Store) -> None:
        self.out.append(s)

    def loop(self, s: Loop) -> None:
        """Copies a loop; a value carried unchanged is its initial value."""
        carries = []
        for c in s.carries:
            if c.next == c.var:
                self.map[c.var.id] = self.map[c.result.id] = self.value(c.init)
            else:
                carries.append(c)
        variables = tuple(replace(v, lo=self.value(v.lo), hi=self.value(v.hi)) for v in s.vars)
        inits = [self.value(c.init) for c in carries]
        body = self.body(s.body)
        mapped = tuple(
            Carry(init, c.var, self.value(c.next), c.result)
            for init, c in zip(inits, carries, strict=True)
        )
        self.out.append(replace(s, vars=variables, body=body, carries=mapped))


def defined(body: tuple[Stmt, ...]) -> list[Value]:
    """Every value a body defines, in order of definition."""
    out: list[Value] = []
    for s in body:
        if isinstance(s, (Op, Load)):
            out.append(s.result)
        elif isinstance(s, Loop):
            out += [v.var for v in s.vars if v.var is not None]
            out += [c.var for c in s.carries]
            out += defined(s.body)
            out += [c.result for c in s.carries]
    return out


def renumber(kernel: Kernel) -> Kernel:
    """Number values in order of definition and drop axes that nothing mentions."""
    new = {v.id: Value(n, v.type) for n, v in enumerate(defined(kernel.body))}
    axes: set[str] = set()

    def index(entries: tuple[Index, ...]) -> tuple[Index, ...]:
        axes.update(e.axis for e in entries if isinstance(e, (Whole, Block)))
        return tuple(new[e.id] if isinstance(e, Value) else e for e in entries)

    def variable(v: LoopVar) -> LoopVar:
        axes.add(v.name)
        return replace(v, lo=new[v.lo.id], hi=new[v.hi.id], var=v.var and new[v.var.id])

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Op):
            axes.update(s.result.axes, (str(v) for k, v in s.attrs if k == "axis"))
            return replace(s, result=new[s.result.id], args=tuple(new[v.id] for v in s.args))
        if isinstance(s, Load):
            axes.update(s.result.axes)
            return replace(s, result=new[s.result.id], index=index(s.index))
        if isinstance(s, Store):
            return replace(s, index=index(s.index), value=new[s.value.id])
        if isinstance(s, Expect):
            return replace(s, condition=new[s.condition.id])
        carries = tuple(
            Carry(new[c.init.id], new[c.var.id], new[c.next.id], new[c.result.id])
            for c in s.carries
        )
        body = tuple(map(stmt, s.body))
        return replace(s, vars=tuple(map(variable, s.vars)), body=body, carries=carries)

    body = tuple(map(stmt, kernel.body))
    return replace(kernel, body=body, axes=tuple(a for a in kernel.axes if a.name in axes))
