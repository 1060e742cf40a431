"""Where a buffer is allocated: as far inside loops and conditions as its values allow.

The vendor's planner shares addresses between buffers of one loop body and gives a buffer several
slots only inside the loop that it is for.
"""

from __future__ import annotations

from terrazzo.targets.davinci.expr import Scalar
from terrazzo.targets.davinci.program import Buffer, For, If, Instr, Stmt, View, views, walk

Path = tuple[Stmt, ...]


def places(body: tuple[Stmt, ...]) -> dict[Stmt | None, list[Buffer]]:
    """Buffers by the loop or condition in whose body they are allocated (None: the function's), in
    the order of their first use.

    A buffer whose first access in a body is an instruction's output, not within a further `If`,
    holds nothing from one run of that body to the next, and can live in it if nothing outside uses
    it. One of which several slots are in use at a time (`rings`) lives in the function's.
    """
    uses: dict[Buffer, list[tuple[Path, bool]]] = {}
    _collect(body, (), uses)
    held = rings(body)
    out: dict[Stmt | None, list[Buffer]] = {}
    for buffer, found in uses.items():
        out.setdefault(None if buffer in held else _place(found), []).append(buffer)
    return out


def rings(body: tuple[Stmt, ...]) -> set[Buffer]:
    """Buffers whose slots hold values from one trip to a later one, which looks for them in another
    slot than its own."""
    slots: dict[Buffer, set[Scalar]] = {}
    for s in walk(body):
        if isinstance(s, Instr):
            for v in views(s):
                if isinstance(v.memory, Buffer) and v.memory.slots > 1:
                    slots.setdefault(v.memory, set()).add(v.slot)
    return {b for b, found in slots.items() if len(found) > 1}


def _collect(
    body: tuple[Stmt, ...], path: Path, uses: dict[Buffer, list[tuple[Path, bool]]]
) -> None:
    for s in body:
        if isinstance(s, (For, If)):
            _collect(s.body, (*path, s), uses)
        elif isinstance(s, Instr):
            out, *_ = views(s)
            reads = [v.memory for v in s.ins if isinstance(v, View)]
            for memory in (*reads, out.memory):
                if isinstance(memory, Buffer):
                    fresh = memory is out.memory and memory not in reads and not _accumulates(s)
                    uses.setdefault(memory, []).append((path, fresh))


def _accumulates(s: Instr) -> bool:
    return s.op in ("mmad_l1", "mmad") and s.ins[2] != 1


def _place(uses: list[tuple[Path, bool]]) -> Stmt | None:
    path, fresh = uses[0]
    shared = path
    for other, _ in uses[1:]:
        n = next((i for i, (a, b) in enumerate(zip(shared, other, strict=False)) if a is not b),
                 min(len(shared), len(other)))  # fmt: skip
        shared = shared[:n]
    while shared:
        inner = path[len(shared) :]
        if fresh and not any(isinstance(s, If) for s in inner):
            return shared[-1]
        shared = shared[:-1]
    return None
