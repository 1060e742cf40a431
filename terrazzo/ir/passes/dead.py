"""Dead: drop ops, loads, carried values and loops whose results reach no store.

Stores and expectations are the only effects. A carried value that only feeds itself is dead.
Non-goal: stores that a later one overwrites.
"""

from __future__ import annotations

from dataclasses import replace

from terrazzo.ir.graph import index_values, operands
from terrazzo.ir.ops import Expect, Kernel, Loop, Stmt, Store
from terrazzo.ir.rewrite import renumber


def drop_dead(kernel: Kernel) -> Kernel:
    """The kernel without what its stores do not need."""
    live: set[int] = set()
    while _mark(kernel.body, live):
        pass  # a carried value may become live late: repeat until nothing is added
    return renumber(replace(kernel, body=_keep(kernel.body, live)))


def _mark(body: tuple[Stmt, ...], live: set[int]) -> bool:
    """Add what live statements read, last statement first; whether anything was added."""
    before = len(live)
    for s in reversed(body):
        if isinstance(s, Store):
            live.update(v.id for v in (s.value, *index_values(s)))
        elif isinstance(s, Expect):
            live.add(s.condition.id)
        elif not isinstance(s, Loop):
            if s.result.id in live:
                live.update(v.id for v in operands(s))
        elif _needed(s, live):
            for c in s.carries:
                if c.result.id in live or c.var.id in live:
                    live.update((c.init.id, c.var.id, c.next.id, c.result.id))
            _mark(s.body, live)
            live.update(bound.id for v in s.vars for bound in (v.lo, v.hi))
    return len(live) > before


def _needed(s: Loop, live: set[int]) -> bool:
    if any(c.result.id in live for c in s.carries):
        return True
    return any(
        isinstance(x, (Store, Expect)) or (isinstance(x, Loop) and _needed(x, live)) for x in s.body
    )


def _keep(body: tuple[Stmt, ...], live: set[int]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, (Store, Expect)):
            out.append(s)
        elif not isinstance(s, Loop):
            if s.result.id in live:
                out.append(s)
        elif _needed(s, live):
            carries = tuple(c for c in s.carries if c.result.id in live)
            out.append(replace(s, body=_keep(s.body, live), carries=carries))
    return tuple(out)
