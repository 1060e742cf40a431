"""The verifier: what must hold of a kernel at each stage. A failure is a defect of a pass."""

from __future__ import annotations

from dataclasses import dataclass

from terrazzo.errors import KernelError
from terrazzo.ir.graph import index_axes
from terrazzo.ir.infer import result_type
from terrazzo.ir.ops import Block, Expect, Index, Kernel, Load, Loop, Op, Stmt, Store
from terrazzo.ir.printer import statement
from terrazzo.ir.types import Format, TileType, Value, bool_, i32

SPACES = ("", "UB", "L1")


@dataclass(frozen=True)
class Stage:
    """What a stage forbids: ops by name, and values that nothing reads."""

    forbidden: frozenset[str] = frozenset()
    dead_code: bool = True


# In the order of the pipeline. `exp` and `log` in f32 become exp2 and log2 in simplify.
STAGES = {
    "traced": Stage(forbidden=frozenset({"dot_acc"})),
    "simplified": Stage(forbidden=frozenset({"dot_acc"}), dead_code=False),
    "accumulated": Stage(dead_code=False),
}


def verify(kernel: Kernel, stage: str) -> None:
    """Raise KernelError, naming the statement, unless the kernel is well-formed for the stage.

    Checked: every value is defined once and before its uses, in a scope that encloses them; axes
    are declared, and block axes live; every op, load, store and loop has the types of its rule;
    parameters exist; carried values keep their type; stores and loops are inside of grids.
    """
    _Verifier(kernel, STAGES[stage]).run()


