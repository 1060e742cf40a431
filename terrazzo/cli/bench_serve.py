"""`terrazzo bench-serve URL`: an OpenAI server under load: throughput, first token, gaps."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli import options, terminal
from terrazzo.errors import OptionError

if TYPE_CHECKING:
    from terrazzo.serve.load import Run

Url = Annotated[str, typer.Argument(metavar="URL", help="Such as http://127.0.0.1:8000.")]
ModelOption = Annotated[str, typer.Option(help="The model's name at the server.")]
Streams = Annotated[str, typer.Option(help="Requests at a time, one run each: 1,4,16.")]
Rates = Annotated[str, typer.Option(help="Instead: requests a second, at random times: 0.5,1,2.")]
Requests = Annotated[int, typer.Option(min=1, help="Requests of a run; more than streams.")]
Shared = Annotated[int, typer.Option(min=0, help="Tokens of the system message that all share.")]
Plot = Annotated[Path | None, typer.Option(help="Write a picture (SVG) of the runs here.")]


def command(
    url: Url,
    model: ModelOption = "smollm2",
    streams: Streams = "1,4,16",
    rates: Rates = "",
    requests: Requests = 32,
    shared: Shared = 500,
    seed: options.Seed = 0,
    api_key: Annotated[str, typer.Option(help="The server's key.")] = "",
    plot: Plot = None,
    json: options.Json = False,
) -> None:
    """Send the same traffic that anybody with this seed sends: prompts of 50 to 800 tokens behind a
    shared system message, answers of 32 to 256, greedy, and print what the client saw."""
    from terrazzo.serve.load import Traffic, run

    loads = _numbers("rates", rates) or _numbers("streams", streams)
    runs: list[Run] = []
    with terminal.progress(url) as line:
        for n, load in enumerate(loads):
            line.report_count(f"{url} at {load:g}", n, len(loads))
            t = Traffic(requests, int(load), load if rates else None, shared, seed=seed)
            runs.append(run(url, model, t, api_key))
    if plot is not None:
        plot.write_text(picture(loads, runs, "requests/s" if rates else "streams"))
    if json:
        terminal.print_json([row(r) for r in runs])
        return
    ms = [tuple(f"{1e3 * x:,.0f}" for x in r.first_s) for r in runs]
    gaps = [tuple(f"{1e3 * x:,.1f}" for x in r.gap_s) for r in runs]
    terminal.table(
        ("RATE" if rates else "STREAMS", "TOKENS/S", "FIRST TOKEN MS 50 90 99 %",
         "BETWEEN MS 50 90 99 %", "FAILED", "CLIENT CPU"),
        [
            (f"{load:g}", f"{r.tokens_per_s:,.0f}", " ".join(a), " ".join(b), r.failed,
             f"{r.client_cpu:.0%}")
            for load, r, a, b in zip(loads, runs, ms, gaps, strict=True)
        ],
        right=(0, 1, 2, 3, 4, 5),
    )  # fmt: skip
    for error in {e for r in runs for e in r.errors}:
        terminal.note(f"failed: {error[:300]}")


def _numbers(name: str, text: str) -> list[float]:
    try:
        found = [float(x) for x in text.split(",") if x.strip()]
    except ValueError:
        found = [-1.0]
    if any(x <= 0 for x in found):
        raise OptionError(f"{name} is {text!r}", "give positive numbers, such as 1,4,16")
    return found


def row(r: Run) -> dict[str, Any]:
    return {**asdict(r), "tokens_per_s": r.tokens_per_s}


def picture(loads: list[float], runs: list[Run], unit: str) -> str:
    """Two charts as SVG: tokens a second, and time to the first token (50, 99 %), over the load."""
    charts = [
        ("tokens/s", [("all answers", [r.tokens_per_s for r in runs])]),
        ("ms to the first token", [("50 %", [1e3 * r.first_s[0] for r in runs]),
                                   ("99 %", [1e3 * r.first_s[2] for r in runs])]),
        ("ms between tokens", [("50 %", [1e3 * r.gap_s[0] for r in runs]),
                               ("99 %", [1e3 * r.gap_s[2] for r in runs])]),
    ]  # fmt: skip
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="960" height="260" font-size="12"'
           ' font-family="sans-serif"><rect width="960" height="260" fill="#fff"/>']  # fmt: skip
    colours = ("#a3461f", "#2f6f8f")
    for n, (title, lines) in enumerate(charts):
        left, most = 50 + 315 * n, max(max(v) for _, v in lines) or 1.0
        out.append(f'<text x="{left}" y="18" font-weight="bold">{title}</text>'
                   f'<path d="M{left} 30V220H{left + 250}" fill="none" stroke="#888"/>'
                   f'<text x="{left - 6}" y="38" text-anchor="end">{most:,.0f}</text>'
                   f'<text x="{left + 250}" y="250" text-anchor="end">{unit}</text>')  # fmt: skip
        xs = [left + 15 + 220 * i / max(1, len(loads) - 1) for i in range(len(loads))]
        out += [f'<text x="{x:.0f}" y="235" text-anchor="middle">{load:g}</text>'
                for x, load in zip(xs, loads, strict=True)]  # fmt: skip
        for (name, values), colour in zip(lines, colours, strict=False):
            points = " ".join(f"{x:.1f},{220 - 185 * v / most:.1f}"
                              for x, v in zip(xs, values, strict=True))  # fmt: skip
            y = 220 - 185 * values[-1] / most
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}"'
                       ' stroke-width="2"/>'
                       f'<text x="{xs[-1] + 4:.0f}" y="{y:.0f}" fill="{colour}">{name}'
                       '</text>')  # fmt: skip
    return "\n".join([*out, "</svg>"])
