"""Scheduling: a program at the buffer level -> addresses, slots and events.

Products are spelt out (expand.py), buffers that several pipes use become queues (queues.py), and
all get addresses (placement.py). The author's `stages` are kept. Slots that nobody asked for, as of
what a grid's blocks load and of what leaves a core, are given up where memory or events are short;
the program's notes say so.
"""

from __future__ import annotations

from dataclasses import replace

from terrazzo.errors import CapacityError
from terrazzo.ir.place import mark
from terrazzo.targets.davinci.chips import ALIGNMENT, CAPACITY, EVENTS, Chip
from terrazzo.targets.davinci.program import Buffer, CoreFn, For, Program, Space, View, with_views
from terrazzo.targets.davinci.scheduling.accesses import Uses, uses
from terrazzo.targets.davinci.scheduling.expand import expand
from terrazzo.targets.davinci.scheduling.placement import Placed, numbered, place
from terrazzo.targets.davinci.scheduling.queues import Queue, connect, events_needed, fence, queue
from terrazzo.targets.davinci.scheduling.takeover import taken_over

SHOWN = 6  # tiles that a capacity error names


def schedule(program: Program, chip: Chip) -> Program:
    """The scheduled program. Raises CapacityError, with the tiles and their lines, for what does
    not fit a memory of `chip`, KernelError where events run out."""
    return scheduled(program, chip)[0]


def scheduled(program: Program, chip: Chip) -> tuple[Program, dict[tuple[int, str], list[Placed]]]:
    """Also the memories of every function, by phase and kind of core."""
    notes = list(program.notes)
    memories: dict[tuple[int, str], list[Placed]] = {}
    phases = []
    for n, phase in enumerate(program.phases):
        functions = []
        for f in phase.functions:
            made, memories[n, f.kind] = _Function(f, chip, notes).scheduled()
            functions.append(made)
        phases.append(replace(phase, functions=tuple(functions)))
    made = replace(program, phases=tuple(phases), scheduled=True, notes=tuple(notes))
    return made, memories


def fits(fn: CoreFn, chip: Chip) -> bool:
    """Whether a function at the buffer level fits its core's memories."""
    try:
        _Function(fn, chip, []).scheduled()
    except CapacityError:
        return False
    return True


