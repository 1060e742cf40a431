"""Requests as strangers send them, drawn from a seed: what is asked, which answers are right, and
where the client hangs up."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hostile_bodies import BODIES

from terrazzo.serve.load import WORDS

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ODD = ("été", "naïve", "海と空", "🙂🙃", "λ→∞", "\u200b", "привет", "<|im_end|>", "</tool_call>")
_SOURCE = random.Random("the same for every seed")
SYSTEMS = [" ".join(_SOURCE.choice(WORDS) for _ in range(n)) for n in (24, 60, 110, 160)]
"""System messages that requests share, so that beginnings are found in the cache."""


@dataclass(frozen=True)
class Ask:
    """`right`: statuses that it may be answered with; 504 is also right as an event of a stream.
    `cut`: the client hangs up ("sent", s) s seconds after it has sent all, ("events", n) after n
    events, ("body", share) after a share of the body. `shared`: which of SYSTEMS it begins with,
    or -1. `body` None: a GET."""

    kind: str
    path: str
    body: bytes | None
    right: frozenset[int] = frozenset({200, 429})
    stream: bool = False
    cut: tuple[str, float] | None = None
    shared: int = -1

    @property
    def answers(self) -> bool:
        """Whether a whole answer can be had again from the same request."""
        return self.path in (CHAT, TEXT) and 200 in self.right and self.kind not in ("hostile",)


def draw(r: random.Random) -> Ask:
    kinds: list[tuple[int, Callable[[random.Random], Ask]]] = [
        (36, chat), (14, completion), (8, schema), (8, tools), (14, cut), (9, hostile), (3, late),
        (8, other),
    ]  # fmt: skip
    return r.choices([f for _, f in kinds], [w for w, _ in kinds])[0](r)


def burst(r: random.Random, count: int) -> list[Ask]:
    """More at once than may wait."""
    return [_ask("burst", CHAT, {**_chat_body(r, 3)[0], "max_tokens": r.randint(1, 24)}, r)
            for _ in range(count)]  # fmt: skip


# -- what is asked ------------------------------------------------------------------------------
def words(r: random.Random, least: int, most: int) -> str:
    found = [r.choice(WORDS) for _ in range(r.randint(least, most))]
    if r.random() < 0.25:
        found.insert(r.randrange(len(found) + 1), r.choice(ODD))
    return " ".join(found)


def sampling(r: random.Random) -> dict[str, Any]:
    """Greedy, or a draw that a seed decides."""
    out: dict[str, Any] = {"temperature": 0}
    if r.random() < 0.55:
        out = {"temperature": round(r.uniform(0.2, 1.4), 2), "seed": r.getrandbits(63)}
        out |= r.choice([{}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}])
    if r.random() < 0.2:
        out |= {"presence_penalty": 0.6, "frequency_penalty": 0.3}
    if r.random() < 0.15:
        out["repetition_penalty"] = 1.15
    if r.random() < 0.1:
        out["logit_bias"] = {str(r.randrange(1000, 40_000)): r.randint(-100, 8) for _ in range(3)}
    if r.random() < 0.25:
        out["stop"] = r.choice([".", ["\n", " the "], ["never to be seen", ","], " a"])
    if r.random() < 0.3:
        out["ignore_eos"] = True
    return out


def _ask(kind: str, path: str, body: dict[str, Any], r: random.Random, **more: Any) -> Ask:
    stream = r.random() < 0.5
    if stream:
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    return Ask(kind, path, json.dumps(body).encode(), stream=stream, **more)


def _chat_body(r: random.Random, most_words: int = 120) -> tuple[dict[str, Any], int]:
    shared = r.randrange(-1, len(SYSTEMS))
    messages = [] if shared < 0 else [{"role": "system", "content": SYSTEMS[shared]}]
    if r.random() < 0.2:
        messages += [{"role": "user", "content": words(r, 1, 12)},
                     {"role": "assistant", "content": words(r, 1, 20)}]  # fmt: skip
    messages.append({"role": "user", "content": words(r, 1, most_words)})
    return {"model": "smollm2", "messages": messages, **sampling(r)}, shared


def chat(r: random.Random) -> Ask:
    body, shared = _chat_body(r)
    body |= {"max_tokens": r.choice([1, r.randint(2, 40), r.randint(20, 96), r.randint(90, 200)]),
             "n": r.choice([1, 1, 1, 1, 2, 3])}  # fmt: skip
    if r.random() < 0.4:
        body |= {"logprobs": True, "top_logprobs": r.choice([0, 2, 5])}
    return _ask("chat", CHAT, body, r, shared=shared)


def completion(r: random.Random) -> Ask:
    prompt: Any = r.choice([
        words(r, 1, 200), [words(r, 1, 30) for _ in range(r.randint(2, 3))],
        [r.randrange(1000, 40_000) for _ in range(r.randint(1, 120))],
    ])  # fmt: skip
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": r.randint(1, 48), **sampling(r)}
    if r.random() < 0.3:
        body |= {"echo": True, "logprobs": r.choice([0, 3])}
    elif r.random() < 0.3:
        body["n"] = 2
    return _ask("completion", TEXT, body, r)


def schema(r: random.Random) -> Ask:
    names = [f"{r.choice(WORDS)}_{i}" for i in range(r.randint(1, 3))]
    kinds = [{"type": "integer", "minimum": 0, "maximum": r.randint(5, 500)}, {"type": "boolean"},
             {"type": "string", "maxLength": r.randint(2, 12)},
             {"enum": [r.choice(WORDS) for _ in range(3)]},
             {"type": "array", "items": {"type": "integer"}, "maxItems": 3}]  # fmt: skip
    wanted = {"type": "object", "properties": {n: r.choice(kinds) for n in names},
              "required": names, "additionalProperties": False}  # fmt: skip
    body, shared = _chat_body(r, 30)
    body.pop("ignore_eos", None)
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": wanted}}
    body |= {"max_tokens": r.randint(8, 80),
             "response_format": form if r.random() < 0.85 else {"type": "json_object"}}  # fmt: skip
    return _ask("schema", CHAT, body, r, shared=shared)


def tools(r: random.Random) -> Ask:
    city = {"type": "object", "required": ["city"], "additionalProperties": False,
            "properties": {"city": {"type": "string", "maxLength": r.randint(4, 16)}}}  # fmt: skip
    known = [
        {"type": "function", "function": {"name": f"get_{r.choice(WORDS)}", "parameters": city}}
        for _ in range(r.randint(1, 2))
    ]
    body, shared = _chat_body(r, 20)
    body.pop("ignore_eos", None)
    body |= {"tools": known, "tool_choice": r.choice(["auto", "required", "required"]),
             "max_tokens": r.randint(4, 60)}  # fmt: skip
    return _ask("tools", CHAT, body, r, shared=shared)


def cut(r: random.Random) -> Ask:
    """The client goes away: in its body, before the first token, in the middle."""
    whole = r.choice([chat, chat, completion, schema, tools])(r)
    assert whole.body is not None
    body = {**json.loads(whole.body), "max_tokens": r.randint(60, 200)}
    if whole.kind in ("chat", "completion"):
        body["ignore_eos"] = True
    where: tuple[str, float] = ("sent", r.choice([0.0, r.uniform(0, 0.05), r.uniform(0, 1)]))
    if whole.stream and r.random() < 0.6:
        where = ("events", r.randint(1, 20))
    elif r.random() < 0.15:
        where = ("body", r.random())
    return Ask("cut", whole.path, json.dumps(body).encode(), frozenset({200, 429}), whole.stream,
               where, whole.shared)  # fmt: skip


def hostile(r: random.Random) -> Ask:
    name = r.choice(list(BODIES))
    body, status = BODIES[name]
    # An endless schema compiles; that nothing follows from it is found in its turn.
    queued = status == 200 or name == "endless schema"
    return Ask("hostile", CHAT, body, frozenset({status, 429} if queued else {status}))


def late(r: random.Random) -> Ask:
    """One that gives itself too little time, as a rule."""
    whole = chat(r)
    assert whole.body is not None
    body = {**json.loads(whole.body), "max_tokens": 200, "ignore_eos": True,
            "timeout": round(r.uniform(0.005, 0.5), 3)}  # fmt: skip
    return Ask("late", CHAT, json.dumps(body).encode(), frozenset({200, 429, 504}), whole.stream,
               shared=whole.shared)  # fmt: skip


def other(r: random.Random) -> Ask:
    fine = frozenset({200})
    tokens = {"tokens": [r.randrange(40_000) for _ in range(r.randint(0, 60))]}
    return r.choice([
        Ask("other", "/tokenize", json.dumps({"content": words(r, 0, 300)}).encode(), fine),
        Ask("other", "/detokenize", json.dumps(tokens).encode(), fine),
        Ask("other", "/v1/models", None, fine), Ask("other", "/metrics", None, fine),
        Ask("other", "/engine", None, fine), Ask("other", "/health", None, fine),
        Ask("other", "/v1/models/none", None, frozenset({404})),
        Ask("other", "/v1/embeddings", b'{"input": "x"}', frozenset({400})),
    ])  # fmt: skip
