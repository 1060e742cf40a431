"""Placement: an address for every buffer of a function, memory by memory.

Buffers that pipes hand over lie apart for the whole function. What only one pipe uses lives from
its first use in its home to its last, and shares bytes with what lives at other times; the result
of an elementwise instruction takes the place of an operand that dies there.

Where there is room, the two sources of an instruction lie half the bank groups apart: UB's 16
groups of 32-byte blocks serve one access a cycle each, and a repeat touches 8 of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from terrazzo.ir import lifetimes
from terrazzo.targets.davinci.chips import ALIGNMENT, BLOCK, CAPACITY
from terrazzo.targets.davinci.program import Buffer, CoreFn, For, If, Space, Stmt, View
from terrazzo.targets.davinci.scheduling.accesses import Uses
from terrazzo.targets.davinci.scheduling.takeover import elementwise, same_place

GROUPS = 16 * BLOCK  # bytes after which UB's bank groups begin anew


@dataclass(frozen=True)
class Placed:
    """A memory of one function. `addresses`: of every buffer's slots. `size`: bytes up to the end
    of the last one; `unshared`: if each lay apart; `live`: the most that lives at a time;
    `in_place`: results that took an operand's place."""

    space: Space
    addresses: dict[Buffer, tuple[int, ...]]
    size: int
    unshared: int
    live: int
    in_place: int

    @property
    def places(self) -> int:
        """Different addresses: what is left of as many allocations as there are slots."""
        return len({a for slots in self.addresses.values() for a in slots})


def place(
    fn: CoreFn, found: Iterable[Uses], slots: Mapping[Buffer, int], lasting: set[Buffer],
    shared: Set[Space], apart: bool,
) -> list[Placed]:  # fmt: skip
    """Every memory that `fn` uses. `lasting`: buffers that live all the time. `shared`: memories
    whose buffers take turns with the same slots. `apart`: see the top, costs up to 512 bytes a
    buffer."""
    spans = numbered(fn.body)
    end = max((last for _, last in spans.values()), default=0)
    by_space: dict[Space, list[Uses]] = {}
    for u in found:
        by_space.setdefault(u.buffer.space, []).append(u)
    return [
        _turns(space, us, slots)
        if space in shared
        else _memory(space, us, slots, lasting, spans, end, apart and space == "UB")
        for space, us in by_space.items()
    ]


def _turns(space: Space, us: list[Uses], slots: Mapping[Buffer, int]) -> Placed:
    """The slots are as far apart as can be."""
    count = max(slots[u.buffer] for u in us)
    starts = tuple(CAPACITY[space] // count * n for n in range(count))
    largest = max(u.buffer.bytes for u in us)
    each = sum(u.buffer.bytes for u in us) * count
    addresses = {u.buffer: starts for u in us}
    return Placed(space, addresses, starts[-1] + largest, each, largest * count, 0)


def _memory(
    space: Space, us: list[Uses], slots: Mapping[Buffer, int], lasting: set[Buffer],
    spans: Mapping[int, tuple[int, int]], end: int, apart: bool,
) -> Placed:  # fmt: skip
    unit = GROUPS if apart else ALIGNMENT[space]
    each = {u.buffer: -(-max(u.buffer.bytes, 1) // unit) * unit for u in us}
    lives: dict[Buffer, tuple[int, int]] = {}
    for u in us:
        stages = u.stages() if u.buffer not in lasting else []
        lives[u.buffer] = (
            (spans[id(stages[0].first)][0], spans[id(stages[-1].last)][1]) if stages else (0, end)
        )
    names = {u.buffer: str(n) for n, u in enumerate(us)}
    taken: set[Buffer] = set()
    places: dict[Buffer, Buffer] = {}  # -> the first one of those in the same place
    wanted: list[lifetimes.Buffer] = []
    spare = GROUPS // 2 if apart else 0
    for u in us:
        b = u.buffer
        old = None if b in lasting else _replaced(u, lives, slots, taken, lasting)
        if old is not None:
            taken.add(old)
        places[b] = b if old is None else places[old]
        over = names[old] if old is not None else None
        wanted.append(lifetimes.Buffer(names[b], each[b] * slots[b] + spare, *lives[b], over))
    plan = lifetimes.plan(wanted, unit)
    sides = _sides(us, places) if apart else {}
    addresses = {
        b: tuple(
            plan.offsets[name] + spare * sides.get(places[b], 0) + n * each[b]
            for n in range(slots[b])
        )
        for b, name in names.items()
    }
    return Placed(space, addresses, plan.size, plan.unshared, plan.bound, len(plan.in_place))


def _sides(us: list[Uses], places: Mapping[Buffer, Buffer]) -> dict[Buffer, int]:
    """0 or 1 for every place, so that few instructions have two sources on one side."""
    meet: dict[Buffer, list[Buffer]] = {}
    for s in {id(x.instr): x.instr for u in us for x in u.uses}.values():
        sources = [places[v.memory] for v in s.ins
                   if isinstance(v, View) and isinstance(v.memory, Buffer)
                   and v.memory in places]  # fmt: skip
        for a, b in zip(sources, sources[1:], strict=False):
            if a is not b:
                meet.setdefault(a, []).append(b)
                meet.setdefault(b, []).append(a)
    sides: dict[Buffer, int] = {}
    for a in meet:
        taken = [sides[b] for b in meet[a] if b in sides]
        sides[a] = int(taken.count(0) > taken.count(1))
    return sides


def _replaced(
    u: Uses, lives: Mapping[Buffer, tuple[int, int]], slots: Mapping[Buffer, int],
    taken: set[Buffer], lasting: set[Buffer],
) -> Buffer | None:  # fmt: skip
    """The operand whose place the result of the buffer's first instruction may take: of the same
    shape and layout, and dead afterwards."""
    first = u.uses[0].instr
    if not elementwise(first) or first.out.memory is not u.buffer or slots[u.buffer] != 1:
        return None
    for x in first.ins:
        if not isinstance(x, View) or not isinstance(x.memory, Buffer):
            continue
        b = x.memory
        dies = b in lives and lives[b][1] == lives[u.buffer][0] and lives[b][0] < lives[b][1]
        alone = b not in taken and b not in lasting and slots[b] == 1
        if same_place(first.out, x) and dies and alone and b.dtype.bits == u.buffer.dtype.bits:
            return b
    return None


def numbered(body: tuple[Stmt, ...]) -> dict[int, tuple[int, int]]:
    """Statement id -> its number in the function, and that of the last statement within it."""
    out: dict[int, tuple[int, int]] = {}
    count = 0

    def visit(body: tuple[Stmt, ...]) -> None:
        nonlocal count
        for s in body:
            count += 1
            first = count
            if isinstance(s, (For, If)):
                visit(s.body)
            out[id(s)] = (first, count)

    visit(body)
    return out
