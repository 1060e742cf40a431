"""Keywords whose values are no schemas, read and checked. All raise GrammarError."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from terrazzo.engine.schema.formats import FORMATS
from terrazzo.engine.schema.regex import pattern
from terrazzo.engine.schema.sets import Number, String
from terrazzo.errors import GrammarError


def number(node: dict[str, Any]) -> Number:
    made = Number()
    for word, field, strict in (("minimum", "low", "above"), ("maximum", "high", "below")):
        name = f"exclusive{word.capitalize()}"
        for key, value in ((word, False), (name, True)):
            if key in node:
                bound = exact(node, key)
                made = made.met(Number(**{field: bound, strict: value}))
    if "multipleOf" in node:
        step = exact(node, "multipleOf")
        if step <= 0:
            raise GrammarError("multipleOf is above 0")
        made = replace(made, multiples=(step,))
    return made


def string(node: dict[str, Any]) -> String:
    match = []
    if "pattern" in node:
        if not isinstance(node["pattern"], str):
            raise GrammarError("pattern is a string")
        match.append(pattern(node["pattern"]))
    if node.get("format") in FORMATS:
        match.append(pattern(FORMATS[node["format"]]))
    return String(tuple(match), (), count(node, "minLength") or 0, count(node, "maxLength"))


def exact(node: dict[str, Any], key: str) -> Fraction:
    value = node[key]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise GrammarError(f"{key} is a number, not {str(value)[:40]!r}")
    return Fraction(value)


def count(node: dict[str, Any], key: str) -> int | None:
    if key not in node:
        return None
    value = exact(node, key)
    if value < 0 or value.denominator != 1:
        raise GrammarError(f"{key} is a whole number from 0 on, not {node[key]}")
    return int(value)


def is_list(node: dict[str, Any], key: str) -> bool:
    return isinstance(node.get(key), list)


def list_of(node: dict[str, Any], key: str, default: list[Any] | None = None) -> list[Any]:
    value = node.get(key, default)
    if not isinstance(value, list):
        raise GrammarError(f"{key} is a list")
    return value


def map_of(node: dict[str, Any], key: str) -> dict[str, Any]:
    value = node.get(key, {})
    if not isinstance(value, dict):
        raise GrammarError(f"{key} is an object")
    return value
