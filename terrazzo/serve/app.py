"""The server as an ASGI application: routes, errors in OpenAI's form, key, origins, counts."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from terrazzo.serve.api import chat, completions, description, others
from terrazzo.serve.api.errors import ApiError
from terrazzo.serve.api.respond import ClientGone, whole
from terrazzo.serve.page import text as page_text
from terrazzo.serve.service import Service

log = logging.getLogger(__name__)
OPEN_PATHS = ("/", "/health")  # without a key
Handler = Callable[[Request], Awaitable[Response]]


def make(service: Service) -> ASGIApp:
    routes = [
        Route("/v1/chat/completions", _counted(chat.handle), methods=["POST"]),
        Route("/v1/completions", _counted(completions.handle), methods=["POST"]),
        Route("/v1/embeddings", _counted(others.embeddings), methods=["POST"]),
        Route("/v1/models", _counted(others.models)),
        Route("/v1/models/{model:path}", _counted(others.model)),
        Route("/tokenize", _counted(others.tokenize), methods=["POST"]),
        Route("/detokenize", _counted(others.detokenize), methods=["POST"]),
        Route("/health", others.health),
        Route("/metrics", others.metrics),
        Route("/engine", others.engine),
        Route("/openapi.json", description.handle),
        Route("/", _page),
    ]
    app = Starlette(routes=routes, exception_handlers={
        ApiError: _refuse, HTTPException: _http_error, Exception: _defect,
    })  # type: ignore[dict-item] # fmt: skip
    app.state.service = service
    return Guard(app, service)


async def _page(http: Request) -> Response:
    return HTMLResponse(page_text(), headers={"Cache-Control": "no-cache"})


def _counted(handler: Handler) -> Handler:
    """Counts a request by its endpoint and its answer's status; refuses while the server drains."""

    async def handle(http: Request) -> Response:
        service: Service = http.app.state.service
        path = http.scope["route"].path

        def finished(status: int) -> None:
            service.metrics.requests.labels(path, str(status)).inc()

        http.state.finished = finished
        if service.draining:
            finished(503)
            raise ApiError(503, "the server is shutting down", code="draining",
                           headers={"Retry-After": "5"})  # fmt: skip
        try:
            response = await handler(http)
        except ApiError as error:
            finished(error.status)
            raise
        except ClientGone:
            finished(499)
            return Response(status_code=499)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            return response  # it tells when it is over
        finished(response.status_code)
        return response

    return handle


async def _refuse(http: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return whole(error.body, error.status, error.headers)


async def _http_error(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = {404: f"there is nothing at {http.url.path[:200]}",
            405: f"{http.method} is not allowed at {http.url.path[:200]}"}  # fmt: skip
    known = ApiError(error.status_code, what.get(error.status_code, str(error.detail)))
    return whole(known.body, known.status, dict(error.headers or {}))


async def _defect(http: Request, error: Exception) -> Response:
    log.error("a defect of the server at %s", http.url.path, exc_info=error)
    return whole(ApiError(500, "a defect of the server; its log has more").body, 500)


class Guard:
    """In front of everything: the key and the origins allowed."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        cors = self.service.cors
        if cors is not None and scope["method"] == "OPTIONS":
            allowed = {"Access-Control-Allow-Origin": cors, "Access-Control-Allow-Headers": "*",
                       "Access-Control-Allow-Methods": "GET, POST"}  # fmt: skip
            await Response(status_code=204, headers=allowed)(scope, receive, send)
            return
        if not self._may(request):
            error = ApiError(401, "the key is missing or wrong: send Authorization: Bearer KEY",
                             code="invalid_api_key")  # fmt: skip
            await whole(error.body, 401)(scope, receive, send)
            return

        async def with_origin(message) -> None:  # noqa: ANN001
            if cors is not None and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []),
                                      (b"access-control-allow-origin", cors.encode())]  # fmt: skip
            await send(message)

        await self.app(scope, receive, with_origin)

    def _may(self, request: Request) -> bool:
        key = self.service.api_key
        if key is None or request.url.path in OPEN_PATHS:
            return True
        given = request.headers.get("authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {key}".encode())
