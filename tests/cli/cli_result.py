"""What a command said, and how the command is called."""

from __future__ import annotations

import sys
from dataclasses import dataclass

COMMAND = [sys.executable, "-m", "terrazzo"]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    def error_line(self) -> str:
        """The one line that a refused command says; also checks that it is one, and the code."""
        assert self.code == 2, self.err
        lines = self.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("error: "), self.err
        assert self.out == ""
        return lines[0].removeprefix("error: ")
