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
Memory = Annotated[
    str | None,
    typer.Option(help="Bytes to stay within, such as 2GiB; sets the number of KV blocks."),
]
Draft = Annotated[
    str,
    typer.Option(
        metavar="lookup|off|MODEL",
        help="Who guesses at next tokens: what followed before in the text, nobody, or a smaller"
        " model. Answers stay the same.",
    ),
]
Name = Annotated[str | None, typer.Option(help="The model's name for clients; default: MODEL's.")]


def command(
    model: options.ModelName,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key: Key = None,
    context: options.Context = None,
    parallel: Parallel = 16,
    kv: KV = "f16",
    memory: Memory = None,
    draft: Draft = "lookup",
    waiting: Waiting = 256,
    threads: options.Threads = None,
    name: Name = None,
    cors: Cors = None,
) -> None:
    """Serve a model to OpenAI's clients and, at /, to a browser, until Ctrl-C or SIGTERM."""
    from terrazzo.serve.server import ServeOptions, serve

    blocks = None
    if memory is not None:
        context, blocks = _planned(model, memory, context, parallel, kv, threads, draft)
    engine = {"model": model, "context": context, "parallel": parallel, "kv": kv,
              "threads": threads, "waiting": waiting, "blocks": blocks,
              "draft": None if draft == "off" else draft}  # fmt: skip
    serve(
        ServeOptions(model, name or Path(model).stem, host, port, engine, api_key, cors),
        terminal.note,
    )


def _planned(
    model: str, memory: str, context: int | None, parallel: int, kv: str, threads: int | None,
    draft: str,
) -> tuple[int, int]:  # fmt: skip
    """Context and number of KV blocks that stay within `memory`, all processes counted. Raises
    MemoryShortage if not even one request of the whole context does."""
    from terrazzo.engine.program import program_bytes, small

    measured = program_bytes("terrazzo.engine.engine", "terrazzo.serve.app")
    with measured as programs, small():
        from terrazzo.cli.fit import parse_bytes
        from terrazzo.engine.memory import Planner, Wanted, mib
        from terrazzo.models import outline
        from terrazzo.models.llama import LOGIT_ROWS
        from terrazzo.runtime import threads as thread_count

        budget, found = parse_bytes(memory), outline.read(model, None)
        wanted = Wanted(
            context, parallel, kv,  # pyright: ignore[reportArgumentType]
            rows=parallel + LOGIT_ROWS, threads=threads or thread_count.default_threads(),
        )  # fmt: skip
        guesser = None if draft in ("lookup", "off") else outline.read(draft, None)
        plan = Planner(found, programs(), True, guesser).plan(wanted, budget)
    plan.check(found.config.name)
    terminal.note(
        f"memory: {plan.blocks:,} KV blocks, {mib(plan.used)} of {mib(plan.memory)} at most"
    )
    return plan.context, plan.blocks
