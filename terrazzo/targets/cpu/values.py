"""Questions about the values of a kernel while its loops are made: what evaluating one would need,
given which have a buffer by now."""

from __future__ import annotations

from collections.abc import Iterable

from terrazzo.ir.graph import Graph, index_values, operands, walk
from terrazzo.ir.ops import Kernel, Load, Loop, Op
from terrazzo.ir.types import DType, Format, Value
from terrazzo.targets.cpu.access import scattered
from terrazzo.targets.cpu.nest import Buf, Root


class Values:
    """`mat`: values with a buffer now; all others are virtual, computed where they are used."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.graph = Graph(kernel)
        self.mat: dict[int, Buf] = {}
        self._users = self._find_users()

    def _find_users(self) -> dict[int, list[object]]:
        users: dict[int, list[object]] = {}
        for s in walk(self.kernel.body):
            if isinstance(s, Loop):
                for c in s.carries:
                    users.setdefault(c.init.id, []).append(c)
                    users.setdefault(c.next.id, []).append(c)
                continue
            for v in operands(s):
                users.setdefault(v.id, []).append(s)
        return users

    def reaches(
        self, roots: Iterable[Value], want: str, seen: set[int] | None = None
    ) -> list[Value]:
        """Virtual values with op `want` that evaluating `roots` would need, inner ones not
        searched."""
        out: dict[int, Value] = {}
        seen = set() if seen is None else seen
        stack = list(roots)
        while stack:
            v = stack.pop(0)
            if v.id in seen or v.id in self.mat:
                continue
            seen.add(v.id)
            op = self.graph.op(v)
            if op is not None and op.op == want:
                out[v.id] = v
                continue
            stack += self.graph.args(v)
        return list(out.values())

    def closure(self, v: Value) -> set[int]:
        """Ids of the virtual values (and the leaves they end in) that evaluating v touches."""
        seen: set[int] = set()
        stack = [v]
        while stack:
            x = stack.pop()
            if x.id in seen:
                continue
            seen.add(x.id)
            if x.id not in self.mat or x.id == v.id:
                stack += self.graph.args(x)
        return seen

    def loads(self, v: Value, axis: str) -> list[Load]:
        """Loads with that axis under v."""
        found = (self.graph.defs[i] for i in self.closure(v))
        return [d for d in found if isinstance(d, Load) and axis in d.result.axes]

    def decodes(self, v: Value) -> list[Value]:
        """Casts of packed loads that evaluating v would need: each row is decoded as a whole
        first."""
        out: list[Value] = []
        for i in sorted(self.closure(v)):
            d = self.graph.defs[i]
            if isinstance(d, Op) and d.op == "cast" and i not in self.mat:
                fmt = d.args[0].dtype
                if isinstance(fmt, Format) and fmt.name != "a8":
                    out.append(d.result)
        return out

    def under(self, r: Root) -> set[int]:
        """Ids of the values that a root evaluates."""
        return set().union(*(self.closure(v) for v in (r.value, *self.places(r))))

    def places(self, r: Root) -> tuple[Value, ...]:
        """Values that say where a root is stored."""
        return index_values(r.store) if r.store is not None else ()

    def touched(self, r: Root) -> set[int]:
        """Ids of the values that a root evaluates at its own level: not those under a reduction,
        which is a root of its own."""
        seen: set[int] = set()
        stack = list(self.graph.args(r.value)) if r.kind in ("reduce", "quantize") else [r.value]
        stack += self.places(r)
        while stack:
            v = stack.pop()
            op = self.graph.op(v)
            if v.id in seen or v.id in self.mat or (op is not None and op.op == "reduce"):
                continue
            seen.add(v.id)
            stack += self.graph.args(v)
        return seen

    def gathers(self, v: Value) -> bool:
        """Whether evaluating v, a tile of plain elements, loads scattered ones and reduces none."""
        defs = [self.graph.defs[i] for i in self.closure(v)]
        return (
            not self.reaches([v], "reduce")
            and not self.decodes(v)
            and isinstance(v.dtype, DType)
            and any(isinstance(d, Load) and scattered(self.graph, d) for d in defs)
        )

    def results(self, ids: set[int]) -> list[Value]:
        """Of operations and loads among `ids`."""
        defs = self.graph.defs
        return [d.result for d in (defs[i] for i in ids) if isinstance(d, (Op, Load))]
