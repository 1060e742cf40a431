"""Messages between the server and its engine: length-prefixed pickles over a socket pair.

Both ends are ours and the pair has no name, so nobody else can write to it. A message is a tuple
whose first item says what it is.

Server to engine: ("add", Request), ("abort", id, choice or None), ("stats", number),
("check", number).
Engine to server: ("phase", name, seconds), ("ready", facts), ("failed", class, what, remedy),
("events", [Event, ...]), ("stats", number, figures), ("check", number, what is wrong or "").
"""

from __future__ import annotations

import asyncio
import pickle
import select
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("<Q")
Message = tuple[Any, ...]


def frame(message: Message) -> bytes:
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Link:
    """The engine's end: blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._held = bytearray()

    def send(self, message: Message) -> None:
        """Raises OSError when the server is gone."""
        self._sock.sendall(frame(message))

    def receive(self, wait: bool) -> list[Message]:
        """What has arrived, at least one message if `wait`. Raises EOFError when the server is
        gone."""
        while True:
            while select.select([self._sock], [], [], 0)[0]:
                part = self._sock.recv(1 << 20)
                if not part:
                    raise EOFError
                self._held += part
            out = list(self._whole())
            if out or not wait:
                return out
            select.select([self._sock], [], [])

    def _whole(self) -> list[Message]:
        out: list[Message] = []
        at = 0
        while len(self._held) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._held, at)
            end = at + _LENGTH.size + size
            if len(self._held) < end:
                break
            out.append(pickle.loads(memoryview(self._held)[at + _LENGTH.size : end]))
            at = end
        del self._held[:at]
        return out


async def read(reader: asyncio.StreamReader) -> Message:
    """The server's end: the next message. Raises EOFError when the engine is gone."""
    try:
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return pickle.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError from error
