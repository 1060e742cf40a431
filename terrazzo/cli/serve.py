"""`terrazzo serve MODEL`: an OpenAI server, and a page to chat on and to watch the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from terrazzo.cli import options, terminal

Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all of this machine's.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")]
Key = Annotated[
    str | None, typer.Option(envvar="TERRAZZO_API_KEY", help="What clients must send as their key.")
]
Cors = Annotated[str | None, typer.Option(help="Origin whose pages may call; *: any.")]
Parallel = Annotated[int, typer.Option(min=1, max=256, help="Sequences that run at a time.")]
Waiting = Annotated[int, typer.Option(min=0, help="Answers that may wait; more get a 429.")]
KV = Annotated[str, typer.Option(metavar="f16|int8|auto", help="How keys and values are held.")]
Name = Annotated[str | None, typer.Option(help="The model's name for clients; default: MODEL's.")]


def command(
    model: options.ModelName,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: Key = None,
    context: options.Context = None,
    parallel: Parallel = 16,
    kv: KV = "f16",
    waiting: Waiting = 256,
    threads: options.Threads = None,
    name: Name = None,
    cors: Cors = None,
) -> None:
    """Serve a model to OpenAI's clients and, at /, to a browser, until Ctrl-C or SIGTERM."""
    from terrazzo.serve.server import ServeOptions, serve

    engine = {"model": model, "context": context, "parallel": parallel, "kv": kv,
              "threads": threads, "waiting": waiting}  # fmt: skip
    serve(
        ServeOptions(model, name or Path(model).stem, host, port, engine, api_key, cors),
        terminal.note,
    )
