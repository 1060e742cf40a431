"""Answers on the wire: whole or as server-sent events, and only as long as somebody listens."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from terrazzo.serve.api.errors import ApiError

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


def dumps(value: Any) -> bytes:
    """Compact JSON in ASCII."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def event(value: Any) -> bytes:
    return b"data: " + dumps(value) + b"\n\n"


def whole(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dumps(value), status, headers, media_type="application/json")


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """What `work` gives; it is cancelled, and ClientGone raised, when the client goes away."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        for t in (task, watch):
            t.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Sends events as they come. `parts` is closed when the client goes away. An ApiError on the
    way becomes an event with the error, then the stream ends."""

    def __init__(self, parts: AsyncIterator[bytes], finished: Callable[[int], None]) -> None:
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._parts, self._finished = parts, finished
        if "content-length" in self.headers:
            del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        status = 200
        try:
            await while_connected(receive, self._send(send))
        except ClientGone:
            status = 499
        finally:
            self._finished(status)

    async def _send(self, send: Send) -> None:
        try:
            async for part in self._parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except ApiError as error:
            part = event(error.body) + DONE
            await send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            await self._parts.aclose()  # type: ignore[attr-defined]
        await send({"type": "http.response.body", "body": b"", "more_body": False})
