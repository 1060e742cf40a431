"""Conversations: what a message may be, as the model's template takes it."""

from __future__ import annotations

import json
from typing import Any

from terrazzo.serve.api.errors import ApiError
from terrazzo.serve.api.fields import Field, kind_of, wrong

ROLES = ("system", "developer", "user", "assistant", "tool")
_KNOWN = ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "annotations",
          "audio", "function_call")  # fmt: skip
MOST = 4096


def messages() -> Field:
    def check(name: str, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not value:
            raise wrong(name, f"is {kind_of(value)}, give an array of at least one message"
                        if not isinstance(value, list) else "is empty")  # fmt: skip
        if len(value) > MOST:
            raise wrong(name, f"has {len(value):,} messages, at most {MOST:,} are read")
        return [_message(f"{name}[{i}]", m) for i, m in enumerate(value)]

    return Field(check, required=True, schema={
        "type": "array", "items": _message_schema(), "minItems": 1, "maxItems": MOST})  # fmt: skip


def _message_schema() -> dict[str, Any]:
    """JSON Schema of a message."""
    part = {"type": "object", "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
            "required": ["type", "text"]}  # fmt: skip
    content = {"anyOf": [{"type": "string"}, {"type": "array", "items": part}]}
    call = {"type": "object", "required": ["function"], "properties": {"function": {
        "type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "arguments": {"type": "string"}}}}}  # fmt: skip
    calls = {"type": "array", "items": call}
    most = {"role": {"enum": ["system", "developer", "user"]}, "content": content}
    answer = {"role": {"const": "assistant"}, "content": content, "tool_calls": calls}
    call_only = {"role": {"const": "assistant"}, "content": {"type": "null"},
                 "tool_calls": {**calls, "minItems": 1}}  # fmt: skip
    result = {"role": {"const": "tool"}, "content": content, "tool_call_id": {"type": "string"}}
    forms = [(most, ["content"]), (answer, ["content"]), (call_only, ["tool_calls"]),
             (result, ["content", "tool_call_id"])]  # fmt: skip
    return {"anyOf": [
        {"type": "object", "required": ["role", *needed], "additionalProperties": False,
         "properties": {**{n: {} for n in _KNOWN if n not in ("tool_calls", "content")}, **form}}
        for form, needed in forms
    ]}  # fmt: skip


def _message(path: str, m: Any) -> dict[str, Any]:
    if not isinstance(m, dict):
        raise wrong(path, f"is {kind_of(m)}, give an object")
    for key in m:
        if key not in _KNOWN:
            raise wrong(f"{path}.{key[:80]}", f"is not known; known: {', '.join(_KNOWN)}")
    role = m.get("role")
    if role not in ROLES:
        raise wrong(f"{path}.role", f"is {str(role)[:80]!r}, give one of {', '.join(ROLES)}")
    calls = m.get("tool_calls")
    out: dict[str, Any] = {"role": "system" if role == "developer" else role}
    content = m.get("content")
    if content is None and not (role == "assistant" and calls):
        raise wrong(f"{path}.content", "is missing")
    out["content"] = "" if content is None else _text(f"{path}.content", content)
    if isinstance(m.get("name"), str):
        out["name"] = m["name"]
    if calls:
        if role != "assistant" or not isinstance(calls, list):
            raise wrong(f"{path}.tool_calls", "give an array, in a message of the assistant")
        out["tool_calls"] = [_call(f"{path}.tool_calls[{i}]", c) for i, c in enumerate(calls)]
    if role == "tool":
        if not isinstance(m.get("tool_call_id"), str):
            raise wrong(f"{path}.tool_call_id", "is missing")
        out["tool_call_id"] = m["tool_call_id"]
    return out


def _text(path: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(path, f"is {kind_of(content)}, give a string or an array of parts")
    parts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(text, str):
            raise wrong(f"{path}[{i}]", f"is of type {str(kind)[:40]!r}; the model reads text only")
        parts.append(text)
    return "".join(parts)


def _call(path: str, c: Any) -> dict[str, Any]:
    function = c.get("function") if isinstance(c, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise wrong(path, "give {id, type, function: {name, arguments}}")
    arguments = function.get("arguments", "")
    if not isinstance(arguments, str):
        raise wrong(f"{path}.function.arguments", f"is {kind_of(arguments)}, give a string")
    try:  # what a model has once written may be no JSON: that shall not end the conversation
        value = json.loads(arguments) if arguments else {}
    except (ValueError, RecursionError):
        value = arguments
    return {"id": str(c.get("id", "")), "type": "function",
            "function": {"name": function["name"], "arguments": value}}  # fmt: skip


def not_chat(name: str) -> ApiError:
    return ApiError(400, f"{name} has no chat template: use /v1/completions", param="model")
