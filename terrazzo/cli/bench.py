"""`terrazzo bench MODEL`: how fast a model runs here, and where the time goes.

Prefill and decode are measured apart: prefill of a prompt into an empty cache; decode of tokens
one by one behind a context of `depth` tokens, greedy, the end token ignored. Both hold everything a
user waits for: the step, the choice of the token, the Python around them. What starting costs is
measured on processes of their own.
"""

from __future__ import annotations

import json as json_text
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli import options, roofline_plot, terminal
from terrazzo.errors import OptionError, TerrazzoError

if TYPE_CHECKING:
    from terrazzo.engine.model import Model
    from terrazzo.runtime.recording import Profile

# 19 tokens of the demo model's tokenizer.
START_PROMPT = "The river rose in the night, and by the morning the old bridge was gone, and with"
PROFILES = 41

Prompt = Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")]
Decode = Annotated[int, typer.Option(min=2, help="Tokens to decode.")]
Depth = Annotated[int, typer.Option(min=0, help="Tokens of context before those decoded.")]
Roofline = Annotated[
    bool, typer.Option("--roofline", help="Each kernel against this machine's limits, instead.")
]
Plot = Annotated[Path | None, typer.Option(help="With --roofline: draw it into this SVG file.")]
Runs = Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")]


def command(
    model: options.ModelName,
    prompt: Prompt = 512,
    decode: Decode = 128,
    depth: Depth = 0,
    runs: Runs = 5,
    threads: options.Threads = None,
    activations: options.Activations = "int8",
    roofline: Roofline = False,
    plot: Plot = None,
    json: options.Json = False,
) -> None:
    """Measure a model: tokens per second, start, memory, dispatch, bandwidth, time per kernel."""
    if plot is not None and not roofline:
        raise OptionError("--plot draws what --roofline measures", "give both")
    if roofline:
        show_roofline(model, prompt, depth, threads, activations, json, plot)
        return
    with terminal.progress(f"loading {model}") as line:
        result = measure(model, prompt, decode, depth, runs, threads, activations, line.report)
    terminal.print_json(result) if json else report(result)


def show_roofline(
    model: str, prompt: int, depth: int, threads: int | None, activations: str, json: bool,
    plot: Path | None,
) -> None:  # fmt: skip
    """Every kernel against the machine's limits, instead of the model's figures."""
    from terrazzo.cli import roofline
    from terrazzo.engine import model as engine

    with terminal.progress(f"loading {model}") as line:
        m = engine.load(model, activations=activations, threads=threads, progress=line.report)
        result = roofline.measure(m, prompt, depth, line.report)
    if plot is not None:
        plot.write_text(roofline_plot.plot(result), encoding="utf-8")
    terminal.print_json(result) if json else roofline.report(result)


