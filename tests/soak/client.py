"""One request over a connection of its own, which is cut where the request says."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from soak.traffic import Ask

DONE = "[DONE]"


@dataclass
class Reply:
    """`status` 0: the client hung up before one came. `events`: of a stream, parsed. `ended`: the
    answer is whole."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    events: list[Any] = field(default_factory=list)
    ended: bool = False
    seconds: float = 0.0

    @property
    def error(self) -> dict[str, Any] | None:
        """OpenAI's error object, of the body or of a stream that ended with one."""
        values = self.events[-1:] if self.events else [json.loads(self.body)] if self.body else []
        return values[0].get("error") if values and isinstance(values[0], dict) else None


async def send(port: int, ask: Ask) -> Reply:
    """Raises OSError, EOFError, ValueError where the server does not keep to HTTP or SSE."""
    reply, start = Reply(), time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        await _exchange(reader, writer, ask, reply)
    finally:
        if ask.cut is not None and len(ask.body or b"") % 2:
            writer.transport.abort()  # a reset in place of an orderly end
        writer.close()
        reply.seconds = time.perf_counter() - start
    return reply


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ask: Ask, reply: Reply
) -> None:
    body = ask.body or b""
    head = (
        f"{'GET' if ask.body is None else 'POST'} {ask.path} HTTP/1.1\r\nHost: soak\r\n"
        f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    )
    where, amount = ask.cut or ("", 0.0)
    part = body[: int(amount * len(body))] if where == "body" else body
    writer.write(head.encode() + b"\r\n" + part)
    if where == "body":
        await writer.drain()
        return
    if where == "sent":
        await asyncio.sleep(amount)
        return
    reply.status = int((await _line(reader)).split()[1])
    while line := (await _line(reader)).strip():
        name, _, value = line.decode("latin-1").partition(":")
        reply.headers[name.lower()] = value.strip()
    if "text/event-stream" in reply.headers.get("content-type", ""):
        await _events(reader, reply, int(amount) if where == "events" else None)
    elif where != "events" or reply.status != 200:
        reply.body = await reader.readexactly(int(reply.headers["content-length"]))
        reply.ended = True


async def _line(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the connection ended in the middle of a line")
    return line


async def _events(reader: asyncio.StreamReader, reply: Reply, most: int | None) -> None:
    """Server-sent events in HTTP's chunks, up to [DONE] and the last chunk."""
    held = b""
    while size := int(await _line(reader), 16):
        held += await reader.readexactly(size)
        await _line(reader)
        *whole, held = held.split(b"\n\n")
        for one in whole:
            text = one.decode().removeprefix("data: ")
            if reply.ended:
                raise ValueError(f"an event after {DONE}: {text[:80]!r}")
            if text == DONE:
                reply.ended = True
            else:
                reply.events.append(json.loads(text))
            if most is not None and len(reply.events) >= most:
                return
    if held or not reply.ended:
        raise ValueError(f"a stream without {DONE} at its end")
