"""Whether the grammar of a schema accepts a JSON value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, permutations, product
from typing import Any

import llguidance

from terrazzo.engine.schema import lark

TOKENIZER = llguidance.LLTokenizer("byte")
MOST = 5040  # orders of an instance that are tried: those of seven keys


class Accepts:
    """Raises GrammarError if the schema is refused."""

    def __init__(self, schema: Any) -> None:
        self.matcher = llguidance.LLMatcher(TOKENIZER, lark(json.dumps(schema)), log_level=0)
        assert not self.matcher.is_error(), self.matcher.get_error()

    def text(self, text: str) -> bool:
        self.matcher.reset()
        ids = list(text.encode())
        return self.matcher.try_consume_tokens(ids) == len(ids) and self.matcher.is_accepting()

    def __call__(self, value: Any) -> bool:
        """With its keys in some order."""
        return any(self.text(json.dumps(v, separators=(",", ":"), ensure_ascii=False))
                   for v in islice(orders(value), MOST))  # fmt: skip


def orders(value: Any) -> Iterator[Any]:
    """The value with the keys of its objects in every order, its own first."""
    if isinstance(value, dict):
        for keys in permutations(value):
            for parts in product(*(list(orders(value[k])) for k in keys)):
                yield dict(zip(keys, parts, strict=True))
    elif isinstance(value, list):
        for parts in product(*(list(orders(v)) for v in value)):
            yield list(parts)
    else:
        yield value
