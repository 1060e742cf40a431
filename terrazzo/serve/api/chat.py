"""POST /v1/chat/completions: the next message of a conversation."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from terrazzo.engine.request import MOST_LOGPROBS, Grammar
from terrazzo.errors import TerrazzoError
from terrazzo.serve.api import bodies, generation, tools
from terrazzo.serve.api.errors import ApiError, of_error
from terrazzo.serve.api.fields import (
    Field,
    Fields,
    accepted,
    boolean,
    integer,
    kind_of,
    read,
    wrong,
)
from terrazzo.serve.api.generation import COMMON, Generation, Update
from terrazzo.serve.api.logprobs import for_chat
from terrazzo.serve.api.messages import messages, not_chat
from terrazzo.serve.api.respond import DONE, EventStream, event, while_connected, whole
from terrazzo.serve.service import Service


def _format() -> Field:
    """response_format; gives a Grammar, or None for plain text."""

    def check(name: str, value: Any) -> Grammar | None:
        kind = value.get("type") if isinstance(value, dict) else None
        if kind == "text":
            return None
        if kind == "json_object":
            return Grammar("json_object")
        if kind != "json_schema":
            raise wrong(name, "its type is one of text, json_object, json_schema")
        given = value.get("json_schema")
        schema = given.get("schema") if isinstance(given, dict) else None
        if not isinstance(schema, dict | bool):
            raise wrong(f"{name}.json_schema.schema", f"is {kind_of(schema)}, give a JSON Schema")
        return Grammar("json_schema", json.dumps(schema))

    plain = {"properties": {"type": {"enum": ["text", "json_object"]}}}
    held = {"required": ["json_schema"], "properties": {
        "type": {"const": "json_schema"},
        "json_schema": {"type": "object", "required": ["schema"], "properties": {
            "schema": {"type": ["object", "boolean"]}}}}}  # fmt: skip
    return Field(check, schema={"type": "object", "required": ["type"], "anyOf": [plain, held]})


def _modalities() -> Field:
    def check(name: str, value: Any) -> Any:
        if value != ["text"]:
            raise wrong(name, 'only ["text"] is supported')
        return value

    return Field(check, "accepted", {"const": ["text"]})


FIELDS: Fields = {
    **COMMON,
    "messages": messages(),
    "max_tokens": integer(1),
    "max_completion_tokens": integer(1),
    "logprobs": boolean(),
    "top_logprobs": integer(0, MOST_LOGPROBS),
    "response_format": _format(),
    "tools": tools.tools(),
    "tool_choice": tools.choice(),
    "parallel_tool_calls": accepted("boolean"),  # a call at a time is all there is
    "metadata": accepted("object"),
    "store": accepted("boolean"),
    "service_tier": accepted("string"),
    "safety_identifier": accepted("string"),
    "prompt_cache_key": accepted("string"),
    "prompt_cache_retention": accepted("string"),
    "reasoning_effort": accepted("string"),
    "verbosity": accepted("string"),
    "modalities": _modalities(),
}


async def handle(http: HttpRequest) -> Response:
    service: Service = http.app.state.service
    given = read(await bodies.parsed(http), FIELDS)
    generation.check_model(service, given)
    if given.get("top_logprobs") is not None and not given.get("logprobs"):
        raise ApiError(400, "top_logprobs is only allowed with logprobs", param="top_logprobs")
    known, grammar = tools.wanted(given)
    if grammar is not None and given.get("response_format") is not None:
        raise ApiError(400, "a call is asked for by tool_choice, so the answer cannot have a"
                       " response_format", param="response_format")  # fmt: skip
    grammar = grammar or given.get("response_format")
    if grammar is not None:
        try:
            grammar = await service.schemas.check(grammar)
        except TerrazzoError as error:
            raise of_error(error) from None
    answer = Chat(service, given, known, grammar)
    if not given.get("stream"):
        return whole(await while_connected(http.receive, answer.whole()))
    updates = answer.run.updates()
    first = await while_connected(http.receive, anext(updates))
    return EventStream(answer.events(first, updates), http.state.finished)


def prompt(service: Service, given: dict[str, Any], known: list[dict[str, Any]]) -> list[int]:
    """The conversation's token ids. Raises ApiError."""
    if service.chat is None:
        raise not_chat(service.name)
    most = service.context or None
    try:
        if service.chat.takes_tools:
            return service.chat.encode(given["messages"], tools=known or None, most=most)
        return service.chat.encode(tools.introduced(given["messages"], known), most=most)
    except TerrazzoError as error:
        raise of_error(error) from None


