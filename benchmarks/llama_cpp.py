"""Ours against llama.cpp, same file, same machine, one run, taking turns.

    python benchmarks/llama_cpp.py [MODEL] [--rounds 5] [--threads 1 2] [--json]

* prefill of 512 tokens and decode of 128, tokens/s: `terrazzo bench` against `llama-bench`. In each
  round each is run once per thread count; who goes first alternates. Shown: median [smallest,
  largest] over the rounds, and the median of the rounds' ratios with the limits asked for.
* decode of 32 tokens behind a context of 2,000, 4,000 and 8,000 (llama-bench with flash attention),
  with the largest number of threads, and the share of the bandwidth that ours reaches.
* decode through llama.cpp's Python API (greedy, 128 tokens), the way most Python programs meet it.
* whole process to first token: start of the process to its end, with one token made after a
  19-token prompt; ours with an empty cache folder (cold) and a full one (warm). Peak resident
  memory of those processes.

Needs the peer (`python benchmarks/peers.py`) and `terrazzo` installed beside this interpreter or on
PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peers
from rich.console import Console
from rich.table import Table

PROMPT = (
    "The three most important inventions in the history of computing are the transistor,"
    " the compiler and the network"
)  # 19 tokens
PREFILL, DECODE = 512, 128
DEPTHS, BEHIND = (2000, 4000, 8000), 32
RUNS = 3  # of each in a round; its median is the round's sample
LIMITS = {"prefill": {1: 5.0, 2: 5.0}, "decode": {1: 1.9, 2: 2.4}}  # by threads
DEPTH_LIMIT = 1.5
API_SCRIPT = Path(__file__).with_name("llama_cpp_api.py")


@dataclass
class Results:
    """Samples by (quantity, threads, who); tokens/s, seconds or bytes as the quantity has it."""

    samples: dict[tuple[str, int, str], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, quantity: str, threads: int, who: str, value: float) -> None:
        self.samples[quantity, threads, who].append(value)

    def ratio(self, quantity: str, threads: int) -> str:
        """Median of the rounds' ratios: both sides of a round met the same machine."""
        ours = self.samples.get((quantity, threads, "terrazzo"), [])
        theirs = self.samples.get((quantity, threads, "llama.cpp"), [])
        ratios = [a / b for a, b in zip(ours, theirs, strict=False)]
        if not ratios:
            return "-"
        return f"{statistics.median(ratios):.2f} x \\[{min(ratios):.2f}, {max(ratios):.2f}]"

    def text(self, quantity: str, threads: int, who: str, digits: int = 1) -> str:
        values = self.samples.get((quantity, threads, who))
        if not values:
            return "-"
        low, high = min(values), max(values)
        middle = statistics.median(values)
        return f"{middle:.{digits}f} \\[{low:.{digits}f}, {high:.{digits}f}]"


@dataclass(frozen=True)
class Bench:
    """The two sides and how to run each."""

    terrazzo: str
    model: Path
    peer: peers.Peers
    results: Results

    def ours(self, threads: int) -> None:
        sizes = ["--prompt", str(PREFILL), "--decode", str(DECODE)]
        command = [self.terrazzo, "bench", str(self.model), *sizes, "--threads", str(threads)]
        figures = _json([*command, "--runs", str(RUNS), "--json"])
        for name in ("prefill", "decode"):
            self.results.add(name, threads, "terrazzo", figures[f"{name}_tokens_per_s"])
        for name in ("dispatch_us_per_token", "barriers_per_token"):
            self.results.add(name, threads, "terrazzo", figures[name])

    def theirs(self, threads: int) -> None:
        sizes = ["-p", str(PREFILL), "-n", str(DECODE), "-r", str(RUNS)]
        command = [str(self.peer.llama_bench), "-m", str(self.model), "-t", str(threads)]
        for row in _json([*command, *sizes, "-o", "json"]):
            name = "prefill" if row["n_prompt"] else "decode"
            rate = statistics.median(row["samples_ts"])
            self.results.add(name, threads, "llama.cpp", rate)

    def behind(self, threads: int, depth: int, ours: bool) -> None:
        """Decoding behind `depth` tokens."""
        name = f"decode behind {depth:,}"
        if ours:
            command = [self.terrazzo, "bench", str(self.model), "--prompt", "16", "--depth"]
            sizes = [str(depth), "--decode", str(BEHIND), "--runs", "1", "--threads", str(threads)]
            figures = _json([*command, *sizes, "--json"])
            self.results.add(name, threads, "terrazzo", figures["decode_tokens_per_s"])
            self.results.add("share", threads, name, 100 * figures["bandwidth_share"])
            return
        command = [str(self.peer.llama_bench), "-m", str(self.model), "-t", str(threads), "-p", "0"]
        sizes = ["-n", str(BEHIND), "-d", str(depth), "-fa", "1", "-r", "1", "-o", "json"]
        (row,) = _json([*command, *sizes])
        self.results.add(name, threads, "llama.cpp", statistics.median(row["samples_ts"]))

    def api(self, threads: int) -> None:
        figures = _json(self._api_command(threads, DECODE))
        self.results.add("decode", threads, "llama_cpp API", figures["decode_tokens_per_s"])

    def _api_command(self, threads: int, tokens: int) -> list[str]:
        # -P: the package llama_cpp, not its namesake in the script's folder.
        python = [str(self.peer.python), "-P", str(API_SCRIPT)]
        return [*python, str(self.model), str(threads), str(tokens), PROMPT]

    def first_token(self, threads: int, cache: Path, state: str) -> None:
        """A whole process of ours, with its machine code and repacked weights in `cache`."""
        command = [self.terrazzo, "generate", str(self.model), PROMPT, "--max-tokens", "1"]
        options = ["--temperature", "0", "--threads", str(threads)]
        environment = os.environ | {"TERRAZZO_CACHE": str(cache)}
        seconds, peak = _whole([*command, *options], environment)
        self.results.add("first token", threads, f"terrazzo, {state}", seconds)
        self.results.add("peak memory", threads, f"terrazzo, {state}", peak)

    def first_token_api(self, threads: int) -> None:
        seconds, peak = _whole(self._api_command(threads, 1), dict(os.environ))
        self.results.add("first token", threads, "llama_cpp API", seconds)
        self.results.add("peak memory", threads, "llama_cpp API", peak)


