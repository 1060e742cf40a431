"""The order of loads and stores: statements take effect in their order, though loads are virtual.

A load is evaluated where its value is used, maybe long after it stands in the kernel. That is only
right if nothing in between stores to what it reads. This file answers what could go wrong; fuse.py
and schedule.py then write the loaded value down in time, or store what is pending first.
"""

from __future__ import annotations

from math import gcd

from terrazzo.ir.graph import Graph, operands, walk
from terrazzo.ir.ops import Expect, Index, Kernel, Load, Loop, Op, Stmt, Store
from terrazzo.ir.types import Value
from terrazzo.targets.cpu.access import affine


class Effects:
    """Facts of one kernel. Positions count statements in textual order; a loop has one for its
    start (`at`) and one for its end (`end`)."""

    def __init__(self, kernel: Kernel, graph: Graph) -> None:
        self.graph = graph
        self.aliases: dict[str, set[str]] = {p.name: {p.name} for p in kernel.params}
        for a, b in kernel.aliases:
            self.aliases[a].add(b)
            self.aliases[b].add(a)
        self._at: dict[int, int] = {}  # by the identity of the kernel's own statements
        self._end: dict[int, int] = {}
        self._count(kernel.body, 0)
        self._used: dict[int, int] = {}
        self._trace(kernel.body)

    def at(self, s: Stmt) -> int:
        return self._at[id(s)]

    def end(self, s: Stmt) -> int:
        return self._end.get(id(s), self._at[id(s)])

    def last_use(self, v: Value) -> int:
        """Position of the last statement that evaluates v (store, dot, expectation, loop bound or
        carry)."""
        return self._used.get(v.id, -1)

    def _count(self, body: tuple[Stmt, ...], n: int) -> int:
        for s in body:
            self._at[id(s)] = n
            n += 1
            if isinstance(s, Loop):
                n = self._count(s.body, n)
                self._end[id(s)] = n
                n += 1
        return n

    def _trace(self, body: tuple[Stmt, ...]) -> None:
        """Last statement first, so that the users of a value are known before it."""
        for s in reversed(body):
            here = self.at(s)
            if isinstance(s, Loop):
                for c in s.carries:
                    self._use(c.next, self.end(s))
                self._trace(s.body)
                for v in (*(b for x in s.vars for b in (x.lo, x.hi)), *(c.init for c in s.carries)):
                    self._use(v, here)
            else:
                if isinstance(s, (Store, Expect)) or (
                    isinstance(s, Op) and s.op in ("dot", "dot_acc")
                ):
                    when = here
                else:
                    when = self.last_use(s.result)
                for v in operands(s):
                    self._use(v, when)

    def _use(self, v: Value, at: int) -> None:
        self._used[v.id] = max(self.last_use(v), at)

    def conflict(self, load: Load, store: Store) -> bool:
        """Whether an element may be read by one and written by the other."""
        if load.param not in self.aliases[store.param]:
            return False
        pairs = zip(load.index, store.index, strict=False)
        return not any(self._apart(a, b) for a, b in pairs)

    def overlap(self, first: Store, second: Store) -> bool:
        """Whether both may write one element."""
        if first.param not in self.aliases[second.param]:
            return False
        pairs = zip(first.index, second.index, strict=False)
        return not any(self._apart(a, b) for a, b in pairs)

    def _apart(self, a: Index, b: Index) -> bool:
        """Whether two entries of one dimension can never be equal: 0 and 1, 2j and 2i + 1."""
        if not isinstance(a, Value) or not isinstance(b, Value):
            return False
        x, y = affine(self.graph, a), affine(self.graph, b)
        if x is None or y is None or set(x.scalars) != set(y.scalars):
            return False
        step = gcd(*(c for c, _ in (*x.axes, *y.axes)))
        gap = x.const - y.const
        return gap % step != 0 if step else gap != 0


def stores(body: tuple[Stmt, ...]) -> list[Store]:
    """All stores, nested ones too."""
    return [s for s in walk(body) if isinstance(s, Store)]
