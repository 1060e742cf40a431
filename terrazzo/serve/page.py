"""The page at /: one file, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def text() -> str:
    return Path(__file__).with_suffix(".html").read_text("utf-8")
