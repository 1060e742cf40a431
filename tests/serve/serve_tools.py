"""What the server's tests share."""

from __future__ import annotations

from pathlib import Path

FACTORY = "scripted:engine"


def alive(pid: int) -> bool:
    """Whether there is such a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