class _Function:
    def __init__(self, fn: CoreFn, chip: Chip, notes: list[str]) -> None:
        self.chip, self.notes = chip, notes
        self.slots: dict[Buffer, int] = {}
        self.shared: set[Space] = {"L0A", "L0B"}
        self._analyse(expand(fn))

    def _analyse(self, fn: CoreFn) -> None:
        self.fn = fn
        self.found = uses(fn)
        self.fenced = [u for u in self.found if len(u.pipes) > 1 and not _staged(u)]
        self.queued = [u for u in self.found if len(u.pipes) > 1 and u not in self.fenced]
        self.slots = {u.buffer: self._wanted(u) for u in self.found} | self.slots
        turning = {u.buffer for u in self.found if u.slots != {0}}
        self.lasting = {u.buffer for u in (*self.queued, *self.fenced)} | turning

    def scheduled(self) -> tuple[CoreFn, list[Placed]]:
        self._queues()
        placed = self._placed()
        add_to, turns = connect(self._queues())
        for u in self.fenced:
            fence(u, add_to)
            self.notes.append(f"all pipes wait for each other around `{u.buffer.tile}`")
        addresses = {b: a for memory in placed for b, a in memory.addresses.items()}
        made = {b: replace(b, slots=self.slots[b], addresses=a) for b, a in addresses.items()}

        def view(x: View) -> View:
            if not isinstance(x.memory, Buffer):
                return x
            return replace(x, memory=made[x.memory], slot=turns.get(x.memory, x.slot))

        body = with_views(add_to.rebuilt(self.fn.body), view)
        return replace(self.fn, body=body, buffers=tuple(made.values())), placed

    def _queue(self, u: Uses) -> Queue:
        shared = u.buffer.space if u.buffer.space in self.shared else ""
        return queue(u, self.slots[u.buffer], shared)

    # -- slots ---------------------------------------------------------------------------------

    def _wanted(self, u: Uses) -> int:
        own = len(u.pipes) > 1 and u.looped and u not in self.fenced
        leaves = u.uses[0].pipe == "V" and "MTE3" in u.pipes
        return max(u.buffer.slots, 2 if own and (leaves or u.workspace()) else 1)

    def _spare(self, u: Uses) -> bool:
        """Whether a second slot may be taken away: not what an inner loop loads, whose `stages` the
        author chose, and not what one trip makes and a later one uses."""
        if self.slots[u.buffer] == 1 or len(u.slots) > 1 or u.buffer.space in self.shared:
            return False
        loops = sum(isinstance(s, For) for s in u.home)
        return loops < 2 or not u.loaded or u.workspace()

    def _give_up(self, u: Uses, why: str) -> None:
        self.slots[u.buffer] = 1
        self.notes.append(f"`{u.buffer.tile}` has one slot: {why}")

    def _queues(self) -> list[Queue]:
        while True:
            queues = [self._queue(u) for u in self.queued]
            short = {pair for pair, n in events_needed(queues).items() if n > EVENTS}
            spare = [q for q in queues if short & set(q.pairs()) and self._spare(q.uses)]
            if not spare:
                return queues
            least = min(spare, key=lambda q: q.buffer.bytes)
            self._give_up(least.uses, f"a pair of pipes has {EVENTS} events")

    # -- memory --------------------------------------------------------------------------------

    def _placed(self) -> list[Placed]:
        while True:
            for apart in (True, False):
                placed = self._place(apart)
                over = [m for m in placed if m.size > self.chip.capacity[m.space]]
                if all(m.space != "UB" for m in over):
                    break
            if not over:
                return placed
            if any(m.space == "L0C" for m in over) and self._share_sums():
                continue
            spaces = {m.space for m in over}
            fewer = taken_over(self.fn, self.found) if "UB" in spaces else None
            if fewer is not None:
                self._analyse(fewer)
                continue
            spare = [u for u in self.found if u.buffer.space in spaces and self._spare(u)]
            if not spare:
                raise self._too_large(over[0])
            excess = sum(m.size - self.chip.capacity[m.space] for m in over)
            enough = [u for u in spare if u.buffer.bytes >= excess]
            u = (
                min(enough, key=lambda u: u.buffer.bytes)
                if enough
                else max(spare, key=lambda u: u.buffer.bytes)
            )
            self._give_up(u, f"{u.buffer.space} is full")

    def _place(self, apart: bool) -> list[Placed]:
        return place(self.fn, self.found, self.slots, self.lasting, self.shared, apart)

    def _share_sums(self) -> bool:
        """Lets all sums of the function take turns with L0C, if no two are there at a time."""
        us = [u for u in self.queued if u.buffer.space == "L0C"]
        numbers = numbered(self.fn.body)
        spans = sorted(
            (numbers[id(stages[0].first)][0], numbers[id(stages[-1].last)][1])
            for stages in (u.stages() for u in us)
        )
        apart = all(a[1] < b[0] for a, b in zip(spans, spans[1:], strict=False))
        slots = min(2, CAPACITY["L0C"] // max(u.buffer.bytes for u in us))
        if not apart or not slots or "L0C" in self.shared or not all(u.looped for u in us):
            return False
        self.shared.add("L0C")
        self.slots |= {u.buffer: slots for u in us}
        return True

    def _too_large(self, m: Placed) -> CapacityError:
        capacity = self.chip.capacity[m.space]
        us = [u for u in self.found if u.buffer.space == m.space]
        us.sort(key=lambda u: -u.buffer.bytes * self.slots[u.buffer])
        staged = [u for u in us if self.slots[u.buffer] > 1]
        saved = sum(_room(u.buffer) * (self.slots[u.buffer] - 1) for u in staged)
        remedy = f"make the blocks smaller: about {capacity / m.size:.0%} of these sizes fits"
        if saved and m.size - saved <= capacity:
            remedy = f"stages=1 fits ({m.size - saved:,} B); or make the blocks smaller"
        error = CapacityError(
            f"the {self.fn.kind} core's tiles need {m.size:,} B of {m.space}, {self.chip.name} has"
            f" {capacity:,} B", remedy)  # fmt: skip
        error.tiles = tuple(_line(u.buffer, self.slots[u.buffer]) for u in us[:SHOWN])
        return mark(error, us[0].buffer.loc)


def _staged(u: Uses) -> bool:
    try:
        u.stages()
    except ValueError:
        return False
    return True


def _room(b: Buffer) -> int:
    unit = ALIGNMENT[b.space]
    return -(-b.bytes // unit) * unit


def _line(b: Buffer, slots: int) -> str:
    times = f" x {slots} slots" if slots > 1 else ""
    place = f"  line {b.loc.line}: {b.loc.text.strip()}" if b.loc else ""
    return f"{b.bytes:>10,} B{times}  `{b.tile or b.name}` {b.dtype} x {b.elements:,}{place}"
