"""Grammars of random schemas accept the values that the package jsonschema finds valid, and no
others."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schema_tools import Accepts

from terrazzo.errors import GrammarError

# Few keys and values, so that values often meet what schemas say.
KEYS = st.sampled_from("abc")
LEAVES = st.sampled_from([None, True, False, 0, 1, 2, 1.5, "", "a", "bb", "abc"])
VALUES = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=3), max_leaves=5
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SIZES = st.integers(0, 3)
PATTERNS = st.sampled_from(["^a", "b", "^.$", "c$", "^[ab]+$"])


def grown(schema: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas with up to three keywords, whose parts are `schema`."""
    some = st.lists(schema, min_size=1, max_size=2)
    named = st.dictionaries(KEYS, schema, min_size=1, max_size=2)
    matched = st.dictionaries(PATTERNS, schema, min_size=1, max_size=2)
    lists = {"allOf": some, "anyOf": some, "oneOf": some, "prefixItems": some}
    maps = {"properties": named, "patternProperties": matched, "dependentSchemas": named}
    words = ("not", "if", "then", "else", "items", "contains", "additionalProperties",
             "propertyNames", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
    sizes = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
             "minContains", "maxContains", "minimum", "exclusiveMaximum")  # fmt: skip
    words_of = {
        **lists, **maps, **dict.fromkeys(words, schema), **dict.fromkeys(sizes, SIZES),
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3), "const": VALUES, "pattern": PATTERNS,
        "required": st.lists(KEYS, min_size=1, max_size=2, unique=True),
        "dependentRequired": st.dictionaries(KEYS, st.lists(KEYS, max_size=1), max_size=1),
        "uniqueItems": st.just(True), "multipleOf": st.sampled_from([1, 2, 0.5]),
    }  # fmt: skip
    chosen = st.lists(st.sampled_from(sorted(words_of)), min_size=1, max_size=3, unique=True)
    return chosen.flatmap(lambda ws: st.fixed_dictionaries({w: words_of[w] for w in ws}))


SCHEMAS = st.recursive(st.booleans() | st.fixed_dictionaries({"type": TYPES}), grown, max_leaves=6)


@settings(max_examples=2000, deadline=None,
          suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])  # fmt: skip
@given(grown(SCHEMAS), st.lists(VALUES, min_size=1, max_size=12))
def test_as_jsonschema_has_it(schema: Any, values: list[Any]) -> None:
    oracle = Draft202012Validator(schema)
    try:
        accepts = Accepts(schema)
    except GrammarError as error:
        if "no value" in str(error):
            assert not any(oracle.is_valid(v) for v in values)
        assume(False)
        return
    for value in values:
        assert accepts(value) == oracle.is_valid(value), value
