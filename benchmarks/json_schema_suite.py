"""The JSON-Schema-Test-Suite against the matcher of structured answers.

    python benchmarks/json_schema_suite.py FOLDER

FOLDER holds the suite's files of a draft (json/tests/draft2020-12 in the source distribution of
the package `jsonschema`). Every instance is written as compact JSON, with its keys in every order,
and given to the matcher byte by byte. A schema is refused, or right (every valid instance accepted
in some order of its keys, every other one rejected in all), or narrow (some valid spelling
rejected), or wrong (an instance that is not valid accepted). The exit code is 1 if one is wrong.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

import llguidance

from terrazzo.engine.grammar import grammar_text
from terrazzo.engine.request import Grammar
from terrazzo.errors import GrammarError

MOST = 5040  # orders of an instance: those of seven keys
TOKENIZER = llguidance.LLTokenizer("byte")


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


def accepts(matcher: Any, instance: Any) -> bool:
    matcher.reset()
    ids = list(json.dumps(instance, separators=(",", ":"), ensure_ascii=False).encode())
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def judge(schema: Any, tests: list[dict[str, Any]]) -> tuple[str, str]:
    """What the schema is, and why."""
    try:
        text = grammar_text(Grammar("json_schema", json.dumps(schema)))
    except GrammarError as error:
        return "refused", str(error)
    matcher = llguidance.LLMatcher(TOKENIZER, text, log_level=0)
    if matcher.is_error():
        return "refused", matcher.get_error().splitlines()[0]
    missed = {True: "", False: ""}
    for test in tests:
        accepted = any(
            accepts(matcher, instance) for instance in islice(orders(test["data"]), MOST)
        )
        if accepted != test["valid"]:
            missed[test["valid"]] = test["description"]
    if missed[False]:
        return "wrong", f"accepts {missed[False]!r}"
    return ("narrow", f"rejects {missed[True]!r}") if missed[True] else ("right", "")


def main() -> int:
    counts: Counter[str] = Counter()
    for path in sorted(Path(sys.argv[1]).glob("*.json")):
        for case in json.loads(path.read_text()):
            kind, why = judge(case["schema"], case["tests"])
            counts[kind] += 1
            if kind != "right":
                print(f"{kind:8}{path.stem}: {case['description']}: {why[:100]}")
    print(f"{counts.total()} schemas:", ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    return int(counts["wrong"] > 0 or not counts)


if __name__ == "__main__":
    sys.exit(main())
