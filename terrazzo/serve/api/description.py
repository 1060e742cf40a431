"""GET /openapi.json: what this server takes, made from the tables that requests are read by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from terrazzo import __version__
from terrazzo.serve.api import chat, completions, others
from terrazzo.serve.api.fields import Field, Fields, object_schema, only_with
from terrazzo.serve.api.respond import whole
from terrazzo.serve.service import Service

_ERROR = {
    "type": "object", "required": ["error"], "properties": {"error": {
        "type": "object", "required": ["message", "type", "param", "code"], "properties": {
            "message": {"type": "string"}, "type": {"type": "string"},
            "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}},
}  # fmt: skip
_COUNT = {"type": "integer", "minimum": 0}
_USAGE = {
    "type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT},
}  # fmt: skip
_TEXT = {"type": "string"}
_END = {"enum": ["stop", "length", "tool_calls", "cancelled"]}


def _answer(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    index = {"index": _COUNT, "finish_reason": _END, "logprobs": {"type": ["object", "null"]}}
    one = {"type": "object", "required": [*index, *choice], "properties": {**index, **choice}}
    return {
        "type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {"id": _TEXT, "object": {"const": kind}, "created": _COUNT, "model": _TEXT,
                       "choices": {"type": "array", "items": one, "minItems": 1}, "usage": _USAGE},
    }  # fmt: skip


_MESSAGE = {
    "type": "object", "required": ["role", "content"],
    "properties": {"role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
                   "tool_calls": {"type": "array", "items": {"type": "object"}}},
}  # fmt: skip
_MODEL = {
    "type": "object", "required": ["id", "object", "created", "owned_by"],
    "properties": {"id": _TEXT, "object": {"const": "model"}, "created": _COUNT, "owned_by": _TEXT},
}  # fmt: skip
_MODELS = {
    "type": "object", "required": ["object", "data"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL}},
}  # fmt: skip
_TOKENS = {"type": "object", "required": ["tokens"],
           "properties": {"tokens": {"type": "array", "items": _COUNT}}}  # fmt: skip
_CONTENT = {"type": "object", "required": ["content"], "properties": {"content": _TEXT}}
_STATUS = {"type": "object", "required": ["status"], "properties": {"status": _TEXT}}


# One event of a stream; its data is a chunk, or [DONE] at the end.
_EVENT = {"type": "object", "required": ["data"], "properties": {"data": _TEXT}}


def _body(schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"content": {kind: {"schema": schema}}}


def _errors(*statuses: int) -> dict[str, Any]:
    return {str(s): {"description": "refused", **_body(_ERROR)} for s in statuses}


def _post(
    name: str,
    fields: Fields,
    answer: dict[str, Any],
    stream: bool = False,
    rules: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    content = {"application/json": {"schema": answer}}
    if stream:
        content["text/event-stream"] = {"schema": _EVENT}
    lists = {
        f"x-{kind}": sorted(n for n, f in fields.items() if f.kind == kind)
        for kind in ("enforced", "accepted", "extension")
    }
    return {"post": {
        "operationId": name, **lists,
        "requestBody": {"required": True, **_body(object_schema(fields, rules))},
        "responses": {"200": {"description": "the answer", "content": content},
                      **_errors(400, 401, 404, 408, 413, 429, 500, 503, 504)},
    }}  # fmt: skip


def _get(
    name: str,
    answer: dict[str, Any],
    parameters: list[Any] | None = None,
    kind: str = "application/json",
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {"get": {
        "operationId": name, "parameters": parameters or [],
        "responses": {"200": {"description": "the answer", **_body(answer, kind)},
                      **_errors(401, 404, 503), **(more or {})},
    }}  # fmt: skip


def _described(field: Field, schema: dict[str, Any]) -> Field:
    """The field with a schema that knows the model."""
    return Field(field.check, field.kind, schema, field.required)


def describe(model: str, vocabulary: int) -> dict[str, Any]:
    """`model`: the name of the one there is; `vocabulary`: its tokens."""
    name = {"const": model}
    token = {"type": "integer", "minimum": 0, "maximum": vocabulary - 1}
    chat_fields = {**chat.FIELDS, "model": _described(chat.FIELDS["model"], name)}
    text_fields = {
        **completions.FIELDS, "model": _described(completions.FIELDS["model"], name),
        "prompt": _described(completions.FIELDS["prompt"], completions.prompt_schema(token)),
    }  # fmt: skip
    ids = _described(others.DETOKENIZE["tokens"], {"type": "array", "items": token})
    one = [{"required": [n], "properties": {n: {"not": {"type": "null"}}}}
           for n in ("content", "messages")]  # fmt: skip
    with_stream = only_with("stream_options", "stream")
    path = {"name": "model", "in": "path", "required": True, "schema": {"enum": [model]}}
    text_choice, chat_choice = {"text": _TEXT}, {"message": _MESSAGE}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Terrazzo", "version": __version__,
                 "description": "x-enforced: fields of OpenAI's with their effect; x-accepted:"
                 " taken without effect; x-extension: of other servers and our own. Any other"
                 " field is refused by name."},
        "paths": {
            "/v1/models": _get("listModels", _MODELS),
            "/v1/models/{model}": _get("retrieveModel", _MODEL, [path]),
            "/v1/chat/completions": _post(
                "createChatCompletion", chat_fields, _answer("chat.completion", chat_choice), True,
                [with_stream, only_with("top_logprobs", "logprobs")],
            ),
            "/v1/completions": _post(
                "createCompletion", text_fields, _answer("text_completion", text_choice), True,
                [with_stream],
            ),
            "/tokenize": _post("tokenize", others.TOKENIZE, _TOKENS, rules=[{"oneOf": one}]),
            "/detokenize": _post("detokenize", {"tokens": ids}, _CONTENT),
            "/health": _get("health", _STATUS,
                            more={"503": {"description": "not ready", **_body(_STATUS)}}),
            "/metrics": _get("metrics", _TEXT, kind="text/plain"),
        },
    }  # fmt: skip


async def handle(http: Request) -> Response:
    service: Service = http.app.state.service
    return whole(describe(service.name, service.tokenizer.vocab_size))
