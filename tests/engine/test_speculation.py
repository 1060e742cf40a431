"""Drafts change no answer: by lookup and by a model, greedy and drawn, alone and together, with a
grammar."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine_runs import run, tokens

from terrazzo.engine.engine import Engine
from terrazzo.engine.lookup import continuation
from terrazzo.engine.options import EngineOptions, Sampling
from terrazzo.engine.request import Grammar, Request

SMALL: dict[str, Any] = {"context": 256, "parallel": 4, "blocks": 80, "threads": 2,
                         "step_tokens": 96, "mixed_tokens": 32}  # fmt: skip
WAYS = [Sampling(), Sampling(temperature=0.8, seed=11), Sampling(repeat_penalty=1.3)]
SCHEMA = Grammar("json_schema", '{"type": "array", "items": {"enum": [1, 2]}, "maxItems": 9}')


def engine(draft: str | None) -> Engine:
    made = Engine(EngineOptions("smollm2", draft=draft, **SMALL))
    if made.speculation is not None:
        made.speculation.worth = 0.0  # as many places as there may be, whether they pay or not
    return made


def requests(of: Engine) -> list[Request]:
    text = "the cat sat on the mat and the dog sat on the cat. " * 3
    prompts = [tuple(of.tokenizer.encode(x + text)) for x in ("One: ", "Two: ", "Three: ")]
    plain = [Request(f"{i}{j}", p, way, max_tokens=40) for i, p in enumerate(prompts)
             for j, way in enumerate(WAYS)]  # fmt: skip
    forced = Request("json", prompts[0], Sampling(), max_tokens=30, grammar=SCHEMA,
                     ends=of.tokenizer.eos_ids)  # fmt: skip
    return [*plain, forced]


@pytest.fixture(scope="module")
def plainly() -> dict[str, list[int]]:
    of = engine(None)
    return {r.id: tokens(run(of, [r])[r.id]) for r in requests(of)}


@pytest.mark.parametrize("draft", ["lookup", "smollm2"])
def test_answers_are_those_of_plain_decoding(draft: str, plainly: dict[str, list[int]]) -> None:
    of = engine(draft)
    found = run(of, requests(of))
    assert {id: tokens(events) for id, events in found.items()} == plainly
    of.check()
    stats = of.stats()
    assert 0 < stats.accepted_tokens <= stats.drafted_tokens
    usage = [e.usage for events in found.values() for e in events if e.usage]
    assert sum(u.accepted_tokens for u in usage) == stats.accepted_tokens
    if draft == "smollm2":  # its greedy guesses at its own greedy answers are right
        greedy = [e.usage for id in ("00", "10", "20") for e in found[id] if e.usage]
        assert all(u.accepted_tokens >= 0.9 * u.drafted_tokens > 0 for u in greedy)


def test_lookup() -> None:
    text = np.array([1, 2, 3, 4, 5, 6, 1, 2, 3], np.int32)
    assert continuation(text, 3) == [4, 5, 6]
    assert continuation(text, 8)[:6] == [4, 5, 6, 1, 2, 3]
    assert continuation(np.array([1, 2, 9, 4, 1, 2, 3], np.int32), 3) == []
    assert continuation(np.array([1, 2], np.int32), 3) == []
    several = np.array([8, 1, 2, 3, 4, 9, 1, 2, 3, 7, 8, 1, 2, 3], np.int32)
    assert continuation(several, 1) == [4]  # where the token before agrees as well
