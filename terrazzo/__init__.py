"""Terrazzo: large language models in the memory you have, every kernel a short tile program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from terrazzo.engine.model import Model, load

__version__ = "0.1.0"
__all__ = ["Model", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """`load` and `Model` bring in the whole stack: only when they are asked for."""
    if name in ("load", "Model"):
        from terrazzo.engine import model

        return getattr(model, name)
    raise AttributeError(f"module 'terrazzo' has no attribute {name!r}")
