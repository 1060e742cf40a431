"""What a reply says, the same whether it came whole or streamed, so that two can be compared."""

from __future__ import annotations

import json
from typing import Any

from soak.client import Reply


def of(reply: Reply) -> dict[str, Any]:
    """{"choices": {index: {text, calls, finish, logprobs}}, "tokens": {prompt, completion}}.
    Names of calls stay, their random ids go."""
    values = reply.events or [json.loads(reply.body)]
    choices: dict[int, dict[str, Any]] = {}
    tokens: dict[str, int] = {}
    for value in values:
        if usage := value.get("usage"):
            tokens = {k: usage[f"{k}_tokens"] for k in ("prompt", "completion")}
        for c in value["choices"]:
            _add(choices.setdefault(c["index"], _empty()), c)
    return {"choices": dict(sorted(choices.items())), "tokens": tokens}


def _empty() -> dict[str, Any]:
    return {"text": "", "calls": {}, "finish": None, "logprobs": {}}


def _add(into: dict[str, Any], choice: dict[str, Any]) -> None:
    message = choice.get("message") or choice.get("delta") or {}
    into["text"] += choice.get("text") or message.get("content") or ""
    for at, call in enumerate(message.get("tool_calls") or ()):
        known = into["calls"].setdefault(call.get("index", at), ["", ""])
        known[0] += call["function"].get("name") or ""
        known[1] += call["function"].get("arguments") or ""
    into["finish"] = choice["finish_reason"] or into["finish"]
    for name, found in (choice.get("logprobs") or {}).items():
        if found is not None:
            into["logprobs"].setdefault(name, []).extend(found)


def difference(a: dict[str, Any], b: dict[str, Any]) -> str:
    """Where two answers part; "" if they are the same."""
    if a == b:
        return ""
    for index in sorted({*a["choices"], *b["choices"]}):
        one, two = (x["choices"].get(index, _empty()) for x in (a, b))
        for name in one:
            if one[name] != two[name]:
                return f"choice {index}, {name}: {_apart(one[name], two[name])}"
    return f"tokens: {a['tokens']} and {b['tokens']}"


def _apart(a: Any, b: Any) -> str:
    if isinstance(a, str) and isinstance(b, str):
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
                  min(len(a), len(b)))  # fmt: skip
        return f"from {at}: {a[at : at + 60]!r} and {b[at : at + 60]!r}"
    return f"{str(a)[:200]} and {str(b)[:200]}"
