"""What a core's scalar unit hands to the pipes, and how it reads tensors itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.targets.davinci.numbers.memory import Region
from terrazzo.targets.davinci.program import Stmt


class Outside(Exception):
    """A scalar read outside an index tensor."""


class Indexed:
    """A tensor that scalars are read from: an index outside is an error, also a negative one."""

    def __init__(self, name: str, data: np.ndarray) -> None:
        self.name, self.data = name, data

    def __getitem__(self, at: tuple[int, ...]) -> Any:
        if any(not 0 <= i < n for i, n in zip(at, self.data.shape, strict=True)):
            raise Outside(f"element {list(at)} of `{self.name}` is read, which is"
                          f" [{', '.join(map(str, self.data.shape))}]")  # fmt: skip
        return self.data[at]


@dataclass(eq=False)
class Item:
    """A statement with its numbers, in a pipe's queue. `key`: the event or flag. `known`: what the
    scalar unit knew when it was issued; `order`: of being queued; `again`: it sets an event
    that is set, and counts once."""

    s: Stmt
    key: Any = None
    out: Region | None = None
    ins: tuple[Any, ...] = ()
    temp: Region | None = None
    known: Any = None
    order: int = 0
    again: bool = False
