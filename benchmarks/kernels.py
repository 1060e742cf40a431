"""The library's kernels against torch's, low-bit products against our own fp32, taking turns.

    python benchmarks/kernels.py [--threads 1 2] [--only PATTERN ...] [--rounds 9] [--json]

Needs torch beside terrazzo (`make oracle` makes such an environment: .venv-oracle/bin/python). A
round times ours and the peer one after the other, who goes first alternates, calls that are short
are repeated within it. Bandwidth is measured for each row, in this run, at its working set: by
reading alone, or for kernels that write much by a loop that reads and writes as much (plain stores
or stores around the caches, the better one); the share counts each tensor once. A peer that would
take over 15 seconds a call, by what it took for a smaller product (torch's f16 where the chip has
no such instructions), is left out, and the row says so. `--only` takes parts of a row's name; one
must be in it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import kernel_rows
import rows
import torch  # pyright: ignore[reportMissingImports]
from kernel_rows import Case
from rows import Row

from terrazzo.runtime import launch, machine

PAUSE_S = 0.03  # lets the other side's spinning threads fall asleep before these are timed
SAMPLE_S = 0.01  # of a timed run at least, by repeating the call
LEAST, ENOUGH_S = 3, 3.0  # rounds; seconds after which there are no more of them
TOO_LONG_S = 15.0  # of one call of a peer
WRONG = 0.02  # of the largest result: bfloat16 sums may differ by half of this

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


def measure(row: kernel_rows.Row, threads: int, rounds: int, pace: dict[Any, float]) -> Row:
    """`pace`: seconds an operation that peers took, by kind of row; kept up to date."""
    torch.set_num_threads(threads)
    case = kernel_rows.build(row)
    ours = case.ours
    run = launch.Ready(ours, threads).run if isinstance(ours, launch.Launch) else ours(threads)
    peer = case.theirs
    name = f"torch {torch.__version__.partition('+')[0]}"
    if isinstance(peer, launch.Launch):
        peer, name = launch.Ready(peer, threads).run, "own f32"
    kind = row.work, row.dtype, threads
    expected = case.operations * pace.get(kind, 0.0)
    alone = expected > TOO_LONG_S
    sides = (run,) if alone else (run, peer)
    times = [repetitions(run) for run in sides]
    seconds: tuple[list[float], list[float]] = [], []
    start = time.perf_counter()
    for n in range(rounds):
        if n >= LEAST and time.perf_counter() - start > ENOUGH_S:
            break
        for side in range(len(sides)) if n % 2 else reversed(range(len(sides))):
            seconds[side].append(timed(sides[side], times[side]))
    off = case.error() if case.error and not alone else 0.0
    if not off < WRONG:
        raise SystemExit(f"{row.name}: the results differ by {off:.1e} of the largest")
    mine, theirs = ([1e6 * s for s in side] for side in seconds)
    rate = (case.read + case.written) / statistics.median(mine) / 1e3  # GB/s
    notes = []
    if row.work == "flash_attention" and isinstance(ours, launch.Launch):
        notes.append(f"{ours.scratch * threads >> 10:,} KiB of scratch")
    if row.work == "matmul":
        notes.append(f"{case.operations / statistics.median(mine) / 1e3:,.0f} GFLOP/s")
    if alone:
        notes.append(f"{name} would take some {expected:,.0f} s a call")
    elif case.operations:
        pace[kind] = statistics.median(seconds[1]) / case.operations
    share = rate / bandwidth(case, threads) if row.share else 0.0
    bar = 0.0 if alone else row.bar
    return Row(row.name, threads, "µs", mine, "" if alone else name, theirs, bar, False, share,
               row.share, ", ".join(notes))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="a row a line")
    args = parser.parse_args()
    chosen = [r for r in kernel_rows.rows() if any(p in r.name for p in args.only or [""])]
    if not chosen:
        parser.error("no row has one of these in its name: " + " ".join(args.only))

    pace: dict[Any, float] = {}

    def each() -> Iterator[Row]:
        for row in chosen:
            for threads in args.threads:
                rows.say(f"{row.name}, {threads} threads")
                yield measure(row, threads, args.rounds, pace)

    rows.emit(each(), args.json)


if __name__ == "__main__":
    main()
