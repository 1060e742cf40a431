"""Makes the engine in its process, and says what the server has to know of it."""

from __future__ import annotations

import os
from typing import Any

from terrazzo.serve.worker import Phase


def engine(options: dict[str, Any], phase: Phase) -> tuple[Any, dict[str, Any]]:
    """`options` are those of EngineOptions."""
    from terrazzo.engine.engine import Engine
    from terrazzo.engine.options import EngineOptions
    from terrazzo.engine.program import small

    phase("imports")
    with small():
        made = Engine(EngineOptions(**options))
    phase("model, cache and kernels")
    times, cache = made.model.times, made.model.step.cache
    return made, {
        "pid": os.getpid(),
        "context": made.context,
        "parallel": made.options.parallel,
        "waiting": made.options.waiting,
        "blocks": cache.pages,
        "kv_bytes": made.model.kv_bytes,
        "vocab": made.model.config.vocab_size,
        "load_s": {"open": times.open, "weights": times.weights, "compile": times.compile},
    }
