"""uvicorn's HTTP protocol with a bound on how long a request's head may take to arrive."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 20.0


class Protocol(HttpToolsProtocol):
    """A connection that has not sent a whole head in HEAD_S is closed (slow loris)."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_S, self._late)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head is None:
            self._head = self.loop.call_later(HEAD_S, self._late)

    def on_headers_complete(self) -> None:
        self._forget()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _forget(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _late(self) -> None:
        self._head = None
        if not self.transport.is_closing():
            self.transport.close()
