"""`terrazzo models`: the model files in the models folder, and what they are."""

from __future__ import annotations

from terrazzo.cli import options, terminal


def command(json: options.Json = False) -> None:
    """List the models that are here: architecture, parameters, quantisation, bytes, context."""
    from terrazzo.models import store

    entries = store.list_models()
    if json:
        terminal.print_json([
            {
                "name": e.name,
                "path": str(e.path),
                "bytes": e.nbytes,
                "architecture": e.config.architecture if e.config else None,
                "parameters": e.config.parameters if e.config else None,
                "quantisation": e.config.quantisation if e.config else None,
                "context": e.config.context_length if e.config else None,
                "problem": e.problem or None,
            }
            for e in entries
        ])  # fmt: skip
        return
    here = {e.name for e in entries}
    if entries:
        terminal.table(
            ("NAME", "ARCHITECTURE", "PARAMETERS", "QUANTISATION", "BYTES", "CONTEXT"),
            [
                (e.name, c.architecture, f"{c.parameters:,}", c.quantisation, f"{e.nbytes:,}",
                 f"{c.context_length:,}")
                if (c := e.config)
                else (e.name, "-", "-", "-", f"{e.nbytes:,}", "-")
                for e in entries
            ],
            right=(2, 4, 5),
        )  # fmt: skip
    for e in entries:
        if e.problem:
            terminal.note(f"{e.name}: {e.problem}")
    for name in store.KNOWN.keys() - here:
        terminal.note(f"not here: {name} (`terrazzo pull {name}` fetches it)")
    terminal.note(f"folder: {store.models_folder()}")
