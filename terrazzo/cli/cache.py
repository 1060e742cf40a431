"""`terrazzo cache list | clear`: what is kept on disk to start faster. Models are no cache."""

from __future__ import annotations

import time

import typer

from terrazzo.cli import options, terminal

commands = typer.Typer(help="Look at the cache of machine code and repacked weights, or empty it.")


@commands.command("list")
def list_(json: options.Json = False) -> None:
    """What is cached: kinds, files, bytes."""
    from terrazzo.targets.cpu import cachefile

    found = cachefile.entries()
    if json:
        terminal.print_json(
            {
                "folder": str(cachefile.root()),
                "entries": [
                    {"kind": e.kind, "name": e.name, "bytes": e.size, "used": e.used} for e in found
                ],
            }
        )
        return
    rows = []
    for kind in sorted({e.kind for e in found}):
        of = [e for e in found if e.kind == kind]
        last = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(e.used for e in of)))
        rows.append((kind, len(of), terminal.nbytes(sum(e.size for e in of)), last))
    if rows:
        terminal.table(("KIND", "FILES", "SIZE", "LAST USED"), rows, right=(1, 2))
    else:
        terminal.note("the cache is empty")
    terminal.note(f"folder: {cachefile.root()}")


@commands.command()
def clear(json: options.Json = False) -> None:
    """Remove what is cached. Models stay."""
    from terrazzo.targets.cpu import cachefile

    files, size = cachefile.clear()
    if json:
        terminal.print_json({"files": files, "bytes": size})
    else:
        terminal.note(f"removed {files} files, {terminal.nbytes(size)}")