def measure(bench: Bench, threads: list[int], rounds: int, peer_only: bool = False) -> None:
    for number in range(rounds):
        for count in threads:
            sides = [] if peer_only else [bench.ours]
            sides.append(bench.theirs)
            for side in sides if number % 2 == 0 else reversed(sides):
                side(count)
            bench.api(count)
            _say(f"round {number + 1} of {rounds}, {count} threads: tokens/s done")
        for depth in DEPTHS:
            for ours in (True, False)[:: 1 if number % 2 == 0 else -1]:
                if not (ours and peer_only):
                    bench.behind(max(threads), depth, ours)
        _say(f"round {number + 1} of {rounds}: decoding behind a context done")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for count in threads:
                bench.first_token_api(count)
                if not peer_only:
                    cache = Path(folder, f"{number}-{count}")
                    bench.first_token(count, cache, "cold cache")
                    bench.first_token(count, cache, "warm cache")
            _say(f"round {number + 1} of {rounds}: first token done")


def table(results: Results, threads: list[int]) -> Table:
    grid = Table(title="terrazzo against llama.cpp")
    for column in ("", "threads", "terrazzo", "llama.cpp", "ratio", "limit", "llama_cpp API"):
        grid.add_column(column, justify="left" if not column else "right")
    for name in LIMITS:
        for count in threads:
            sides = [results.text(name, count, w) for w in ("terrazzo", "llama.cpp")]
            size = PREFILL if name == "prefill" else DECODE
            asked = LIMITS[name].get(count)
            title, limit = f"{name} {size}, tokens/s", f"{asked} x" if asked else ""
            api = results.text(name, count, "llama_cpp API")
            grid.add_row(title, str(count), *sides, results.ratio(name, count), limit, api)
    count = max(threads)
    for depth in DEPTHS:
        name = f"decode behind {depth:,}"
        sides = [results.text(name, count, w) for w in ("terrazzo", "llama.cpp")]
        share = f"{results.text('share', count, name, 0)} % of the bandwidth"
        grid.add_row(f"{name}, {share}", str(count), *sides, results.ratio(name, count),
                     f"{DEPTH_LIMIT} x", "")  # fmt: skip
    return grid


def process_table(results: Results, threads: list[int]) -> Table:
    grid = Table(title="whole process, one token after a prompt of 19")
    sides = ("terrazzo, cold cache", "terrazzo, warm cache", "llama_cpp API")
    for column in ("", "threads", *sides):
        grid.add_column(column, justify="left" if not column else "right")
    for name, title in (("first token", "first token, s"), ("peak memory", "peak memory, MiB")):
        for count in threads:
            digits = 2 if name == "first token" else 0
            texts = [results.text(name, count, side, digits) for side in sides]
            grid.add_row(title, str(count), *texts)
    return grid


def _json(command: list[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def _whole(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds from start to end of a process, and its peak resident MiB."""
    start = time.perf_counter()
    nowhere = subprocess.DEVNULL
    child = subprocess.Popen(command, env=environment, stdout=nowhere, stderr=nowhere)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed with exit code {child.returncode}")
    return seconds, usage.ru_maxrss / 1024


def _terrazzo(given: str | None) -> str:
    beside = Path(sys.executable).with_name("terrazzo")
    found = given or (str(beside) if beside.exists() else shutil.which("terrazzo"))
    if not found:
        raise SystemExit("the command `terrazzo` is not installed here: pip install .")
    return found


def model_file(name: str) -> Path:
    if Path(name).is_file():
        return Path(name).resolve()
    from terrazzo.models import store

    return store.pull(name)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2", help="GGUF file or a known name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, default=peers.DEFAULT_FOLDER, help="of the peer")
    parser.add_argument("--terrazzo", help="the command to measure")
    parser.add_argument("--peer-only", action="store_true", help="llama.cpp's figures alone")
    parser.add_argument("--json", action="store_true", help="print every sample as JSON")
    options = parser.parse_args()
    peer = peers.find(options.folder)
    if peer is None:
        raise SystemExit("llama.cpp is not built: python benchmarks/peers.py")
    terrazzo = "" if options.peer_only else _terrazzo(options.terrazzo)
    bench = Bench(terrazzo, model_file(options.model), peer, Results())
    measure(bench, options.threads, options.rounds, options.peer_only)
    if options.json:
        samples = bench.results.samples.items()
        rows = [{"what": w, "threads": t, "who": who, "samples": v} for (w, t, who), v in samples]
        print(json.dumps(rows, indent=1))
    else:
        console = Console()
        # A pipe has no width of its own: 80 columns would break every cell.
        console.width = max(console.width, 140)
        console.print(table(bench.results, options.threads))
        console.print(process_table(bench.results, options.threads))


if __name__ == "__main__":
    main()
