"""`terrazzo kv MODEL`: what int8 keys and values would cost, measured layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from terrazzo.cli import options, terminal
from terrazzo.errors import OptionError

FEWEST = 16  # tokens that say something


def command(
    model: options.ModelName,
    text: Annotated[
        Path | None, typer.Option(help="A file to measure on; default: what the model writes.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=FEWEST, help="Tokens of it to take.")] = 128,
    threads: options.Threads = None,
    activations: options.Activations = "f32",
    json: options.Json = False,
) -> None:
    """Show how far logits move if keys and values are held in 8 bits: in each layer, in all, and in
    all but the first four (auto).

    Activations are f32, so that nothing else moves them: rounded to int8, any change at all makes
    some of them round the other way."""
    from dataclasses import asdict

    from terrazzo.engine.kv_error import kv_errors

    with terminal.progress(f"loading {model}") as line:
        m = options.load(model, activations, threads, None, line)
        if text is None:
            start = m.tokenizer.bos_id if m.tokenizer.bos_id is not None else 0
            ids = [start, *m.generate_ids([start], tokens - 1, ignore_eos=True, temperature=1.0)]
        else:
            ids = m.tokenizer.encode(_read(text))[:tokens]
            if len(ids) < FEWEST:
                raise OptionError(f"{text} has {len(ids)} tokens", f"give at least {FEWEST}")
        rows = list(kv_errors(m, ids, line.report_count))
    if json:
        terminal.print_json({"tokens": len(ids), "rows": [asdict(r) for r in rows]})
        return
    base = rows[0]
    terminal.table(
        ("INT8 IN", "BYTES A TOKEN", "LARGEST CHANGE", "MEAN DIVERGENCE", "PERPLEXITY"),
        [
            (
                r.what if not r.what.isdigit() else f"layer {r.what}", f"{r.bytes:,.0f}",
                f"{r.worst:.3f}", f"{r.divergence:.5f}",
                f"{r.perplexity:.3f} ({r.perplexity / base.perplexity - 1:+.2%})",
            )
            for r in rows
        ],
        right=(1, 2, 3, 4),
    )  # fmt: skip
    terminal.note(f"{len(ids)} tokens; changes are of log probabilities, divergence is in nats")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{path} is not text in UTF-8") from None
