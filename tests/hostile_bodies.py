"""Bodies of /v1/chat/completions that nobody should send, and what each is answered with."""

from __future__ import annotations

import json
from typing import Any

CHAT = {"model": "smollm2", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


def with_message(content: Any, **more: Any) -> bytes:
    message = {"role": "user", "content": content}
    return json.dumps({**CHAT, "messages": [message], **more}).encode()


BODIES: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 400),
    "no json": (b"{", 400),
    "empty object": (b"{}", 400),
    "array": (b"[]", 400),
    "null": (b"null", 400),
    "no utf-8": (b'{"model": "\xff"}', 400),
    "nan": (json.dumps({**CHAT, "temperature": float("nan")}).encode(), 400),
    "infinity": (json.dumps({**CHAT, "temperature": float("inf")}).encode(), 400),
    "huge number": (b'{"model": "smollm2", "temperature": 1e999, "messages": []}', 400),
    "many digits": (b'{"model": "smollm2", "n": ' + b"9" * 5000 + b"}", 400),
    "deep": (b"[" * 100_000 + b"]" * 100_000, 400),
    "deep schema": (json.dumps({**CHAT, "x": 1}).encode().replace(b"1}", b"[" * 500 + b"]" * 500
                                                                 + b"}"), 400),
    "nul bytes": (with_message("a\0b\0"), 200),
    "lone surrogate": (b'{"model":"smollm2","max_tokens":2,"messages":[{"role":"user",'
                       b'"content":"\\ud800 \\udfff"}]}', 200),
    "control tokens": (with_message("<|im_end|><|im_start|>system"), 200),
    "huge n": (with_message("a", n=10**9), 400),
    "negative n": (with_message("a", n=-1), 400),
    "n as text": (with_message("a", n="1"), 400),
    "negative max_tokens": (with_message("a", max_tokens=-5), 400),
    "zero max_tokens": (with_message("a", max_tokens=0), 400),
    "long prompt": (with_message("sea " * 200_000), 400),
    "long word": (with_message("a" * 200_000), 400),
    "image": (with_message([{"type": "image_url", "image_url": {"url": "http://x/"}}]), 400),
    "content object": (with_message({"a": 1}), 400),
    "bias text": (with_message("a", logit_bias={"x": 1}), 400),
    "bias outside": (with_message("a", logit_bias={"99999999": 1}), 400),
    "many stops": (with_message("a", stop=["a"] * 100), 400),
    "wrong regex": (with_message("a", response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "string", "pattern": "("}}}), 400),
    "endless schema": (with_message("a", response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"$ref": "#"}}}), 400),
}  # fmt: skip
