"""One block of memory for all the buffers of a step: a planner by lifetimes, and the block itself.

Buffers whose lifetimes do not meet share bytes; a buffer that a kernel may write in place takes the
bytes of the one it replaces. The plan is made once, before memory is asked for.

Placement is greedy by size: largest buffer first, each in the tightest gap between those already
placed that live at the same time (greedy-by-size for offset calculation of Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference", 2020, with best fit among the gaps).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from terrazzo.errors import MemoryShortage
from terrazzo.lang import source
from terrazzo.runtime import cgroups
from terrazzo.targets.cpu.pool import private_memory

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


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


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan(buffers: Sequence[Buffer]) -> Plan:
    """Places all buffers so that none overlap while both live; offsets are multiples of 64.

    Steps at which a buffer is live are first .. last, both included. Raises ValueError for a buffer
    with a negative size, a life that ends before it starts, a name used twice or an unknown
    `replaces`.
    """
    slots, in_place = _slots(buffers)
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
        sum(_aligned(b.size) for b in buffers),
        _most_at_once(slots),
        tuple(in_place),
    )


def _slots(buffers: Sequence[Buffer]) -> tuple[list[_Slot], list[tuple[str, str]]]:
    slots: dict[str, _Slot] = {}
    in_place: list[tuple[str, str]] = []
    known = {b.name: b for b in buffers}
    if len(known) != len(buffers):
        raise ValueError("two buffers have the same name")
    for b in sorted(buffers, key=lambda b: b.first):
        if b.size < 0 or b.last < b.first:
            raise ValueError(f"buffer {b.name}: {b.size} bytes, steps {b.first} to {b.last}")
        size = _aligned(b.size)
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


def available_memory() -> int:
    """Bytes this process may still take: the system's free memory, within the cgroup's limit."""
    with open("/proc/meminfo") as info:
        fields = dict(line.split(":", 1) for line in info)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    left = cgroups.memory_left()
    return free if left is None else min(free, left)


def check_memory(needed: int, what: str) -> None:
    """Raises MemoryShortage, with both numbers, if `needed` bytes for `what` are not available."""
    available = available_memory()
    if needed > available:
        raise MemoryShortage(
            f"{what} needs {needed:,} B of device memory, {available:,} B are available",
            "choose a shorter context or a smaller model, or free memory",
        )


def give_back() -> None:
    """Let go of the kernels' parsed sources, and return freed heap memory to the system where the C
    library can (glibc): what building a tokenizer or compiling took for a moment shall not count
    against the model for good."""
    source.forget()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


class Arena:
    """The block of a plan: zeroed, page aligned, one mapping; lives as long as any view of it."""

    def __init__(self, layout: Plan, what: str = "the step") -> None:
        """Raises MemoryShortage before anything is asked for."""
        check_memory(layout.size, what)
        self.plan = layout
        self.memory = private_memory(layout.size)

    def view(self, name: str, shape: Sequence[int], dtype: np.dtype | type) -> np.ndarray:
        """The buffer's first bytes as an array (C order). Raises ValueError if it is too small."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        start = self.plan.offsets[name]
        if size > self.plan.sizes[name]:
            raise ValueError(f"buffer {name} has {self.plan.sizes[name]} B, {size} B asked for")
        return self.memory[start : start + size].view(dtype).reshape(shape)