class _Verifier:
    def __init__(self, kernel: Kernel, stage: Stage) -> None:
        self.kernel = kernel
        self.stage = stage
        self.params = {p.name: p for p in kernel.params}
        self.axes = {a.name: a for a in kernel.axes}
        self.dims = {d for p in kernel.params for d in p.dims}
        self.live = {a.name for a in kernel.axes if not a.block}
        self.seen: set[int] = set()
        self.scope: dict[int, TileType] = {}
        self.read: set[int] = set()
        self.pure: dict[int, Stmt] = {}

    def run(self) -> None:
        k = self.kernel
        if len(self.params) != len(k.params) or len(self.axes) != len(k.axes):
            raise KernelError(f"kernel {k.name}: a parameter or axis is declared twice")
        for a in k.axes:
            if not a.block and (a.name != a.dim or a.dim not in self.dims):
                raise KernelError(f"kernel {k.name}: whole axis {a.name} of dim {a.dim}")
        for pair in k.aliases:
            self.need(
                all(p in self.params for p in pair), None, f"alias of unknown parameter {pair}"
            )
        self.body(k.body, 0)
        if not self.stage.dead_code:
            for number, stmt in self.pure.items():
                self.need(number in self.read, stmt, "its value is never read")

    def need(self, condition: bool, stmt: Stmt | None, what: str) -> None:
        if not condition:
            raise KernelError(
                f"kernel {self.kernel.name}: {what}" + (f": {statement(stmt)}" if stmt else "")
            )

    def define(self, value: Value, stmt: Stmt) -> None:
        self.need(value.id not in self.seen, stmt, f"{value} is defined twice")
        self.axes_live(value.axes, stmt)
        self.need(len(set(value.axes)) == len(value.axes), stmt, "an axis stands twice")
        self.seen.add(value.id)
        self.scope[value.id] = value.type

    def use(self, value: Value, stmt: Stmt) -> None:
        self.need(value.id in self.scope, stmt, f"{value} is not defined here")
        self.need(self.scope[value.id] == value.type, stmt, f"{value} has two types")
        self.read.add(value.id)

    def axes_live(self, axes: tuple[str, ...], stmt: Stmt) -> None:
        for a in axes:
            self.need(a in self.axes, stmt, f"axis {a} is not declared")
            self.need(a in self.live, stmt, f"axis {a} is used outside of its loop")

    # -- statements ---------------------------------------------------------------------------
    def body(self, body: tuple[Stmt, ...], depth: int) -> None:
        for s in body:
            if isinstance(s, Op):
                self.op(s)
            elif isinstance(s, Load):
                self.access(s.param, s.index, s)
                p = self.params[s.param]
                self.need(s.result.type == TileType(p.dtype, index_axes(s)), s, "wrong type")
                self.need(s.space in SPACES, s, f"{s.space} cannot hold a loaded tile")
                self.define(s.result, s)
                self.pure[s.result.id] = s
            elif isinstance(s, Store):
                self.need(depth > 0, s, "a store outside of a grid")
                self.access(s.param, s.index, s)
                self.use(s.value, s)
                self.need(s.value.dtype == self.params[s.param].dtype, s, "wrong element type")
                extra = set(s.value.axes) - set(index_axes(s))
                self.need(not extra, s, f"axes {sorted(extra)} have no place")
            elif isinstance(s, Expect):
                self.need(depth > 0, s, "an expectation outside of a grid")
                self.use(s.condition, s)
                self.need(s.condition.type == TileType(bool_), s, "a condition is a bool scalar")
            else:
                self.loop(s, depth)

    def op(self, s: Op) -> None:
        for v in s.args:
            self.use(v, s)
        self.need(s.op not in self.stage.forbidden, s, f"{s.op} is not allowed at this stage")
        self.need(
            list(s.attrs) == sorted(s.attrs, key=lambda kv: kv[0]), s, "attributes out of order"
        )
        try:
            want = result_type(s)
        except (KernelError, KeyError) as e:
            self.need(False, s, str(e))
            return
        got = s.result.type
        same = got.dtype == want.dtype and (
            got.axes == want.axes
            if isinstance(got.dtype, Format)
            else set(got.axes) == set(want.axes)
        )
        self.need(same, s, f"its type should be {want}")
        attrs = dict(s.attrs)
        if s.op in ("index", "start", "extent"):
            self.axes_live((str(attrs["axis"]),), s)
            block = self.axes[str(attrs["axis"])].block
            self.need(block or s.op == "index", s, "a whole axis has no start or extent: use dim")
        elif s.op == "dim":
            self.need(attrs["name"] in self.dims, s, f"dim {attrs['name']} is in no parameter")
        elif s.op == "arg":
            p = self.params.get(str(attrs["name"]))
            self.need(
                p is not None and not p.tensor and p.dtype == got.dtype, s, "not a scalar parameter"
            )
        self.define(s.result, s)
        self.pure[s.result.id] = s

    def access(self, param: str, index: tuple[Index, ...], s: Stmt) -> None:
        p = self.params.get(param)
        if p is None or not p.tensor:
            raise KernelError(f"kernel {self.kernel.name}: {param} is not a tensor parameter")
        self.need(len(index) == len(p.dims), s, f"{len(index)} entries for {len(p.dims)} dims")
        for entry, dim in zip(index, p.dims, strict=True):
            if isinstance(entry, Value):
                self.use(entry, s)
                self.need(entry.dtype == i32, s, "an index is i32")
            else:
                self.axes_live((entry.axis,), s)
                axis = self.axes[entry.axis]
                self.need(axis.dim == dim, s, f"axis {axis.name} lies in {axis.dim}, not in {dim}")
                self.need(
                    axis.block == isinstance(entry, Block), s, f"axis {axis.name} is misspelt"
                )

    def loop(self, s: Loop, depth: int) -> None:
        self.need(
            (s.kind == "grid") == (depth == 0), s, "grids are outermost, loops inside of them"
        )
        self.need(s.kind == "grid" or len(s.vars) == 1, s, "a loop has one variable")
        self.need(s.kind == "loop" or not s.carries, s, "a grid carries nothing")
        self.need(s.stages >= 1, s, "stages is less than 1")
        for v in s.vars:
            for bound in (v.lo, v.hi):
                self.use(bound, s)
                self.need(bound.type == TileType(i32), s, "bounds are i32 scalars")
        for c in s.carries:
            self.use(c.init, s)
            types = {c.init.type, c.var.type, c.next.type, c.result.type}
            self.need(len(types) == 1, s, f"{c.var} is carried with several types")
        outer, live = dict(self.scope), set(self.live)
        for v in s.vars:
            if v.step is None:
                if v.var is None:
                    self.need(False, s, f"{v.name} has neither step nor value")
                    return
                self.define(v.var, s)
            else:
                axis = self.axes.get(v.name)
                ok = axis is not None and axis.block and axis.dim == v.dim and axis.cap == v.step
                self.need(
                    ok and v.var is None and v.step >= 1,
                    s,
                    f"{v.name} is no block axis of its step",
                )
                self.need(v.name not in self.live, s, f"axis {v.name} is open twice")
                self.live.add(v.name)
        for c in s.carries:
            self.define(c.var, s)
        self.body(s.body, depth + 1)
        for c in s.carries:
            self.use(c.next, s)
        self.scope, self.live = outer, live
        for c in s.carries:
            self.define(c.result, s)