class Chat:
    def __init__(self, service: Service, given: dict[str, Any], known: list[dict[str, Any]],
                 grammar: Grammar | None) -> None:  # fmt: skip
        self.service, self.given = service, given
        self.id = f"chatcmpl-{os.urandom(12).hex()}"
        self.created = int(time.time())
        self.top: int | None = given.get("top_logprobs", 0) if given.get("logprobs") else None
        most = given.get("max_completion_tokens", given.get("max_tokens"))
        request = generation.request(service, self.id, prompt(service, given, known), given, most,
                                     logprobs=self.top, grammar=grammar)  # fmt: skip
        self.run = Generation(service, [request], given.get("stop", ()))
        names = [t["function"]["name"] for t in known]
        forced = grammar is not None and bool(names) and given.get("response_format") is None
        self._calls = [
            tools.CallText(names, forced) if names else None for _ in range(request.choices)
        ]
        self._begun = [False] * request.choices

    def _parts(self, u: Update) -> tuple[list[tools.Piece], str | None]:
        """What an update adds to the message, and why it ended."""
        calls, finish = self._calls[u.choice], u.finish
        if calls is None:
            return ([("content", u.text)] if u.text else []), finish
        parts = calls.push(u.text) if u.text else []
        if finish:
            parts += calls.flush(finish == "stop")
            if calls.called and finish == "stop":
                finish = "tool_calls"
        return parts, finish

    def _logprobs(self, u: Update) -> dict[str, Any] | None:
        if self.top is None:
            return None
        return {"content": for_chat(self.service.tokenizer, u.logprobs, self.top), "refusal": None}

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created,
                "model": self.service.name, "choices": choices}  # fmt: skip

    # -- whole ----------------------------------------------------------------------------------
    async def whole(self) -> dict[str, Any]:
        n = len(self._calls)
        content, name, arguments = [""] * n, [""] * n, [""] * n
        ends: list[str | None] = [None] * n
        logprobs: list[list[Any]] = [[] for _ in range(n)]
        async for updates in self.run.updates():
            for u in updates:
                parts, finish = self._parts(u)
                for kind, text in parts:
                    into = {"content": content, "name": name, "arguments": arguments}[kind]
                    into[u.choice] += text
                ends[u.choice] = finish or ends[u.choice]
                if (found := self._logprobs(u)) is not None:
                    logprobs[u.choice] += found["content"]
        choices = []
        for i in range(n):
            message: dict[str, Any] = {"role": "assistant", "content": content[i], "refusal": None}
            if name[i]:
                message["content"] = content[i] or None
                message["tool_calls"] = [_call(i, name[i], arguments[i], index=None)]
            choices.append({
                "index": i, "message": message, "finish_reason": ends[i],
                "logprobs": {"content": logprobs[i], "refusal": None} if self.top is not None
                else None,
            })  # fmt: skip
        totals = self.run.totals
        return {**self._body("chat.completion", choices), "usage": totals.usage(),
                "timings": totals.timings()}  # fmt: skip

    # -- streamed -------------------------------------------------------------------------------
    def _deltas(self, u: Update) -> list[dict[str, Any]]:
        """Choices of chunks, the first with the role."""
        parts, finish = self._parts(u)
        deltas: list[dict[str, Any]] = []
        if not self._begun[u.choice]:
            self._begun[u.choice] = True
            deltas.append({"role": "assistant", "content": "", "refusal": None})
        for kind, text in parts:
            if kind == "content":
                deltas.append({"content": text})
            elif kind == "name":
                deltas.append({"tool_calls": [_call(u.choice, text, "", index=0)]})
            else:
                deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
        logprobs = self._logprobs(u)
        if finish or (logprobs and logprobs["content"] and not parts) or not deltas:
            deltas.append({})
        out = [{"index": u.choice, "delta": d, "logprobs": None, "finish_reason": None}
               for d in deltas]  # fmt: skip
        out[-1]["finish_reason"] = finish
        out[-1 if len(out) == 1 or not finish else -2]["logprobs"] = logprobs
        return out

    async def events(
        self, first: list[Update], rest: AsyncIterator[list[Update]]
    ) -> AsyncIterator[bytes]:
        with_usage = self.given.get("stream_options", {}).get("include_usage", False)
        extra = {"usage": None} if with_usage else {}
        kind = "chat.completion.chunk"

        def some(updates: list[Update]) -> bytes:
            return b"".join(
                event({**self._body(kind, [c]), **extra}) for u in updates for c in self._deltas(u)
            )

        try:
            yield some(first)
            async for updates in rest:
                yield some(updates)
        finally:
            await rest.aclose()  # type: ignore[attr-defined]
        if with_usage:
            totals = self.run.totals
            yield event({**self._body(kind, []), "usage": totals.usage(),
                         "timings": totals.timings()})  # fmt: skip
        yield DONE


def _call(choice: int, name: str, arguments: str, index: int | None) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {**place, "id": f"call_{os.urandom(8).hex()}{choice}", "type": "function",
            "function": {"name": name, "arguments": arguments}}  # fmt: skip
