"""`terrazzo pull NAME`: fetches a model that is known by name, and checks it."""

from __future__ import annotations

from typing import Annotated

import typer

from terrazzo.cli import options, terminal

Name = Annotated[str, typer.Argument(metavar="NAME", help="A known model, such as smollm2.")]


def command(name: Name, json: options.Json = False) -> None:
    """Fetch a model. It is verified by its hash; an interrupted pull leaves nothing behind."""
    from terrazzo.models import store

    with terminal.progress(f"pulling {name}") as line:
        path = store.pull(name, lambda done, total: line.report(f"pulling {name}", done, total))
    if json:
        terminal.print_json({"name": name, "path": str(path), "bytes": path.stat().st_size})
    else:
        terminal.note(f"{name} is at {path} ({terminal.nbytes(path.stat().st_size)}, verified)")
