"""The order of axes in on-chip memory: one for the whole kernel, so that no tile is transposed.

Tensors and products say what they want: an axis to the left of another in a store, in a load for
the vector unit or in a product's result lies outside of it. Where they disagree, the first counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from terrazzo.ir.graph import index_axes, walk
from terrazzo.ir.ops import Kernel, Load, Op, Store


def axis_order(kernel: Kernel) -> dict[str, int]:
    """Every axis's rank, outermost 0."""
    below: dict[str, set[str]] = {a.name: set() for a in kernel.axes}
    for axes in _wishes(kernel):
        for outer, inner in zip(axes, axes[1:], strict=False):
            if not _reaches(below, inner, outer):
                below[outer].add(inner)
    done: list[str] = []
    while len(done) < len(below):  # a topological order; of several free axes, the first declared
        free = (a for a in below if a not in done and all(a not in below[b] or b in done
                                                          for b in below))  # fmt: skip
        done.append(next(free))
    return {name: rank for rank, name in enumerate(done)}


def _wishes(kernel: Kernel) -> Iterator[tuple[str, ...]]:
    statements = list(walk(kernel.body))
    fed = {v.id for s in statements if isinstance(s, Op) and s.op in ("dot", "dot_acc")
           for v in s.args[-2:]}  # fmt: skip
    yield from (index_axes(s) for s in statements if isinstance(s, Store))
    for s in statements:
        if isinstance(s, Op) and s.op in ("dot", "dot_acc"):
            yield s.result.axes
    yield from (index_axes(s) for s in statements if isinstance(s, Load) and s.result.id not in fed)
    yield from (s.result.axes for s in statements if isinstance(s, Op))


def _reaches(below: dict[str, set[str]], start: str, goal: str) -> bool:
    seen, todo = set(), [start]
    while todo:
        a = todo.pop()
        if a == goal:
            return True
        if a not in seen:
            seen.add(a)
            todo += below[a]
    return False