def measure(
    model: str, prompt: int, decode: int, depth: int, runs: int, threads: int | None,
    activations: str, say: Callable[[str, int, int], None],
) -> dict[str, Any]:  # fmt: skip
    """Everything the command prints. Rates are per second; times in the unit that their names end
    in."""
    from terrazzo.engine import model as engine
    from terrazzo.runtime import machine

    imports = engine.peak_rss_bytes()
    m = engine.load(model, activations=activations, threads=threads, progress=say)
    longest = max(prompt + 1, depth + decode + 2)
    if longest > m.context:
        raise OptionError(
            f"a prompt of {prompt:,} tokens, or {decode:,} after {depth:,}, is more than the"
            f" context of {m.context:,}",
            "choose a smaller --prompt, --depth or --decode",
        )
    rates = {"prefill": [], "decode": []}
    profiles: dict[str, list[Profile]] = {"prefill": [], "decode": []}
    for n in range(runs + 1):  # the first warms up and does not count
        say(f"prefill {n} of {runs}", 0, 0)
        rates["prefill"].append(prefill_rate(m, prompt, n))
    profiles["prefill"] = m.step.recording.profiles(3)
    for n in range(runs + 1):  # the first fills the context too
        say(f"decode {n} of {runs}", 0, 0)
        rates["decode"].append(decode_rate(m, decode, depth, n))
    profiles["decode"] = m.step.recording.profiles(PROFILES)
    peak = engine.peak_rss_bytes()
    barriers = profiles["decode"][0].barriers
    body = _median(p.body_s for p in profiles["decode"])
    floor = machine.dispatch_floor(max(barriers, 1), body, m.threads, PROFILES)
    chunk = (prompt - 1) % m.step.budget.tokens + 1
    moved = bytes_per_token(m, depth + decode // 2)
    say("measuring the bandwidth", 0, 0)
    bandwidth = machine.read_bandwidth(moved, m.threads) * 1e9
    say("starting anew, with nothing cached and with everything", 0, 0)
    cold, warm = starts(m, activations)
    speed = {name: statistics.median(of[1:]) for name, of in rates.items()}
    return {
        "model": m.path,
        "machine": machine.describe().as_dict(),
        "threads": m.threads,
        "activations": activations,
        "prompt": prompt,
        "decode": decode,
        "depth": depth,
        "runs": runs,
        "prefill_tokens_per_s": speed["prefill"],
        "prefill_tokens_per_s_spread": _spread(rates["prefill"][1:]),
        "decode_tokens_per_s": speed["decode"],
        "decode_tokens_per_s_spread": _spread(rates["decode"][1:]),
        "load_s": warm["load_s"],
        "load_cold_s": cold["load_s"],
        "compile_s": cold["compile_s"],
        "compile_cached_s": warm["compile_s"],
        "first_token_s": warm["process_to_first_token_s"],
        "first_token_cold_s": cold["process_to_first_token_s"],
        "first_token_prompt_tokens": warm["prompt_tokens"],
        "peak_rss_bytes": peak,
        "imports_rss_bytes": imports,
        "weight_bytes": m.step.weights.nbytes,
        "kv_bytes": _kv_bytes(m, max(prompt, depth + decode) + 1),
        "arena_bytes": m.step.plan.size,
        "arena_unshared_bytes": m.step.plan.unshared,
        "dispatch_us_per_token": 1e6 * _median(p.dispatch_s for p in profiles["decode"]),
        "dispatch_floor_us_per_token": 1e6 * floor,
        "barriers_per_token": barriers,
        "bytes_per_token": moved,
        "bandwidth_bytes_per_s": bandwidth,
        "bandwidth_share": moved * speed["decode"] / bandwidth,
        "kernels": _kernels(profiles["decode"], profiles["prefill"], chunk),
    }


def prefill_rate(m: Model, tokens: int, run: int) -> float:
    """Tokens/s of a prompt whose beginning no earlier run has shared."""
    m.generate_ids(ids(m, tokens, 2 * run), 1, ignore_eos=True)
    return tokens / m.stats.first_token_s


def decode_rate(m: Model, tokens: int, depth: int, run: int) -> float:
    """Tokens/s behind a context that all runs share, each from a token of its own on."""
    context = ids(m, depth, 1) if depth else []
    m.generate_ids([*context, run % m.config.vocab_size], tokens + 1, ignore_eos=True)
    return m.stats.decode_tokens_per_s


def ids(m: Model, count: int, run: int) -> list[int]:
    import random  # NumPy's own would be 4 MiB more that the measured peak counts

    ids = random.Random(run).choices(range(m.config.vocab_size), k=count)
    ids[0] = run % m.config.vocab_size
    return ids


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _spread(values: list[float]) -> list[float]:
    return [min(values), max(values)]


def _kv_bytes(m: Model, tokens: int) -> int:
    """Keys and values of one sequence."""
    from terrazzo.models.kv_cache import PAGE

    return m.kv_bytes * tokens // (m.step.cache.pages * PAGE)


def bytes_per_token(m: Model, depth: int) -> int:
    """What a decode step at `depth` must read: every matrix once, and the keys and values so far.
    Of a table that is only the embedding a single row is read."""
    weights = m.step.weights
    unread = 0 if m.config.tied_output else weights.embedding.data.nbytes
    return weights.nbytes - unread + _kv_bytes(m, depth)


def _kernels(decode: list[Profile], prefill: list[Profile], chunk: int) -> list[dict[str, Any]]:
    """Time per kernel, longest in decode first. Medians of the profiles."""

    def us(profiles: list[Profile], name: str) -> float:
        return 1e6 * _median(p.by_kernel().get(name, 0.0) for p in profiles)

    launches = Counter(launch.name for launch in decode[0].launches)
    rows = [
        {
            "name": name,
            "launches_per_token": count,
            "decode_us_per_token": us(decode, name),
            "prefill_us_per_token": us(prefill, name) / chunk,
        }
        for name, count in launches.items()
    ]
    return sorted(rows, key=lambda row: -row["decode_us_per_token"])


def starts(m: Model, activations: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures of `generate --json` as a process of its own: with an empty cache, then with a full
    one."""
    with tempfile.TemporaryDirectory(prefix="terrazzo-bench-") as folder:
        command = [
            sys.executable, "-m", "terrazzo", "generate", m.path, START_PROMPT, "--max-tokens", "8",
            "--threads", str(m.threads), "--activations", activations, "--json",
        ]  # fmt: skip
        cold, warm, again = (_start(command, folder) for _ in range(3))
    return cold, min(warm, again, key=lambda run: run["process_to_first_token_s"])


def _start(command: list[str], cache: str) -> dict[str, Any]:
    done = subprocess.run(
        command,
        env={**os.environ, "TERRAZZO_CACHE": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise TerrazzoError(f"starting anew failed: {done.stderr.strip()}")
    return json_text.loads(done.stdout)


def report(r: dict[str, Any]) -> None:
    """The figures as a person reads them."""
    size = terminal.nbytes

    def rate(name: str) -> str:
        low, high = r[f"{name}_tokens_per_s_spread"]
        median = r[f"{name}_tokens_per_s"]
        return f"{median:,.1f} tokens/s ({low:,.1f} to {high:,.1f} in {r['runs']} runs)"

    behind = f", behind {r['depth']:,} tokens" if r["depth"] else ""
    bound = r["imports_rss_bytes"] + 1.15 * r["weight_bytes"] + r["kv_bytes"]
    rows = [
        (
            "machine",
            f"{r['machine']['cpu']}, {r['threads']} threads, {r['activations']} activations",
        ),
        (f"prefill of {r['prompt']}", rate("prefill")),
        (f"decode of {r['decode']}", rate("decode") + behind),
        (
            "load",
            f"{terminal.seconds(r['load_s'])}"
            f" (nothing cached {terminal.seconds(r['load_cold_s'])})",
        ),
        (
            "compile",
            f"{terminal.seconds(r['compile_s'])}, cached {terminal.seconds(r['compile_cached_s'])}",
        ),
        (
            "first token",
            f"{terminal.seconds(r['first_token_s'])} after the start of the process, with"
            f" {r['first_token_prompt_tokens']} prompt tokens (nothing cached"
            f" {terminal.seconds(r['first_token_cold_s'])})",
        ),
        (
            "memory",
            f"{size(r['peak_rss_bytes'])} at most; imports {size(r['imports_rss_bytes'])}"
            f" + 1.15 × weights {size(r['weight_bytes'])} + keys and values {size(r['kv_bytes'])}"
            f" = {size(bound)}",
        ),
        (
            "arena",
            f"{size(r['arena_bytes'])} hold {size(r['arena_unshared_bytes'])} of intermediate"
            " results of a step by sharing",
        ),
        (
            "dispatch",
            f"{r['dispatch_us_per_token']:.0f} µs per token, {r['barriers_per_token']} barriers"
            f" (this machine, in as many equal phases without memory:"
            f" {r['dispatch_floor_us_per_token']:.0f} µs)",
        ),
        (
            "bandwidth",
            f"{size(r['bytes_per_token'])} per token, {r['bandwidth_share']:.0%} of the"
            f" {r['bandwidth_bytes_per_s'] / 1e9:.1f} GB/s measured at that working set",
        ),
    ]
    for name, text in rows:
        print(f"{name:<16}{text}")
    print()
    terminal.table(
        ("KERNEL", "LAUNCHES", "DECODE µs/token", "PREFILL µs/token"),
        [
            (k["name"], k["launches_per_token"], f"{k['decode_us_per_token']:,.1f}",
             f"{k['prefill_us_per_token']:,.2f}")
            for k in r["kernels"]
        ],
        right=(1, 2, 3),
    )  # fmt: skip
