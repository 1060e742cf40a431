"""The small endpoints: models, embeddings (refused), tokens, health, metrics, engine state."""

from __future__ import annotations

import dataclasses
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from terrazzo.errors import TerrazzoError
from terrazzo.serve.api import bodies
from terrazzo.serve.api.errors import ApiError, of_error
from terrazzo.serve.api.fields import (
    Field,
    Fields,
    boolean,
    kind_of,
    read,
    required,
    text,
    whole_number,
    wrong,
)
from terrazzo.serve.api.messages import messages
from terrazzo.serve.api.respond import whole
from terrazzo.serve.service import Service


def _service(http: Request) -> Service:
    return http.app.state.service


def _model(s: Service) -> dict[str, Any]:
    return {"id": s.name, "object": "model", "created": s.created, "owned_by": "terrazzo",
            "context_length": s.context}  # fmt: skip


async def models(http: Request) -> Response:
    return whole({"object": "list", "data": [_model(_service(http))]})


async def model(http: Request) -> Response:
    s, asked = _service(http), http.path_params["model"]
    if asked != s.name:
        raise ApiError(404, f"there is no model {asked[:200]!r} here; there is {s.name!r}",
                       param="model", code="model_not_found")  # fmt: skip
    return whole(_model(s))


async def embeddings(http: Request) -> Response:
    await bodies.parsed(http)
    raise ApiError(400, f"{_service(http).name} writes text and has no embeddings: its file names"
                   " no way to pool them", param="model", code="model_not_supported")  # fmt: skip


def _ids() -> Field:
    def check(name: str, value: Any) -> list[int]:
        if not isinstance(value, list):
            raise wrong(name, f"is {kind_of(value)}, give an array of token ids")
        found = [whole_number(x) for x in value]
        if None in found:
            bad = value[found.index(None)]
            raise wrong(name, f"{str(bad)[:80]!r} is no token id")
        return [id for id in found if id is not None]

    return Field(check, schema={"type": "array", "items": {"type": "integer"}}, required=True)


TOKENIZE: Fields = {"content": text(), "messages": dataclasses.replace(messages(), required=False),
                    "add_special": boolean(), "with_pieces": boolean()}  # fmt: skip
DETOKENIZE: Fields = {"tokens": required(_ids())}


async def tokenize(http: Request) -> Response:
    """The ids of a text, or of a conversation as the template writes it."""
    s, given = _service(http), read(await bodies.parsed(http), TOKENIZE)
    if ("content" in given) == ("messages" in given):
        raise ApiError(400, "give either content or messages", param="content")
    try:
        if "messages" in given:
            if s.chat is None:
                raise ApiError(400, f"{s.name} has no chat template", param="messages")
            ids = s.chat.encode(given["messages"])
        else:
            bos = None if given.get("add_special", True) else False
            ids = s.tokenizer.encode(given["content"], bos=bos)
    except TerrazzoError as error:
        raise of_error(error) from None
    pieces = [s.tokenizer.piece(i).decode("utf-8", "replace") for i in ids]
    return whole({"tokens": ids, **({"pieces": pieces} if given.get("with_pieces") else {})})


async def detokenize(http: Request) -> Response:
    s, given = _service(http), read(await bodies.parsed(http), DETOKENIZE)
    try:
        return whole({"content": s.tokenizer.decode(given["tokens"], skip_special=False)})
    except TerrazzoError as error:
        raise of_error(error) from None


async def health(http: Request) -> Response:
    """200 while requests are taken, 503 while the engine loads or the server drains."""
    s = _service(http)
    state = "draining" if s.draining else "ok" if s.supervisor.ready else "loading"
    return whole({"status": state}, 200 if state == "ok" else 503)


async def metrics(http: Request) -> Response:
    s = _service(http)
    text = s.metrics.text(await _stats(s), s.supervisor.restarts)
    return Response(text, media_type="text/plain; version=0.0.4")


async def engine(http: Request) -> Response:
    """The engine's state, for the page. With ?check=1 also `books`: what is wrong with those of
    blocks and requests, "" if they agree, null while there is no engine to ask."""
    s = _service(http)
    stats = await _stats(s)
    figures = dataclasses.asdict(stats) if dataclasses.is_dataclass(stats) else {}  # type: ignore[arg-type]
    state = {"model": s.name, "ready": s.supervisor.ready, "facts": s.facts,
             "restarts": s.supervisor.restarts, "stats": figures}  # fmt: skip
    if http.query_params.get("check") == "1":
        state["books"] = await _books(s)
    return whole(state)


async def _books(s: Service) -> str | None:
    try:
        return await s.supervisor.check()
    except TerrazzoError:
        return None


async def _stats(s: Service) -> Any:
    try:
        return await s.supervisor.stats()
    except TerrazzoError:
        return None
