"""Colours that the terminal and the page share: one for each pipe, some for tiles."""

from __future__ import annotations

from terrazzo.profile.occupancy import Room

# By pipe; a pipe may also wait for the other kind of core.
PIPE = {
    "M": "#e0565b",
    "V": "#9a6ad6",
    "MTE1": "#e3a53c",
    "MTE2": "#3d8fd1",
    "MTE3": "#2fa58b",
    "FIX": "#e07a45",
    "S": "#8593a8",
    "cube": "#e0565b",
    "vector": "#9a6ad6",
}
TILES = (
    "#5b9bd5", "#f2a65a", "#6cbf84", "#c58ae0", "#e57373", "#4db6ac", "#d4b04c", "#8da4ef",
    "#b48a78", "#9aa5b1",
)  # fmt: skip


def tiles(rooms: tuple[Room, ...]) -> dict[str, str]:
    """A colour for each tile by its name, so that it has the same one in all spaces."""
    names = dict.fromkeys(b.tile or b.name for room in rooms for b in room.buffers)
    return {name: TILES[at % len(TILES)] for at, name in enumerate(names)}
