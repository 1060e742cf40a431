"""How pipes and paths are spelt: the vendor's column names, and what people call them."""

from __future__ import annotations

from terrazzo.targets.davinci.program import CoreKind, Pipe

# In the order that reports show them.
PIPES: dict[CoreKind, tuple[Pipe, ...]] = {
    "cube": ("M", "MTE1", "MTE2", "FIX", "MTE3", "S"),
    "vector": ("V", "MTE2", "MTE3", "S"),
}
_COLUMN = {"M": "mac", "V": "vec", "FIX": "fixpipe", "S": "scalar"}
_SPOKEN = {
    "M": "Cube", "V": "Vector", "FIX": "FixPipe", "S": "Scalar",
    "cube": "the cube cores", "vector": "the vector cores",
}  # fmt: skip
_KIND = {"cube": "aic", "vector": "aiv"}


def prefix(kind: CoreKind, pipe: str) -> str:
    """The vendor's name of a pipe: "aic_mac", "aiv_mte2"; `_ratio` and `_time(us)` follow it."""
    return f"{_KIND[kind]}_{_COLUMN.get(pipe, pipe.lower())}"


def of_column(name: str) -> Pipe:
    """The pipe that a vendor's name means."""
    return next(p for k, pipes in PIPES.items() for p in pipes if prefix(k, p) == name)


def spoken(pipe: str) -> str:
    """A pipe in a sentence; the other kind of core, which a pipe may wait for as well."""
    return _SPOKEN.get(pipe, pipe)


def bound(pipe: str) -> str:
    """A pipe as a bound: "cube", "vector", "mte2" …"""
    return {"M": "cube", "V": "vector"}.get(pipe, _COLUMN.get(pipe, pipe.lower()))


def nbytes(count: float) -> str:
    """1536 -> "1.5 KiB", 98304 -> "96 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def rate(gb_s: float) -> str:
    """GB/s, in TB/s from a thousand on."""
    return f"{gb_s / 1000:.3g} TB/s" if gb_s >= 1000 else f"{gb_s:.3g} GB/s"
