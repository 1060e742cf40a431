"""Strict mode: kernels check every index they are given and every float they store.

On from the start with TERRAZZO_STRICT=1 in the environment; `use` switches it. It concerns kernels
made ready while it is on: what is compiled, or recorded by a model, keeps its mode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from terrazzo.errors import OptionError

_on: bool | None = None  # None: as the environment says


def enabled() -> bool:
    """Whether kernels made ready now are strict. Raises OptionError for a wrong variable."""
    global _on
    if _on is None:
        said = os.environ.get("TERRAZZO_STRICT", "")
        if said not in ("", "0", "1"):
            raise OptionError(f"TERRAZZO_STRICT is {said!r}", "set it to 1 or 0")
        _on = said == "1"
    return _on


@contextmanager
def use(on: bool = True) -> Iterator[None]:
    """Strict mode, or none, for the whole process while the block runs."""
    global _on
    before, _on = _on, on
    try:
        yield
    finally:
        _on = before
