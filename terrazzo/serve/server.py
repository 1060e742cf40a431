"""`terrazzo serve`: from the command's options to a server that answers, and to its end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from terrazzo.errors import TerrazzoError
from terrazzo.serve import port
from terrazzo.serve.supervisor import Supervisor

if TYPE_CHECKING:
    import socket

    from terrazzo.serve.service import Service

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
DRAIN_S = 10.0  # for the answers that are under way when the server is told to end
Log = Callable[[str], None]


@dataclass(frozen=True)
class ServeOptions:
    """`engine`: EngineOptions' fields. `name`: the model's, as clients give it."""

    model: str
    name: str
    host: str
    port: int
    engine: dict[str, Any]
    api_key: str | None = None
    cors: str | None = None
    drain_s: float = DRAIN_S


def serve(options: ServeOptions, log: Log) -> None:
    """Serves until SIGINT or SIGTERM; no process is left then. Raises TerrazzoError for a port that
    is taken, a model that cannot be loaded and the like."""
    began = time.perf_counter()
    _bound_heap()
    sock = port.bind(options.host, options.port)
    supervisor = Supervisor(options.engine, log)
    supervisor.start()  # the engine loads while this process imports
    try:
        service = _service(options, supervisor)
        log(f"server: imports, tokenizer, template {time.perf_counter() - began:.2f} s")
        asyncio.run(_run(options, service, sock, log, began))
    finally:
        supervisor.stop()
        sock.close()


def _bound_heap() -> None:
    """glibc raises the size from which it maps memory apart as large blocks are freed; after a few
    large requests such blocks come from the heap, whose holes then grow without end (a word of
    200,000 letters: 3 MB a request). Elsewhere there is no such call."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 128 << 10)
        mallopt(M_TRIM_THRESHOLD, 128 << 10)


def _service(options: ServeOptions, supervisor: Supervisor) -> Service:
    from terrazzo.models import store
    from terrazzo.models.chat import ChatTemplate
    from terrazzo.models.gguf import GGUF
    from terrazzo.models.tokenizer import Tokenizer
    from terrazzo.serve.metrics import Metrics
    from terrazzo.serve.schemas import SchemaChecker
    from terrazzo.serve.service import Service

    gguf = GGUF.open(store.resolve(options.model))
    tokenizer = Tokenizer.from_gguf(gguf)
    has_template = "tokenizer.chat_template" in gguf.metadata
    chat = ChatTemplate.from_gguf(gguf, tokenizer) if has_template else None
    gguf.release_all()
    return Service(options.name, supervisor, tokenizer, chat, SchemaChecker(), Metrics(),
                   options.api_key, options.cors)  # fmt: skip


async def _run(
    options: ServeOptions, service: Service, sock: socket.socket, log: Log, began: float
) -> None:
    import uvicorn

    from terrazzo.serve import app
    from terrazzo.serve.protocol import Protocol

    config = uvicorn.Config(
        app.make(service), http=Protocol, ws="none", lifespan="off", log_config=None,
        access_log=False, server_header=False, timeout_keep_alive=30, backlog=1024,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    engine = asyncio.create_task(service.supervisor.run())
    http = asyncio.create_task(server.serve([sock]))
    ready = asyncio.create_task(_when_ready(options, service, log, began))
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    asked = asyncio.create_task(told.wait())
    try:
        await asyncio.wait((engine, http, asked), return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            await _drain(options, service, told, log)
        elif engine.done():
            engine.result()  # why it ended for good
    finally:
        for task in (ready, asked):
            task.cancel()
        server.should_exit = True
        with contextlib.suppress(Exception):
            await asyncio.wait_for(http, 5)
        service.supervisor.stop()
        await service.schemas.close()
        with contextlib.suppress(TerrazzoError, asyncio.CancelledError):
            engine.cancel()
            await engine


async def _when_ready(options: ServeOptions, service: Service, log: Log, began: float) -> None:
    while not service.supervisor.ready:
        await asyncio.sleep(0.005)
    host = f"[{options.host}]" if ":" in options.host else options.host
    log(
        f"ready after {time.perf_counter() - began:.2f} s: http://{host}:{options.port}/"
        f" (model {service.name}, {service.context:,} tokens of context,"
        f" process {os.getpid()})"
    )


async def _drain(options: ServeOptions, service: Service, told: asyncio.Event, log: Log) -> None:
    """Lets answers that are under way come to their end, for a while; a second signal cuts it
    short."""
    service.draining = True
    held = service.supervisor.held
    log(f"ending: {held} request(s) are under way, {options.drain_s:g} s at most")
    told.clear()
    end = time.monotonic() + options.drain_s
    while service.supervisor.held and time.monotonic() < end and not told.is_set():
        await asyncio.sleep(0.02)


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
