"""What the executor tells the checker while it runs; this one does not listen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from terrazzo.targets.davinci.numbers.memory import Memory, Piece, Region
from terrazzo.targets.davinci.program import Instr


class Watch:
    """`core`: a core's number within its group. A token is what a pipe knew when it raised a flag;
    it comes back when the flag is taken."""

    def phase(self, shared: Sequence[Memory]) -> None:
        """All cores have met; `shared`: the tensors."""

    def group(self, cores: Sequence[Sequence[Memory]], number: int) -> None:
        """A group of cores begins, each with these memories, as yet unwritten."""

    def seen(self, core: int) -> Any:
        """What the scalar unit knows now."""

    def issued(self, core: int, pipe: str, known: Any) -> None:
        """A pipe begins what was issued when the scalar unit knew `known`."""

    def raised(self, core: int, pipe: str) -> Any:
        """A flag's token."""

    def taken(self, core: int, pipe: str, token: Any) -> None:
        """A pipe has waited for a flag."""

    def joined(self, core: int) -> None:
        """Nothing is left to do on any pipe of the core."""

    def forced(self, core: int, pipe: str) -> None:
        """A wait that would never end was given up: take all that was done as known."""

    def instr(self, core: int, pipe: str, s: Instr, out: Region, ins: Sequence[Any],
              temp: Region | None, tail: Piece | None) -> None:  # fmt: skip
        """Before an instruction runs. Its regions lie within their memories; `tail`: bytes of
        `out`'s memory that it spoils."""

    def refused(self, core: int, pipe: str, s: Instr, out: Region) -> None:
        """An instruction that is left out, since its operands are wrong, perhaps out of bounds."""
