"""Answers that match a grammar, alone and in company, and grammars that cannot be followed."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from engine_runs import run, tokens

from terrazzo.engine.engine import Engine
from terrazzo.engine.options import EngineOptions, Sampling
from terrazzo.engine.request import Grammar, Request
from terrazzo.errors import GrammarError
from terrazzo.models import store

SCHEMA = Grammar("json_schema", json.dumps({
    "type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
    "properties": {"name": {"type": "string", "maxLength": 12},
                   "age": {"type": "integer", "minimum": 0, "maximum": 120},
                   "tags": {"type": "array", "maxItems": 2, "items": {"enum": ["a", "bb"]}}},
}))  # fmt: skip
WAYS = [Sampling(), Sampling(temperature=1.0, seed=3), Sampling(temperature=2.0, seed=4, top_k=50)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(EngineOptions(str(store.pull("smollm2")), context=256, parallel=4, blocks=40,
                                threads=2, step_tokens=64, mixed_tokens=32))  # fmt: skip


def request(
    engine: Engine, id: str, grammar: Grammar | None, way: Sampling, **more: Any
) -> Request:
    prompt = tuple(engine.tokenizer.encode(f"A person, as {id}: "))
    return Request(id, prompt, way, ends=engine.tokenizer.eos_ids, grammar=grammar,
                   **{"max_tokens": 100, **more})  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_schema(engine: Engine, way: Sampling) -> None:
    found = run(engine, [request(engine, "json", SCHEMA, way, choices=3),
                         request(engine, "text", None, way)])  # fmt: skip
    for choice in range(3):
        value = json.loads(engine.tokenizer.decode(tokens(found["json"], choice)))
        assert list(value) == ["name", "age", "tags"] and 0 <= value["age"] <= 120
        assert len(value["name"]) <= 12 and set(value["tags"]) <= {"a", "bb"}
    assert [e.finish for e in found["json"] if e.finish] == ["stop"] * 3
    assert tokens(found["text"]) == tokens(
        run(engine, [request(engine, "text", None, way)])["text"]
    )


@pytest.mark.parametrize(("grammar", "pattern"), [
    (Grammar("regex", "[a-c]{3,5}-[0-9]{1,9}!"), "[a-c]{3,5}-[0-9]{1,9}!"),
    (Grammar("lark", 'start: ("yes" | "no") " " NUMBER\nNUMBER: /[1-9]{2}/'), "(yes|no) [1-9]{2}"),
    (Grammar("json_object"), r"\{.*"),
])  # fmt: skip
def test_kinds(engine: Engine, grammar: Grammar, pattern: str) -> None:
    for way in WAYS:
        text = engine.tokenizer.decode(
            tokens(run(engine, [request(engine, grammar.kind, grammar, way)])[grammar.kind])
        )
        assert re.fullmatch(pattern, text, re.DOTALL), text


def test_without_an_end_token_the_answer_still_ends(engine: Engine) -> None:
    given = Request("e", (5, 6), Sampling(), max_tokens=50, grammar=Grammar("regex", "abc|abd"))
    found = run(engine, [given])["e"]
    assert found[-1].finish == "stop" and engine.tokenizer.decode(tokens(found)) in ("abc", "abd")


@pytest.mark.parametrize("grammar", [
    Grammar("json_schema", "{"), Grammar("json_schema", '{"type": "nonsense"}'),
    Grammar("regex", "("), Grammar("lark", "start: undefined"),
    Grammar("json_schema", "[" * 100_000), Grammar("json_schema", '"x"'),
])  # fmt: skip
def test_refused(engine: Engine, grammar: Grammar) -> None:
    with pytest.raises(GrammarError, match=grammar.kind):
        engine.add(request(engine, "r", grammar, Sampling()))
    engine.check()
    assert not engine.busy


def test_a_matcher_goes_back(engine: Engine) -> None:
    matcher = engine.grammars.matcher(Grammar("regex", "[0-9]{4}"))
    digits = [engine.tokenizer.encode(d)[0] for d in "1234"]
    masks = []
    for d in digits:
        masks.append(mask := np.zeros(-(-engine.model.config.vocab_size // 32), np.uint32))
        matcher.mask(mask)
        assert not matcher.accept(engine.tokenizer.encode("x")[0]) and matcher.accept(d)
    assert matcher.done
    for mask in reversed(masks):
        matcher.rollback(1)
        again = np.zeros_like(mask)
        matcher.mask(again)
        assert np.array_equal(mask, again)
