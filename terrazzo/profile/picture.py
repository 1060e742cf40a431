"""The occupancy of a space as characters: addresses upwards, time to the right."""

from __future__ import annotations

from string import ascii_uppercase

from terrazzo.profile import names
from terrazzo.profile.occupancy import Room
from terrazzo.targets.davinci.program import Buffer

EMPTY = "·"
TILES = 12  # times that a slot is filled in the part that is shown


def summary(room: Room) -> str:
    """How well the space is used, in a line."""
    shared = f" for {names.nbytes(room.asked)} of tiles" if room.saved else ""
    return (
        f"{names.nbytes(room.peak)} of {names.nbytes(room.capacity)} planned{shared}, at most"
        f" {names.nbytes(room.most)} in use ({100 * room.fragmentation:.0f} % fragmentation)"
    )


def letters(room: Room) -> dict[Buffer, str]:
    """A letter a tile, by address; past 26 tiles they repeat."""
    return {b: ascii_uppercase[i % 26] for i, b in enumerate(room.buffers)}


def top(room: Room) -> int:
    """Where the picture ends: the capacity, halved as long as the plan fits below."""
    out = room.capacity
    while out // 2 >= max(room.peak, 1):
        out //= 2
    return out


def window(rooms: tuple[Room, ...], tiles: int = TILES) -> float:
    """A time up to which a picture is legible: when the busiest slot that a tile is loaded into has
    been filled `tiles` times, or the end."""
    end = max((r.until for r in rooms), default=0.0)
    filled: dict[tuple[Buffer, int], list[float]] = {}
    for room in rooms:
        if room.space in ("L1", "UB"):
            for h in room.held:
                filled.setdefault((h.buffer, h.slot), []).append(h.end)
    ends = [sorted(times)[tiles - 1] for times in filled.values() if len(times) >= tiles]
    return min([end, *ends])


def grid(room: Room, rows: int, columns: int, end: float) -> list[list[tuple[str, Buffer | None]]]:
    """`rows` x `columns` cells, the highest addresses first: what the middle of the cell holds,
    up to the time `end`. Slots of a tile alternate between its capital and its small letter."""
    cells: list[list[tuple[str, Buffer | None]]] = [
        [(EMPTY, None) for _ in range(columns)] for _ in range(rows)
    ]
    if end <= 0:
        return cells
    named = letters(room)
    per_row, per_column = top(room) / rows, end / columns
    for h in room.held:
        letter = named[h.buffer] if h.slot % 2 == 0 else named[h.buffer].lower()
        low, high = _cells(h.address, h.address + h.buffer.bytes, per_row, rows)
        if h.start >= end:
            continue
        left, right = _cells(h.start, h.end, per_column, columns)
        for row in range(low, high):
            for column in range(left, right):
                cells[rows - 1 - row][column] = (letter, h.buffer)
    return cells


def _cells(start: float, end: float, size: float, count: int) -> tuple[int, int]:
    """The cells whose middle lies in [start, end); the one at `start` if there is none."""
    first, last = round(start / size), round(end / size)
    if first >= last:
        first = min(int(start / size), count - 1)
        last = first + 1
    return first, min(last, count)
