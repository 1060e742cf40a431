"""`terrazzo fit MODEL`: what a model and its requests would take of memory, before it is loaded."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli import options, terminal
from terrazzo.errors import OptionError

if TYPE_CHECKING:
    from terrazzo.engine.memory import MemoryPlan, Planner

Name = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="GGUF file, a name such as smollm2, or a config.json (or its folder)."
    ),
]
Memory = Annotated[
    str | None, typer.Option(help="Bytes to stay within, such as 2GiB; default: what is available.")
]
Parallel = Annotated[int, typer.Option(help="Requests that run at the same time.")]
KV = Annotated[str, typer.Option(metavar="f16|int8|auto", help="How keys and values are held.")]
Weights = Annotated[
    str | None, typer.Option(help="How a config.json's matrices are to be held: q4_0, q8_0, f16 …")
]
Chip = Annotated[str | None, typer.Option(help="An NPU's memory instead, such as 910b2.")]
Draft = Annotated[
    str | None, typer.Option(metavar="MODEL", help="A smaller model that guesses at next tokens.")
]
StepTokens = Annotated[int, typer.Option(min=1, help="Most tokens of one step.")]


def command(
    model: Name,
    memory: Memory = None,
    context: options.Context = None,
    parallel: Parallel = 16,
    kv: KV = "f16",
    weights: Weights = None,
    chip: Chip = None,
    draft: Draft = None,
    step_tokens: StepTokens = 256,
    threads: options.Threads = None,
    json: options.Json = False,
) -> int:
    """Show what a model takes of memory, and which context and how many requests fit."""
    from terrazzo.engine.memory import Planner, Wanted
    from terrazzo.engine.program import program_bytes
    from terrazzo.models import outline
    from terrazzo.runtime import threads as thread_count

    found = outline.read(model, weights)
    wanted = Wanted(
        context, parallel, kv,  # pyright: ignore[reportArgumentType]
        step_tokens, threads=threads or thread_count.default_threads(),
    )  # fmt: skip
    with program_bytes(*(() if chip else ("terrazzo.engine.engine",))) as program:
        guesser = None if draft is None else outline.read(draft, weights)
        planner = Planner(found, program(), draft=guesser)
    plan = planner.plan(wanted, _budget(memory, chip))
    if json:
        terminal.print_json(as_json(planner, plan))
    else:
        show(planner, plan, chip)
    return 0 if plan.runs else 2


def _budget(memory: str | None, chip: str | None) -> int:
    given = None if memory is None else parse_bytes(memory)
    if chip is not None:
        from terrazzo.targets.davinci.chips import chip as find

        whole = find(chip).hbm_bytes
        return whole if given is None else min(given, whole)
    if given is not None:
        return given
    from terrazzo.runtime.arena import available_memory

    return available_memory()


def parse_bytes(text: str) -> int:
    """ "2GiB", "1.5 GB", "800M" (of 1024²) or a number of bytes. Raises OptionError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B?)\s*", text, re.IGNORECASE)
    if match is None:
        raise OptionError(f"memory is {text!r}", "give a number of bytes, or one such as 2GiB")
    number, unit, rest = match.groups()
    base = 1000 if rest.upper() == "B" and unit else 1024
    size = int(float(number) * base ** " KMGT".index(unit.upper() or " "))
    if size < 1:
        raise OptionError(f"memory is {text!r}", "give more than nothing")
    return size


def as_json(planner: Planner, plan: MemoryPlan) -> dict[str, Any]:
    """All figures, bytes as numbers."""
    return {
        "model": planner.outline.config.name,
        "memory": plan.memory,
        "parts": {p.what: p.bytes for p in plan.parts},
        "used": plan.used,
        "remains": plan.remains,
        "context": plan.context,
        "parallel": plan.wanted.parallel,
        "kv": plan.wanted.kv,
        "blocks": plan.blocks,
        "blocks_wanted": plan.wanted_blocks,
        "block_bytes": plan.block_bytes,
        "runs": plan.runs,
        "fits": plan.fits,
        "choices": [{"parallel": n, "context": size} for n, size in plan.choices],
        "advice": list(plan.advice),
        "wanted": asdict(plan.wanted),
    }


def show(planner: Planner, plan: MemoryPlan, chip: str | None) -> None:
    """The same for a person."""
    from rich.console import Console
    from rich.table import Table

    from terrazzo.engine.memory import mib

    c, w, out = planner.outline.config, plan.wanted, Console(highlight=False)
    table = Table(title=f"{c.name}: {w.parallel} × {plan.context:,} tokens in {mib(plan.memory)}",
                  title_justify="left")  # fmt: skip
    table.add_column("")
    table.add_column("memory", justify="right")
    table.add_column("share", justify="right")
    table.add_column("of", overflow="fold")
    for p in plan.parts:
        table.add_row(p.what, mib(p.bytes), f"{p.bytes / plan.memory:.1%}", p.detail)
    table.add_section()
    table.add_row("remains", mib(plan.remains), f"{plan.remains / plan.memory:.1%}",
                  "missing" if plan.remains < 0 else "")  # fmt: skip
    out.print(table)
    out.print(_verdict(plan))
    if plan.choices:
        sizes = ", ".join(f"{n} × {size:,}" for n, size in plan.choices)
        out.print(f"Largest that fit, requests × tokens of context each: {sizes}.")
    if plan.advice:
        out.print("To change that: " + "; or ".join(plan.advice) + ".")
    if chip:
        out.print(f"{chip}'s device memory only; the host's part is not counted.")


def _verdict(plan: MemoryPlan) -> str:
    if plan.fits:
        return f"It fits: all {plan.wanted.parallel} requests can use the whole context at once."
    if plan.runs:
        return (
            f"It runs, with KV blocks for {plan.blocks / plan.least_blocks:.1f} whole contexts of"
            f" {plan.wanted.parallel}: requests beyond that wait, or are computed again."
        )
    return (
        f"It does not fit: one request of {plan.context:,} tokens needs {plan.least_blocks:,} KV"
        f" blocks, there is room for {plan.blocks:,}."
    )
