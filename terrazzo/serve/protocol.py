"""uvicorn's HTTP protocol with a bound on how long a request's head may take to arrive."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 20.0
READ_S = 60.0


class Protocol(HttpToolsProtocol):
    """A connection that has not sent a whole head in HEAD_S is closed (slow loris), and so is one
    that does not read its answer for READ_S."""

    _head: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

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

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._read()
        super().connection_lost(exc)

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _forget(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _late(self) -> None:
        self._head = None
        if not self.transport.is_closing():
            self.transport.close()
