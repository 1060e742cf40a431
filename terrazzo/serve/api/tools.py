"""Tools: how the model is told of them, and calls found in what it writes.

A template that knows tools gets them. For others they stand in the system message, and calls in the
form that most open models were trained on: <tool_call>{"name": ..., "arguments": ...}</tool_call>.
Where a call is wanted ("required", or one by name) a grammar leaves no other way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from terrazzo.engine.request import Grammar
from terrazzo.serve.api.fields import Field, Fields, boolean, kind_of, read_inside, required, text
from terrazzo.serve.api.fields import wrong as wrong_field

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MOST = 128
MOST_HEAD = 200  # characters, of a call as far as its arguments
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]{1,64})"\s*,\s*"(?:arguments|parameters)"\s*:')
_END = re.compile(r"[}\s]*\Z")
_INTRODUCTION = """You may call one of these functions:
<tools>
{tools}
</tools>
To call one, answer with nothing but its name and arguments as JSON:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>"""

Piece = tuple[Literal["content", "name", "arguments"], str]


def _object() -> Field:
    def check(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong_field(name, f"is {kind_of(value)}, give a JSON Schema of an object")
        return value

    return Field(check, schema={"type": "object"})


_FUNCTION: Fields = {"name": required(text(64)), "description": text(), "parameters": _object(),
                     "strict": boolean()}  # fmt: skip


_FUNCTION_SCHEMA = {
    "type": "object", "required": ["name"], "additionalProperties": False, "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"},
        "description": {"type": ["string", "null"]}, "parameters": {"type": ["object", "null"]},
        "strict": {"type": ["boolean", "null"]}},
}  # fmt: skip


def tools() -> Field:
    """[{type: "function", function: {name, description, parameters, strict}}]"""

    def check(name: str, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, list) or len(value) > MOST:
            raise wrong_field(name, f"give an array of up to {MOST} tools")
        found = []
        for i, tool in enumerate(value):
            path = f"{name}[{i}]"
            if not isinstance(tool, dict) or tool.get("type") != "function":
                raise wrong_field(path, 'give {"type": "function", "function": {...}}')
            function = read_inside(f"{path}.function", tool.get("function"), _FUNCTION)
            if not _NAME.match(function["name"]):
                raise wrong_field(f"{path}.function.name", "letters, digits, _ . - only")
            found.append({"type": "function", "function": function})
        return found

    one = {"type": "object", "required": ["type", "function"], "properties": {
        "type": {"const": "function"}, "function": _FUNCTION_SCHEMA}}  # fmt: skip
    return Field(check, schema={"type": "array", "items": one, "maxItems": MOST})


def choice() -> Field:
    """ "none", "auto", "required", or {type: "function", function: {name}}; gives the name."""

    def check(name: str, value: Any) -> str | tuple[str]:
        if value in ("none", "auto", "required"):
            return value
        if isinstance(value, dict) and value.get("type") == "function":
            function = value.get("function")
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                return (function["name"],)
        raise wrong_field(name, "give none, auto, required, or one function by name")

    named = {"type": "object", "required": ["type", "function"], "properties": {
        "type": {"const": "function"}, "function": {
            "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
    }  # fmt: skip
    return Field(check, schema={"anyOf": [{"enum": ["none", "auto", "required"]}, named]})


def wanted(given: dict[str, Any]) -> tuple[list[dict[str, Any]], Grammar | None]:
    """The tools that the model is to know of, and the grammar of the call it has to make, if any.
    Raises ApiError."""
    found: list[dict[str, Any]] = given.get("tools", [])
    how = given.get("tool_choice", "auto" if found else "none")
    if how == "none" or (how == "auto" and not found):
        return [], None
    if not found:
        raise wrong_field("tool_choice", "there are no tools to choose from")
    if how == "auto":
        return found, None
    forced = found
    if isinstance(how, tuple):
        forced = [t for t in found if t["function"]["name"] == how[0]]
        if not forced:
            raise wrong_field("tool_choice", f"there is no tool {how[0][:80]!r}")
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": t["function"]["name"]},
                "arguments": t["function"].get("parameters", {"type": "object"}),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for t in forced
    ]
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return found, Grammar("json_schema", json.dumps(schema))


def introduced(messages: Sequence[dict[str, Any]], given: Sequence[dict[str, Any]]
               ) -> list[dict[str, Any]]:  # fmt: skip
    """The conversation for a template that knows no tools."""
    out: list[dict[str, Any]] = []
    for m in messages:
        content = m["content"]
        for c in m.get("tool_calls", ()):
            call = json.dumps(c["function"], ensure_ascii=False)
            content += f"{OPEN}\n{call}\n{CLOSE}"
        if m["role"] == "tool":
            out.append({"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"})
        else:
            out.append({"role": m["role"], "content": content})
    if given:
        lines = "\n".join(json.dumps(t["function"], ensure_ascii=False) for t in given)
        text = _INTRODUCTION.format(tools=lines)
        if out[0]["role"] == "system":
            out[0] = {**out[0], "content": f"{out[0]['content']}\n\n{text}"}
        else:
            out.insert(0, {"role": "system", "content": text})
    return out


class CallText:
    """Finds a call in a choice's text as it comes. `forced`: it is nothing but a call. Text that
    may yet become one is held back; after a call nothing counts. What is found depends on the text
    alone, not on the pieces it comes in."""

    def __init__(self, names: Sequence[str], forced: bool) -> None:
        self._names, self._forced = names, forced
        self._held = ""
        self._state: Literal["start", "content", "arguments", "over"] = "start"
        self._within = False  # the arguments have begun
        self.called = False

    def push(self, text: str) -> list[Piece]:
        self._held += text
        if self._state == "start":
            if not self._decide():
                return []
            if self.called:
                return [("name", self._name), *self._arguments()]
        if self._state == "arguments":
            return self._arguments()
        out, self._held = self._held, ""
        return [("content", out)] if out and self._state == "content" else []

    def _decide(self) -> bool:
        """Whether it is clear what the text is."""
        body = self._held.lstrip()
        if not self._forced:
            if OPEN.startswith(body[: len(OPEN)]) and len(body) < len(OPEN):
                return False
            body = body.removeprefix(OPEN)
        head = _HEAD.match(body[:MOST_HEAD])
        if head and (self._forced or head[1] in self._names):
            self.called, self._name, self._state = True, head[1], "arguments"
            self._held = body[head.end() :]
            return True
        if self._forced or (body.lstrip()[:1] in ("{", "") and len(body) < MOST_HEAD):
            return False
        self._state = "content"
        return True

    def _arguments(self) -> list[Piece]:
        """All but what may be the end of the call: the brace that closes it, and the tag (which a
        forced call does not have)."""
        if not self._within:
            self._held = self._held.lstrip()
            self._within = bool(self._held)
        end = len(self._held)
        if not self._forced:
            if CLOSE in self._held:
                return self._close(self._held[: self._held.index(CLOSE)])
            end -= next(n for n in range(len(CLOSE) - 1, -1, -1) if self._held.endswith(CLOSE[:n]))
        keep = _END.search(self._held, 0, end).start()  # type: ignore[union-attr]
        out, self._held = self._held[:keep], self._held[keep:]
        return [("arguments", out)] if out else []

    def _close(self, rest: str) -> list[Piece]:
        self._state, self._held = "over", ""
        rest = rest.rstrip().removesuffix("}").rstrip()
        return [("arguments", rest)] if rest else []

    def flush(self, whole: bool) -> list[Piece]:
        """The end. whole: the model ended by itself, so a call is complete."""
        if self._state == "arguments":
            if whole:
                return self._close(self._held)
            rest, self._held = self._held, ""
            return [("arguments", rest)] if rest else []
        rest, self._held = self._held, ""
        return [("content", rest)] if rest and self._state != "over" else []
