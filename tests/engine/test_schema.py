"""Schemas become grammars that accept what they hold and nothing else, or are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_tools import Accepts

from terrazzo.engine.schema import lark
from terrazzo.engine.schema.formats import FORMATS
from terrazzo.engine.schema.regex import pattern
from terrazzo.engine.schema.terminals import matches
from terrazzo.errors import GrammarError

TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "sub": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["v"],
    "unevaluatedProperties": False,
}
STRICT_TREE = {"$id": "https://x/strict", "$dynamicAnchor": "node", "$ref": "tree",
               "unevaluatedProperties": False, "$defs": {"tree": {
                   "$id": "https://x/tree", "$dynamicAnchor": "node", "type": "object",
                   "properties": {"data": True, "children": {
                       "type": "array", "items": {"$dynamicRef": "#node"}}}}}}  # fmt: skip
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (True, [None, 1.5, "\u00e9\n", [], {"a": [{}]}], []),
    ({"type": ["integer", "null"]}, [0, -12, None], [1.5, "1", True]),
    ({"minimum": 2, "exclusiveMaximum": 5.5}, [2, 5.25, "x"], [1, 5.5, 6]),
    ({"type": "integer", "multipleOf": 4, "minimum": 3}, [4, 400], [3, 6, -4]),
    ({"allOf": [{"multipleOf": 4}, {"multipleOf": 6}], "type": "integer"}, [12, 0], [4, 6, 8]),
    ({"enum": [1, "a", None, {"k": [True]}]}, [1, "a", None, {"k": [True]}], [2, {"k": []}, "b"]),
    ({"minLength": 2, "maxLength": 3, "pattern": "^a"}, ["ab", "a\U0001f600", 5],
     ["a", "abcd", "ba"]),
    ({"type": "string", "not": {"pattern": "\\s"}}, ["", "ab\""], ["a b", "\n"]),
    ({"not": {"type": ["object", "array"]}}, [1, "x", None], [{}, []]),
    ({"oneOf": [{"minimum": 2}, {"maximum": 5}], "type": "number"}, [1, 6], [3]),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"maxProperties": 1}},
     [{"a": 1, "b": 2}, {"c": 1}, 3], [{"a": 1}, {"c": 1, "d": 2}]),
    ({"properties": {"a": {"const": 1}}, "additionalProperties": {"type": "string"}},
     [{}, {"a": 1, "z": ""}], [{"a": 2}, {"z": 1}]),
    ({"patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 3}},
      "additionalProperties": False},
     [{"x": 1}, {"y": 4}, {"xy": 3}], [{"xy": 2}, {"xy": 3.5}, {"z": 1}]),
    ({"propertyNames": {"maxLength": 2, "pattern": "^[ab]"}}, [{"a": 1, "bb": 2}],
     [{"abc": 1}, {"c": 1}]),
    ({"minProperties": 1, "maxProperties": 2}, [{"a": 1}, {"a": 1, "b": 1}],
     [{}, {"a": 1, "b": 1, "c": 1}]),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{}, {"b": 1}, {"a": 1, "b": 1}],
     [{"a": 1}]),
    ({"dependentRequired": {"a": ["b"]}}, [{}, {"a": 1, "b": 1}], [{"a": 1}]),
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 1},
     [[1], [1, "a"]], [[], ["a"], [1, "a", 2]]),
    ({"items": {"type": "integer"}, "minItems": 2, "maxItems": 3}, [[1, 2], [1, 2, 3]],
     [[1], [1] * 4]),
    ({"contains": {"const": 1}, "minContains": 2, "maxContains": 3},
     [[1, 1], [1, 0, 1, 1, 2]], [[1], [1] * 4, []]),
    ({"uniqueItems": True, "items": {"enum": ["a", "b", None]}}, [[], ["b", None, "a"]],
     [["a", "a"], ["a", "b", "a"]]),
    ({"uniqueItems": True, "maxItems": 1}, [["x"]], [["x", "x"]]),
    ({"anyOf": [{"properties": {"a": True}, "required": ["a"]}, {"properties": {"b": True}}],
      "unevaluatedProperties": False}, [{"a": 1}, {"a": 1, "b": 2}, {"b": 1}, {}], [{"c": 1}]),
    ({"contains": {"type": "string"}, "unevaluatedItems": {"type": "null"}},
     [["a"], [None, "b", "c"]], [[1, "a"], [None]]),
    (TREE, [{"v": 1}, {"v": 1, "sub": [{"v": 2, "sub": []}]}],
     [{"v": 1, "sub": [{}]}, {"v": 1, "w": 2}]),
    (STRICT_TREE, [{"children": [{"data": 1}]}], [{"children": [{"daat": 1}]}]),
    ({"$defs": {"a/b": {"$anchor": "int", "type": "integer"}}, "prefixItems": [
        {"$ref": "#/$defs/a~1b"}, {"$ref": "#int"}]}, [[1, 2]], [["a"], [1, "a"]]),
    ({"items": [{"const": 1}], "additionalItems": {"const": 2}}, [[1, 2, 2]], [[2], [1, 1]]),
    ({"anyOf": [{"type": "null"}, {
        "required": ["next"], "type": "object", "properties": {"next": {"$ref": "#"}},
        "not": {"required": ["x"]}}]},
     [None, {"next": {"next": None}}], [{}, {"next": {}}, {"next": None, "x": 1}]),
    ({"dependentSchemas": {"b": False}, "dependentRequired": {"b": []}}, [{}], [{"b": 1}]),
    ({"minLength": 2, "maxLength": 1}, [1], ["a"]),
    ({"minimum": 0, "exclusiveMaximum": 0}, ["x"], [0]),
    ({"type": "string", "format": "date"}, ["2024-02-29", "2000-02-29"],
     ["2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "x"]),
    ({"type": "string", "format": "unheard of"}, ["x"], [1]),
]  # fmt: skip
REFUSED = [
    (False, "no value"),
    ({"required": ["a"], "properties": {"a": False}, "type": "object"}, "no value"),
    ({"$ref": "https://x/y"}, "none is fetched"), ({"$ref": "#/$defs/a"}, "leads nowhere"),
    ({"allOf": [{"$ref": "#"}]}, "refers to itself"), ({"uniqueItems": True}, "uniqueItems"),
    ({"pattern": "(?=a)"}, "pattern"), ({"pattern": "["}, "pattern"), ({"type": 5}, "no type 5"),
    ({"minLength": -1}, "minLength"), ({"minimum": "1"}, "minimum"), ({"enum": 1}, "enum"),
    ({"properties": []}, "properties"), ({"multipleOf": 0.123456789}, "multipleOf"),
    ({"required": ["a"], "properties": {"a": {"$ref": "#"}}, "type": "object"}, "no value"),
    ({"const": "\ud800"}, "surrogate"), ({"const": float("inf")}, "too large"),
    ({"not": {"multipleOf": 2}}, "multiples"), ({"maxProperties": 1000}, "counted"),
    ({"patternProperties": {str(i): True for i in range(9)}}, "more than 6"),
    (["x"], "a schema is"),
    ({"oneOf": [{"properties": {f"a{i}{j}": {"minimum": i} for j in range(5)}}
                for i in range(9)]}, "too many"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "valid", "invalid"), CASES)
def test_what_it_holds(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    accepts = Accepts(schema)
    assert [v for v in valid if not accepts(v)] == []
    assert [v for v in invalid if accepts(v)] == []


@pytest.mark.parametrize(("schema", "why"), REFUSED)
def test_refused(schema: Any, why: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(why)):
        Accepts(schema)


def test_numbers_too_long_to_write() -> None:
    with pytest.raises(GrammarError, match="too large"):
        lark('{"const": 1e99999999}')
    with pytest.raises(GrammarError, match="too large"):
        lark('{"minimum": 1e-99999999}')


def test_spaces_are_bounded() -> None:
    accepts = Accepts({"type": "array"})
    assert accepts.text("[\n    1, 2,\n    {}\n]") and accepts.text('[{"a": 1}]')
    assert (
        not accepts.text("[ 1,  2]") and not accepts.text("[1]\n") and not accepts.text("[\n\n1]")
    )


@pytest.mark.parametrize("patterns", [("^x", "^y"), ("^[]$",)])
def test_a_beginning_can_always_be_completed(patterns: tuple[str, ...]) -> None:
    """A property that can have no value is never begun."""
    none = {"allOf": [{"pattern": p} for p in patterns], "type": "string"}
    accepts = Accepts({"properties": {"a": none}, "type": "object"})
    accepts.matcher.reset()
    assert accepts.matcher.try_consume_tokens(list(b'{"a":')) < 5
    assert accepts({"b": 1})


PIECES = st.sampled_from(
    ["a", "b", "\\d", "\\w", "\\s", "\\S", "[^a]", "[a-c]", ".", "\\.", "(a|b)", "(?:ab)", "a{2}",
     "b{1,2}", "a*", "b+", "c?", "\\u00e9", "\\x41", '"', "\\\\", "/", "\\t", "[\\s\\d]", "(^a|b)"]
)  # fmt: skip


TEXT = st.text('abcA"\\/ \t\n.7\u00e9\U0001f600', max_size=6)


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=4), st.booleans(), st.booleans(), TEXT)
def test_patterns_are_found_where_python_finds_them(
    pieces: list[str], begins: bool, ends: bool, text: str
) -> None:
    body = "".join(pieces)
    if "(^" in body:
        with pytest.raises(GrammarError, match="pattern"):
            pattern(body)
        return
    whole = f"{'^' if begins else ''}(?:{body}){'$' if ends else ''}"
    python = re.compile(whole.replace("$", "\\Z"), re.ASCII)
    assert matches(pattern(whole), text) == bool(python.search(text))


FORMAT_CASES = {
    "time": (["12:00:00Z", "23:59:60.5+02:00"], ["24:00:00Z", "12:00:00"]),
    "date-time": (["2024-05-01T12:00:00Z"], ["2024-05-01", "2024-02-30T12:00:00Z"]),
    "duration": (["P1Y2M", "PT5M", "P2W"], ["P", "1Y", "PT", "P1M2Y"]),
    "ipv4": (["127.0.0.1"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    "ipv6": (["::", "::1", "1:2:3:4:5:6:7:8", "1::8", "::ffff:1.2.3.4", "1:2:3:4:5:6:7::"],
             ["1:2:3:4:5:6:7", ":::", "1::2::3", "12345::"]),
    "uuid": (["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08-aa98-11ea-b4aa-73b441d1638"]),
    "hostname": (["a.b-c.org", "x"], ["-a", "a..b", "a_b"]),
    "email": (["joe.b@x.org"], ["joe", "@x", "a@b@c", ".a@b"]),
    "uri": (["http://x/y?z=%20#f", "urn:a:b"], ["//x", "a b:c", "http://%2"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMAT_CASES)
def test_formats(name: str) -> None:
    right, wrong = FORMAT_CASES[name]
    assert [x for x in right if not matches(pattern(FORMATS[name]), x)] == []
    assert [x for x in wrong if matches(pattern(FORMATS[name]), x)] == []
    assert {*FORMAT_CASES, "date"} == FORMATS.keys()
