"""Buffers by lifetimes: a planner that lets those whose lives do not meet share bytes.

A buffer that may be written in place takes the bytes of the one it replaces. Used for the arena of
a step and for the memories of a DaVinci core.

Placement is greedy by size: largest buffer first, each in the tightest gap between those already
placed that live at the same time (greedy-by-size for offset calculation of Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference", 2020, with best fit among the gaps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Buffer:
    """A buffer of `size` bytes, written first in step `first` and read or written last in `last`.

    `replaces`: name of a buffer whose bytes this one may take: the kernel of step `first` reads
    that one for the last time (its `last` is this one's `first`) and may write this one over it.
    """

    name: str
    size: int
    first: int
    last: int
    replaces: str | None = None


@dataclass(frozen=True)
class Plan:
    """Where each buffer lies: byte offsets into one block of `size` bytes.

    unshared: bytes if nothing shared; bound: no plan can be smaller (the most that lives at once,
    in-place pairs counted once, as planned here).
    """

    offsets: dict[str, int]
    sizes: dict[str, int]
    size: int
    unshared: int
    bound: int
    in_place: tuple[tuple[str, str], ...]

    def report(self) -> str:
        """One line: bytes before and after planning."""
        return (
            f"arena: {self.unshared:,} B of buffers in {self.size:,} B "
            f"(at least {self.bound:,} B), {len(self.in_place)} in place"
        )


@dataclass
class _Slot:
    """Buffers that share one place because each is written over the one before."""

    size: int
    first: int
    last: int
    names: list[str]


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def plan(buffers: Sequence[Buffer], alignment: int = 64) -> Plan:
    """Places all buffers so that none overlap while both live; offsets are multiples of
    `alignment`.

    Steps at which a buffer is live are first .. last, both included. Raises ValueError for a buffer
    with a negative size, a life that ends before it starts, a name used twice or an unknown
    `replaces`.
    """
    slots, in_place = _slots(buffers, alignment)
    offsets: dict[str, int] = {}
    placed: list[tuple[int, _Slot]] = []
    for slot in sorted(slots, key=lambda s: (-s.size, s.first, s.names[0])):
        offset = _best_gap(slot, placed)
        placed.append((offset, slot))
        offsets.update(dict.fromkeys(slot.names, offset))
    return Plan(
        {b.name: offsets[b.name] for b in buffers},
        {b.name: b.size for b in buffers},
        max((offset + slot.size for offset, slot in placed), default=0),
        sum(_aligned(b.size, alignment) for b in buffers),
        _most_at_once(slots),
        tuple(in_place),
    )


def _slots(buffers: Sequence[Buffer], alignment: int) -> tuple[list[_Slot], list[tuple[str, str]]]:
    slots: dict[str, _Slot] = {}
    in_place: list[tuple[str, str]] = []
    known = {b.name: b for b in buffers}
    if len(known) != len(buffers):
        raise ValueError("two buffers have the same name")
    for b in sorted(buffers, key=lambda b: b.first):
        if b.size < 0 or b.last < b.first:
            raise ValueError(f"buffer {b.name}: {b.size} bytes, steps {b.first} to {b.last}")
        size = _aligned(b.size, alignment)
        if b.replaces is not None:
            old, slot = known[b.replaces], slots.get(b.replaces)
            # Legal once a place and step, at the old one's very end, where it is no larger.
            ends_here = old.first < b.first == old.last
            if slot and slot.names[-1] == old.name and ends_here and size <= slot.size:
                slot.last = b.last
                slot.names.append(b.name)
                slots[b.name] = slot
                in_place.append((old.name, b.name))
                continue
        slots[b.name] = _Slot(size, b.first, b.last, [b.name])
    return list({id(slot): slot for slot in slots.values()}.values()), in_place


def _best_gap(slot: _Slot, placed: Sequence[tuple[int, _Slot]]) -> int:
    meeting = sorted(
        (offset, offset + other.size)
        for offset, other in placed
        if other.first <= slot.last and slot.first <= other.last
    )
    best: tuple[int, int] | None = None  # (gap, offset)
    end = 0
    for start, stop in meeting:
        gap = start - end
        if gap >= slot.size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, stop)
    return end if best is None else best[1]


def _most_at_once(slots: Sequence[_Slot]) -> int:
    changes = sorted(
        change
        for slot in slots
        for change in ((slot.first, 1, slot.size), (slot.last + 1, 0, -slot.size))
    )
    most = live = 0
    for _, _, size in changes:  # at one step, ends come before starts
        live += size
        most = max(most, live)
    return most
