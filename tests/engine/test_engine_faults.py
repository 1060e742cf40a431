"""What goes wrong in one request is that request's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from engine_runs import run, tokens

from terrazzo.engine.engine import Engine
from terrazzo.engine.options import EngineOptions, Sampling
from terrazzo.engine.request import Event, Request
from terrazzo.models import store

PROMPT = tuple(range(3000, 3040))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(EngineOptions(str(store.pull("smollm2")), context=256, parallel=4, blocks=40,
                                threads=2, step_tokens=64, mixed_tokens=32))  # fmt: skip


@pytest.fixture(autouse=True)
def books(engine: Engine) -> Iterator[None]:
    yield
    engine.check()
    assert not engine.busy and engine.stats().blocks_used == 0


def finished(engine: Engine, early: list[Event]) -> dict[str, list[Event]]:
    found = run(engine)
    return {id: [*(e for e in early if e.request == id), *events] for id, events in found.items()}


@pytest.mark.parametrize("way", [Sampling(), Sampling(temperature=0.9, seed=3)])
def test_logits_that_are_not_finite(engine: Engine, way: Sampling) -> None:
    """NaN among the values of one sequence: it ends, the others go on to what they are alone, and
    nothing of it is left in the cache for those to come."""
    requests = [Request(str(n), (n + 1, *PROMPT), way, max_tokens=20) for n in range(3)]
    want = {r.id: tokens(run(engine, [r])[r.id]) for r in requests}
    for r in requests:
        engine.add(r)
    early = [e for _ in range(8) for e in engine.step()]
    ill = next(s for s in engine.scheduler.running if s.job.request.id == "1")
    for layer in engine.model.step.cache.layers:
        layer.v[ill.blocks[1]] = np.nan
    found = finished(engine, early)
    end = found["1"][-1]
    assert end.finish == "error" and end.failure is not None and end.usage is not None
    assert end.failure.kind == "KernelFault" and "NaN" in end.failure.text
    assert tokens(found["0"]) == want["0"] and tokens(found["2"]) == want["2"]
    assert all(np.isfinite(a).all() for layer in engine.model.step.cache.layers
               for a in layer.arrays)  # fmt: skip
    for r in requests:
        again = run(engine, [r])[r.id]
        assert tokens(again) == want[r.id]


def test_all_choices_of_it_end(engine: Engine) -> None:
    engine.add(Request("n", PROMPT, max_tokens=20, choices=3))
    engine.add(Request("other", PROMPT, max_tokens=20))
    for _ in range(8):
        engine.step()
    ill = next(s for s in engine.scheduler.running if s.choice == 1)
    for layer in engine.model.step.cache.layers:
        layer.v[ill.blocks[(ill.computed - 1) // 16]] = np.nan
    found = run(engine)
    assert [e.choice for e in found["n"] if e.finish == "error"] == [0, 1, 2]
    assert sum(e.usage is not None for e in found["n"]) == 1
    assert found["other"][-1].finish == "length"


def test_a_defect_is_told_and_survived(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception nobody thought of, in the work for one request."""
    real = engine._stepper._part

    def part(seq: Any, *rest: Any) -> Any:
        if seq.job.request.id == "b" and len(seq.tokens) > len(PROMPT) + 2:
            raise ZeroDivisionError("of all things")
        return real(seq, *rest)

    monkeypatch.setattr(engine._stepper, "_part", part)
    found = run(engine, [Request("a", PROMPT, max_tokens=9), Request("b", PROMPT, max_tokens=9)])
    failure = found["b"][-1].failure
    assert failure is not None and failure.kind == "TerrazzoError"
    assert "of all things" in failure.text
    assert len(tokens(found["a"])) == 9 and len(tokens(found["b"])) == 3
