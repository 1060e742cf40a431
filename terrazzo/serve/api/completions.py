"""POST /v1/completions: text, or token ids, that goes on."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from terrazzo.errors import TerrazzoError
from terrazzo.serve.api import bodies, generation
from terrazzo.serve.api.errors import ApiError, of_error
from terrazzo.serve.api.fields import (
    Field,
    Fields,
    boolean,
    integer,
    kind_of,
    read,
    whole_number,
    wrong,
)
from terrazzo.serve.api.generation import COMMON, Generation, Update
from terrazzo.serve.api.logprobs import ForCompletions, joined
from terrazzo.serve.api.respond import DONE, EventStream, event, while_connected, whole
from terrazzo.serve.service import Service

MOST_PROMPTS = 128
MOST_LOGPROBS = 20


def _prompts() -> Field:
    """A string, an array of strings, token ids, or an array of these."""

    def ids(name: str, value: Any) -> list[int]:
        found = [whole_number(x) for x in value]
        for x, id in zip(value, found, strict=True):
            if id is None or not 0 <= id < 2**31:
                raise wrong(name, f"{x!r} is no token id"[:200])
        return [id for id in found if id is not None]

    def check(name: str, value: Any) -> list[str | list[int]]:
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list) or not value:
            raise wrong(name, f"is {kind_of(value)}, give a string, token ids, or an array of them")
        if isinstance(value[0], int | float):
            return [ids(name, value)]
        if len(value) > MOST_PROMPTS:
            raise wrong(name, f"has {len(value)} prompts, at most {MOST_PROMPTS} are allowed")
        if all(isinstance(x, str) for x in value):
            return value
        if all(isinstance(x, list) and x for x in value):
            return [ids(name, x) for x in value]
        raise wrong(name, "give strings only, or arrays of token ids only")

    return Field(check, required=True)


def prompt_schema(token: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of `prompt` for a model whose token ids are as `token` says."""
    one, ids = {"type": "string", "minLength": 1}, {"type": "array", "items": token, "minItems": 1}
    many = {"type": "array", "minItems": 1, "maxItems": MOST_PROMPTS}
    return {"anyOf": [one, ids, {**many, "items": one}, {**many, "items": ids}]}


def _only(value: Any, why: str) -> Field:
    def check(name: str, given: Any) -> Any:
        if given != value:
            raise wrong(name, why)
        return given

    return Field(check, schema={"const": value})


FIELDS: Fields = {
    **COMMON,
    "prompt": _prompts(),
    "max_tokens": integer(1),
    "echo": boolean(),
    "logprobs": integer(0, MOST_LOGPROBS),
    "best_of": _only(1, "only 1 is supported; use n and choose"),
    "suffix": _only("", "is not supported: the models here do not fill gaps"),
}


async def handle(http: HttpRequest) -> Response:
    service: Service = http.app.state.service
    given = read(await bodies.parsed(http), FIELDS)
    generation.check_model(service, given)
    answer = Completion(service, given)
    if not given.get("stream"):
        return whole(await while_connected(http.receive, answer.whole()))
    updates = answer.run.updates()
    first = await while_connected(http.receive, anext(updates))
    return EventStream(answer.events(first, updates), http.state.finished)


class Completion:
    def __init__(self, service: Service, given: dict[str, Any]) -> None:
        self.service, self.given = service, given
        self.id = f"cmpl-{os.urandom(12).hex()}"
        self.created = int(time.time())
        self.n = given.get("n", 1)
        self.echo = given.get("echo", False)
        self.top: int | None = given.get("logprobs")
        tokenizer = service.tokenizer
        most = service.context or None
        try:
            self.prompts = [
                tokenizer.encode(p, most=most) if isinstance(p, str) else p for p in given["prompt"]
            ]
        except TerrazzoError as error:
            raise of_error(error) from None
        for p in self.prompts:
            if not p:
                raise ApiError(400, "prompt: is empty", param="prompt")
            if max(p) >= tokenizer.vocab_size:
                raise ApiError(400, f"prompt: token id {max(p)} is outside of 0 to"
                               f" {tokenizer.vocab_size - 1:,}", param="prompt")  # fmt: skip
        if len(self.prompts) * self.n > generation.MOST_CHOICES:
            raise ApiError(400, f"n: {len(self.prompts)} prompts with {self.n} answers each are"
                           f" more than {generation.MOST_CHOICES}", param="n")  # fmt: skip
        self.run = Generation(service, [
            generation.request(
                service, f"{self.id}-{i}", p, given, given.get("max_tokens", 16),
                logprobs=self.top, prompt_logprobs=self.echo and self.top is not None,
            )
            for i, p in enumerate(self.prompts)
        ], given.get("stop", ()))  # fmt: skip
        self._texts = [tokenizer.decode(p, skip_special=False) if self.echo else ""
                       for p in self.prompts]  # fmt: skip
        self._begun: set[int] = set()
        self._prompt_logprobs: dict[int, Any] = {}
        self._logprobs = {
            c: ForCompletions(tokenizer, self.top or 0) for c in range(self.n * len(self.prompts))
        }

    def _choice(self, u: Update) -> dict[str, Any]:
        """One update in OpenAI's form; with `echo` a choice's first one begins with the prompt."""
        text, parts = u.text, []
        at, book = u.choice // self.n, self._logprobs[u.choice]
        if self.echo and u.choice not in self._begun:
            self._begun.add(u.choice)
            text = self._texts[at] + text
            if self.top is not None:
                parts.append(book.first(self.prompts[at][0]))
                parts.append(book.push(u.prompt_logprobs or self._prompt_logprobs.get(at, ())))
        if u.prompt_logprobs:
            self._prompt_logprobs[at] = u.prompt_logprobs
        if u.logprobs:
            parts.append(book.push(u.logprobs))
        return {"index": u.choice, "text": text, "finish_reason": u.finish,
                "logprobs": joined(parts) if self.top is not None else None}  # fmt: skip

    def _body(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": "text_completion", "created": self.created,
                "model": self.service.name, "choices": choices}  # fmt: skip

    async def whole(self) -> dict[str, Any]:
        found: dict[int, list[dict[str, Any]]] = {}
        async for updates in self.run.updates():
            for u in updates:
                found.setdefault(u.choice, []).append(self._choice(u))
        choices = [
            {**parts[-1], "text": "".join(p["text"] for p in parts),
             "logprobs": joined([p["logprobs"] for p in parts]) if self.top is not None else None}
            for _, parts in sorted(found.items())
        ]  # fmt: skip
        totals = self.run.totals
        return {**self._body(choices), "usage": totals.usage(), "timings": totals.timings()}

    async def events(
        self, first: list[Update], rest: AsyncIterator[list[Update]]
    ) -> AsyncIterator[bytes]:
        with_usage = self.given.get("stream_options", {}).get("include_usage", False)
        extra = {"usage": None} if with_usage else {}

        def some(updates: list[Update]) -> bytes:
            return b"".join(event({**self._body([self._choice(u)]), **extra}) for u in updates)

        try:
            yield some(first)
            async for updates in rest:
                yield some(updates)
        finally:
            await rest.aclose()  # type: ignore[attr-defined]
        if with_usage:
            totals = self.run.totals
            yield event({**self._body([]), "usage": totals.usage(), "timings": totals.timings()})
        yield DONE
