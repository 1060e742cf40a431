"""Compiling a schema is bounded, and its refusal says why."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from terrazzo.engine.request import Grammar
from terrazzo.errors import GrammarError
from terrazzo.serve import schemas
from terrazzo.serve.schemas import SchemaChecker


def check(*given: Any) -> list[str]:
    """Why each cannot be enforced; "" for one that can."""

    async def all_of_them() -> list[str]:
        checker, found = SchemaChecker(), []
        for schema in given:
            text = schema if isinstance(schema, str) else json.dumps(schema)
            try:
                await checker.check(Grammar("json_schema", text))
                found.append("")
            except GrammarError as error:
                found.append(str(error))
        await checker.close()
        return found

    return asyncio.run(all_of_them())


def test_reasons() -> None:
    good = {"type": "object", "properties": {"a": {"type": "integer"}}}
    found = check(good, {"type": "strange"}, {"type": "string", "pattern": "("},
                  {"uniqueItems": True}, "{", "[]", good)  # fmt: skip
    assert found[0] == found[-1] == "" and all("cannot be" in x for x in found[1:-1])
    assert "strange" in found[1] and "uniqueItems" in found[3]


def test_one_that_takes_too_long_is_cut_off_and_the_next_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def both() -> None:
        checker = SchemaChecker()
        await checker.check(Grammar("json_object"))
        monkeypatch.setattr(schemas, "SECONDS", 0.0)
        with pytest.raises(GrammarError, match="took more than 0 s"):
            await checker.check(Grammar("json_schema", '{"type": "integer"}'))
        monkeypatch.setattr(schemas, "SECONDS", 5.0)
        await checker.check(Grammar("json_schema", '{"type": "number"}'))
        await checker.close()

    asyncio.run(both())


def test_one_whose_grammar_is_too_large() -> None:
    """And what is kept of the others is bounded."""
    found = check({"enum": ["\u00e9" * 150_000]}, {"enum": ["x" * 100_000]}, {"type": "null"})
    assert "too large a grammar" in found[0] and found[1:] == ["", ""]


def test_large_answers_are_not_kept() -> None:
    async def two() -> int:
        checker = SchemaChecker()
        for text in (json.dumps({"enum": ["x" * 100_000]}), '{"type": "null"}'):
            await checker.check(Grammar("json_schema", text))
        await checker.close()
        return len(checker._known)

    assert asyncio.run(two()) == 1


def test_one_that_is_too_large() -> None:
    (found,) = check({"enum": ["x" * 1_100_000]})
    assert "1,048,576" in found
