"""`terrazzo generate MODEL [PROMPT]`: streams the completion of a prompt."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from terrazzo.cli import options, terminal
from terrazzo.errors import OptionError

if TYPE_CHECKING:
    from terrazzo.engine.model import Model

Prompt = Annotated[
    str | None, typer.Argument(metavar="PROMPT", help="The text to go on from; -: read from stdin.")
]


def command(
    model: options.ModelName,
    prompt: Prompt = None,
    max_tokens: options.MaxTokens = 128,
    temperature: options.Temperature = 0.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    repeat_penalty: options.RepeatPenalty = 1.0,
    seed: options.Seed = 0,
    stop: options.Stop = None,
    threads: options.Threads = None,
    context: options.Context = None,
    activations: options.Activations = "int8",
    strict: options.Strict = False,
    json: options.Json = False,
) -> None:
    """Write the completion of a prompt: text to stdout as it comes, figures to stderr at the
    end."""
    text = _prompt(prompt)
    from terrazzo.engine.options import Sampling

    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        repeat_penalty=repeat_penalty, seed=seed,
    )  # fmt: skip
    pieces: list[str] = []
    first = 0.0
    with options.checked(strict):
        with terminal.progress(f"loading {model}") as line:
            m = options.load(model, activations, threads, context, line)
        for piece in m.generate(text, max_tokens, stop=stop or (), sampling=sampling):
            first = first or process_age()
            pieces.append(piece)
            if not json:
                print(piece, end="", flush=True)
    if json:
        terminal.print_json({"text": "".join(pieces), **figures(m, first)})
        return
    print(flush=True)
    terminal.note(summary(m, first))


def _prompt(given: str | None) -> str:
    if given is None:
        raise OptionError(
            "there is no prompt", "give one after the model, or - to read it from standard input"
        )
    if given != "-":
        return given
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"standard input is not UTF-8 at byte {error.start:,}") from None


def process_age() -> float:
    """Seconds since this process began, to a hundredth: what a person waited, imports included."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def figures(m: Model, first: float) -> dict[str, float | int | str]:
    """What --json gives. `first`: process_age() at the first piece of text."""
    from terrazzo.engine.model import peak_rss_bytes

    s = m.stats
    return {
        "prompt_tokens": s.prompt_tokens,
        "tokens": s.tokens,
        "stop": s.stop,
        "prefill_tokens_per_s": s.prefill_tokens_per_s,
        "decode_tokens_per_s": s.decode_tokens_per_s,
        "load_s": m.times.open + m.times.weights,
        "compile_s": m.times.compile,
        "first_token_s": s.first_token_s,
        "process_to_first_token_s": first,
        "peak_rss_bytes": peak_rss_bytes(),
    }


def summary(m: Model, first: float) -> str:
    """One line for a person."""
    from terrazzo.engine.model import peak_rss_bytes

    s = m.stats
    return (
        f"{s.tokens} tokens at {s.decode_tokens_per_s:.1f} tokens/s ({s.stop})"
        f" · prompt {s.prompt_tokens} tokens at {s.prefill_tokens_per_s:.0f} tokens/s"
        f" · first token after {first:.2f} s"
        f" · memory {terminal.nbytes(peak_rss_bytes())} at most"
    )
