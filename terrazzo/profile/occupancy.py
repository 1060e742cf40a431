"""Which bytes of UB, L1 and L0C hold a tile, and when: rectangles of addresses over time.

The times come from the timeline's spans, addresses and slots from the program, replayed as far as
the spans go: the n-th span of an operation and place in the source is the n-th instruction with
them. A slot is held from the first write of a tile to its last read; what is written after a read
is a new tile.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from terrazzo.ir.ops import Loc
from terrazzo.profile.replay import Inputs, replay, start, value
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    CoreKind,
    Instr,
    Phase,
    Program,
    Space,
    views,
)
from terrazzo.targets.davinci.timing.timeline import Span, Timeline

NONE = Inputs()
Waiting = dict[tuple[str, Loc | None], deque[Span]]  # spans by operation and place, in order
SPACES: dict[CoreKind, tuple[Space, ...]] = {
    "cube": ("L1", "L0A", "L0B", "L0C"),
    "vector": ("UB",),
}


@dataclass(frozen=True)
class Held:
    """Bytes [address, address + bytes) of a space hold a tile for cycles [start, end)."""

    buffer: Buffer
    slot: int
    address: int
    start: float
    end: float


@dataclass(frozen=True)
class Room:
    """One space of one core. `asked`: bytes of all tiles and their slots; `peak`: bytes that the
    plan takes of `capacity` for them, holes included; `most`: the most bytes that hold something at
    one time, as far as the spans go, which is `until`."""

    space: Space
    kind: CoreKind
    capacity: int
    asked: int
    peak: int
    most: int
    until: float
    held: tuple[Held, ...]

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Those that are seen, by address."""
        seen = {h.buffer: None for h in sorted(self.held, key=lambda h: h.address)}
        return tuple(seen)

    @property
    def saved(self) -> int:
        """Bytes that tiles share because they never live at the same time."""
        return max(0, self.asked - self.peak)

    @property
    def fragmentation(self) -> float:
        """The share of the planned bytes that hold nothing even when most are in use."""
        return max(0.0, 1 - self.most / self.peak) if self.peak else 0.0

    def json(self) -> dict[str, Any]:
        return {
            "capacity_bytes": self.capacity,
            "asked_bytes": self.asked,
            "peak_bytes": self.peak,
            "saved_bytes": self.saved,
            "fragmentation": self.fragmentation,
            "held_bytes": self.most,
            "percent": 100 * self.peak / self.capacity,
            "buffers": [
                {
                    "tile": b.tile or b.name,
                    "bytes": b.bytes,
                    "slots": b.slots,
                    "addresses": list(b.addresses),
                }
                for b in self.buffers
            ],
        }


def occupancy(timeline: Timeline, program: Program, inputs: Inputs = NONE) -> tuple[Room, ...]:
    """A room for each space that the program uses, in the order L1, L0A, L0B, L0C, UB."""
    out = []
    for kind, spaces in SPACES.items():
        functions = [(p, f) for p in program.phases for f in p.functions if f.kind == kind]
        core = min((s.core for s in timeline.spans if s.kind == kind), default=0)
        spans = [s for s in timeline.spans if s.kind == kind and s.core == core]
        spans.sort(key=lambda s: s.start)
        waiting: Waiting = defaultdict(deque)
        for span in spans:
            waiting[span.op, span.loc].append(span)
        held = [h for p, f in functions for h in _held(p, f, core, waiting, inputs)]
        held.sort(key=lambda h: (h.start, h.address))
        buffers = [b for _, f in functions for b in f.buffers if b.addresses]
        until = max((s.end for s in spans), default=0.0)
        for space in spaces:
            mine = [b for b in buffers if b.space == space]
            if mine:
                peak = max(max(b.addresses) + b.bytes for b in mine)
                there = tuple(h for h in held if h.buffer.space == space)
                capacity = timeline.chip.capacity[space]
                asked = sum(b.bytes * len(b.addresses) for b in mine)
                out.append(Room(space, kind, capacity, asked, peak, _most(there), until, there))
    return tuple(out)


class _Slot:
    """One slot of a buffer: the tile it holds now, and those it has held."""

    def __init__(self) -> None:
        self.start = self.end = -1.0
        self.read = False
        self.past: list[tuple[float, float]] = []

    def read_by(self, span: Span) -> None:
        self.read = True
        self.end = max(self.end, span.end)

    def write(self, span: Span, keeps: bool) -> None:
        if self.start < 0 or (self.read and not keeps):
            self.close()
            self.start = span.start
        self.read = False
        self.end = max(self.end, span.end)

    def close(self) -> None:
        if self.start >= 0:
            self.past.append((self.start, self.end))
        self.start = self.end = -1.0


def _held(phase: Phase, fn: CoreFn, core: int, waiting: Waiting, inputs: Inputs) -> list[Held]:
    """What `fn` holds; takes its spans out of `waiting`."""
    left = sum(map(len, waiting.values()))
    done: list[tuple[Span, Instr, list[int]]] = []
    env = start(core, phase, fn, inputs)
    for s in replay(fn.body, env, inputs):
        if queue := waiting.get((s.op, s.loc)):
            at = [value(v.slot, env, inputs) for v in views(s)]
            done.append((queue.popleft(), s, at))
            left -= 1
        if not left:
            break
    slots: dict[tuple[Buffer, int], _Slot] = defaultdict(_Slot)
    for span, s, at in sorted(done, key=lambda d: d[0].start):
        out, *ins = [(v.memory, n) for v, n in zip(views(s), at, strict=True)]
        keys = [(b, n % b.slots) for b, n in ins if isinstance(b, Buffer)]
        for key in keys:
            slots[key].read_by(span)
        if isinstance(out[0], Buffer):
            key = (out[0], out[1] % out[0].slots)
            slots[key].write(span, keeps=key in keys)
    held = []
    for (buffer, at), slot in slots.items():
        slot.close()
        if buffer.addresses:
            held += [Held(buffer, at, buffer.addresses[at], *when) for when in slot.past]
    return held


def _most(held: tuple[Held, ...]) -> int:
    edges = [(h.start, 1, h.buffer.bytes) for h in held] + [
        (h.end, 0, -h.buffer.bytes) for h in held
    ]
    now = most = 0
    for _, _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most
