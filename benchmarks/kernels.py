"""The library's kernels against torch's, low-bit products against our own fp32, taking turns.

    python benchmarks/kernels.py [--threads 1 2] [--only PATTERN ...] [--rounds 9] [--json]

Needs torch beside terrazzo (`make oracle` makes such an environment: .venv-oracle/bin/python). A
round times ours and the peer one after the other, who goes first alternates, calls that are short
are repeated within it. Shown are medians over the rounds and the median of the rounds' ratios
(times faster than the peer), beside the bar. Bandwidth is measured for each row, in this run, at
its working set: by reading alone, or for kernels that write much by a loop that reads and writes
as much (plain stores or stores around the caches, the better one); the share counts each tensor
once. `--only` takes parts of a row's name; all must be in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import kernel_rows
import torch  # pyright: ignore[reportMissingImports]
from kernel_rows import Case, Row
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from terrazzo.runtime import launch, machine

PAUSE_S = 0.03  # lets the other side's spinning threads fall asleep before these are timed
SAMPLE_S = 0.01  # of a timed run at least, by repeating the call

stream_bandwidth = cache(machine.stream_bandwidth)
read_bandwidth = cache(machine.read_bandwidth)


def timed(run: Callable[[], object], times: int) -> float:
    """Seconds of a call; short ones are warm by then."""
    time.sleep(PAUSE_S)
    if times > 1:
        run()
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def repetitions(run: Callable[[], object]) -> int:
    run()
    return max(int(SAMPLE_S / timed(run, 1)), 1)


def bandwidth(case: Case, threads: int) -> float:
    """GB/s that the machine reaches with as much to read and to write."""
    if case.written * 4 < case.read:
        return read_bandwidth(case.read, threads)
    return stream_bandwidth(round(case.read / case.written), case.written, threads)


def measure(row: Row, threads: int, rounds: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    case = kernel_rows.build(row)
    ready = launch.Ready(case.ours, threads)
    peer = case.theirs
    if isinstance(peer, launch.Launch):
        peer = launch.Ready(peer, threads).run
    sides = ready.run, peer
    times = [repetitions(run) for run in sides]
    seconds: tuple[list[float], list[float]] = [], []
    for n in range(rounds):
        for side in (0, 1) if n % 2 else (1, 0):
            seconds[side].append(timed(sides[side], times[side]))
    ours, theirs = (statistics.median(s) for s in seconds)
    moved = case.read + case.written
    out: dict[str, Any] = {
        "work": row.name,
        "threads": threads,
        "ours_us": ours * 1e6,
        "peer_us": theirs * 1e6,
        "ratio": statistics.median(b / a for a, b in zip(*seconds, strict=True)),
        "bar": row.bar,
        "share_bar": row.share,
        "moved_bytes": moved,
        "scratch_bytes": case.ours.scratch * threads,
        "difference": case.error() if case.error else None,
    }
    if case.operations:
        out["gflop_s"] = case.operations / ours / 1e9
    if row.share:
        out["gb_s"] = moved / ours / 1e9
        out["machine_gb_s"] = bandwidth(case, threads)
        out["share"] = out["gb_s"] / out["machine_gb_s"]
    return out


def verdict(value: float, bar: float, form: str) -> str:
    if not bar:
        return format(value, form)
    colour = "green" if value >= bar else "red"
    return f"[{colour}]{value:{form}}[/]/{bar:{form}}"


def report(results: Sequence[dict[str, Any]]) -> None:
    table = Table(title=f"medians; torch {torch.__version__}")
    table.add_column("work", no_wrap=True)
    heads = ("threads", "ours µs", "peer µs", "ratio / bar", "GFLOP/s", "GB/s", "share / bar",
             "moved MiB", "scratch KiB", "difference")  # fmt: skip
    for head in heads:
        table.add_column(head, justify="right")
    for r in results:
        gflop, gb = (f"{r[x]:.1f}" if x in r else "" for x in ("gflop_s", "gb_s"))
        table.add_row(
            r["work"], str(r["threads"]), f"{r['ours_us']:,.1f}", f"{r['peer_us']:,.1f}",
            verdict(r["ratio"], r["bar"], ".2f"), gflop, gb,
            verdict(r["share"], r["share_bar"], ".0%") if "share" in r else "",
            f"{r['moved_bytes'] / 2**20:.1f}", f"{r['scratch_bytes'] / 2**10:,.0f}",
            "" if r["difference"] is None else f"{r['difference']:.0e}",
        )  # fmt: skip
    Console(width=None if Console().is_terminal else 160).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    chosen = [r for r in kernel_rows.rows() if all(p in r.name for p in args.only)]
    if not chosen:
        parser.error("no row has all of these in its name: " + " ".join(args.only))
    results: list[dict[str, Any]] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(chosen) * len(args.threads))
        for row in chosen:
            for threads in args.threads:
                progress.update(task, description=f"{row.name}, {threads} threads")
                results.append(measure(row, threads, args.rounds))
                progress.advance(task)
    if args.json:
        print(json.dumps(results))
    else:
        report(results)


if __name__ == "__main__":
    main()
