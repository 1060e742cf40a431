"""Fields of requests: which we know, what values are right, what each does.

A field is `enforced` (OpenAI's, with its effect), `accepted` (OpenAI's, without effect here) or an
`extension` (other servers' and ours). Any other is refused by name. null counts as absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from terrazzo.serve.api.errors import ApiError

Check = Callable[[str, Any], Any]
"""(field's name, value) -> the value to use; raises ApiError."""
Kind = Literal["enforced", "accepted", "extension"]


@dataclass(frozen=True)
class Field:
    check: Check
    kind: Kind = "enforced"
    schema: Mapping[str, Any] | None = None
    required: bool = False


Fields = Mapping[str, Field]


def wrong(name: str, what: str) -> ApiError:
    return ApiError(400, f"{name}: {what}", param=name)


def read(body: Any, fields: Fields) -> dict[str, Any]:
    """The fields given, checked. Raises ApiError for the first that is wrong."""
    if not isinstance(body, dict):
        raise ApiError(400, f"the body is {kind_of(body)}, give a JSON object")
    for name in body:
        if name not in fields:
            known = ", ".join(sorted(fields))
            raise ApiError(400, f"unknown field {name[:80]!r}; known: {known}", param=name[:80],
                           code="unknown_parameter")  # fmt: skip
    for name, field in fields.items():
        if field.required and body.get(name) is None:
            raise ApiError(400, f"{name} is missing", param=name, code="missing_required_parameter")
    return {n: fields[n].check(n, v) for n, v in body.items() if v is not None}


def kind_of(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean",
             int: "a number", float: "a number", type(None): "null"}  # fmt: skip
    return names.get(type(value), type(value).__name__)


# -- values -------------------------------------------------------------------------------------
def number(low: float, high: float) -> Field:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(name, f"is {kind_of(value)}, give a number from {low:g} to {high:g}")
        if not math.isfinite(value) or not low <= value <= high:
            raise wrong(name, f"is {value}, give a number from {low:g} to {high:g}")
        return float(value)

    return Field(check, schema={"type": "number", "minimum": low, "maximum": high})


def whole_number(value: Any) -> int | None:
    """JSON has one kind of numbers: 2.0 is 2. None for what is none, or not whole."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def integer(low: int, high: int = 2**31 - 1) -> Field:
    def check(name: str, value: Any) -> int:
        found = whole_number(value)
        if found is None:
            raise wrong(name, f"is {kind_of(value)}, give a whole number from {low} to {high}")
        if not low <= found <= high:
            raise wrong(name, f"is {found}, give a whole number from {low} to {high}")
        return found

    return Field(check, schema={"type": "integer", "minimum": low, "maximum": high})


def boolean() -> Field:
    def check(name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise wrong(name, f"is {kind_of(value)}, give true or false")
        return value

    return Field(check, schema={"type": "boolean"})


def text(most: int = 1 << 24) -> Field:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise wrong(name, f"is {kind_of(value)}, give a string")
        if len(value) > most:
            raise wrong(name, f"has {len(value):,} characters, at most {most:,} are allowed")
        return value

    return Field(check, schema={"type": "string"})


def stops() -> Field:
    def check(name: str, value: Any) -> tuple[str, ...]:
        given = [value] if isinstance(value, str) else value
        if not isinstance(given, list) or not all(isinstance(s, str) for s in given):
            raise wrong(name, "give a string, or an array of up to 4 strings")
        if len(given) > 4:
            raise wrong(name, f"has {len(given)} strings, at most 4 are allowed")
        if any(len(s) > 1000 for s in given):
            raise wrong(name, "a stop string has at most 1,000 characters")
        return tuple(s for s in given if s)

    one = {"type": "string", "maxLength": 1000}
    return Field(check, schema={"anyOf": [one, {"type": "array", "items": one, "maxItems": 4}]})


def biases() -> Field:
    def check(name: str, value: Any) -> dict[int, float]:
        if not isinstance(value, dict) or len(value) > 1024:
            raise wrong(name, "give an object of up to 1,024 token ids and values")
        found: dict[int, float] = {}
        for key, bias in value.items():
            if not (key.isascii() and key.isdigit() and len(key) < 10):
                raise wrong(name, f"{key[:40]!r} is no token id")
            if (
                isinstance(bias, bool)
                or not isinstance(bias, int | float)
                or not -100 <= bias <= 100
            ):
                raise wrong(name, f"the value of token {key} is {bias!r}, give one of -100 to 100")
            found[int(key)] = float(bias)
        return found

    value = {"type": "number", "minimum": -100, "maximum": 100}
    return Field(check, schema={"type": "object", "maxProperties": 1024,
                                "propertyNames": {"pattern": "^[0-9]{1,9}$"},
                                "additionalProperties": value})  # fmt: skip


def stream_options() -> Field:
    def check(name: str, value: Any) -> dict[str, bool]:
        return read_inside(name, value, {"include_usage": boolean(),
                                         "include_obfuscation": accepted("boolean")})  # fmt: skip

    maybe = {"type": ["boolean", "null"]}
    return Field(check, schema={"type": "object", "properties": {
        "include_usage": maybe, "include_obfuscation": maybe},
        "additionalProperties": False})  # fmt: skip


def read_inside(name: str, value: Any, fields: Fields) -> dict[str, Any]:
    """As `read`, of an object inside: the errors name the path."""
    if not isinstance(value, dict):
        raise wrong(name, f"is {kind_of(value)}, give an object")
    for key in value:
        if key not in fields:
            raise wrong(name, f"unknown field {key[:80]!r}; known: {', '.join(sorted(fields))}")
    for key, field in fields.items():
        if field.required and value.get(key) is None:
            raise wrong(f"{name}.{key}", "is missing")
    return {k: fields[k].check(f"{name}.{k}", v) for k, v in value.items() if v is not None}


def one_of(*values: str) -> Field:
    def check(name: str, value: Any) -> str:
        if value not in values:
            shown = value[:80] if isinstance(value, str) else kind_of(value)
            raise wrong(name, f"is {shown!r}, give one of {', '.join(values)}")
        return value

    return Field(check, schema={"type": "string", "enum": list(values)})


def accepted(kind: str) -> Field:
    """Taken and without effect; `kind` is JSON Schema's type of it."""
    types: dict[str, type] = {"string": str, "boolean": bool, "object": dict, "array": list}

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, types[kind]):
            raise wrong(name, f"is {kind_of(value)}, give a value of type {kind}")
        return value

    return Field(check, "accepted", {"type": kind})


def extension(field: Field) -> Field:
    return Field(field.check, "extension", field.schema)


def required(field: Field) -> Field:
    return Field(field.check, field.kind, field.schema, required=True)


def object_schema(fields: Fields, rules: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """JSON Schema of a body. `rules`: schemas that it has to keep to besides."""
    null = {"type": "null"}  # counts as absent
    return {
        "type": "object",
        "properties": {n: (f.schema or {}) if f.required else {"anyOf": [f.schema or {}, null]}
                       for n, f in fields.items()},
        "required": [n for n, f in fields.items() if f.required],
        "additionalProperties": False,
        **({"allOf": list(rules)} if rules else {}),
    }  # fmt: skip


def only_with(name: str, other: str) -> dict[str, Any]:
    """The rule that field `name` is only allowed where `other` is true."""
    given = {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
    return {"if": given, "then": {"required": [other], "properties": {other: {"const": True}}}}
