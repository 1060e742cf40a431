"""A server under mixed traffic for long: nothing stuck, lost, leaked, or answered otherwise than
alone.

    PYTHONPATH=tests python -m soak [--seconds 1800] [--seed 0] [--json]      (make soak)

Rounds of traffic from a seed (traffic.py) go to a server that has too little memory for them. After
each one the idle server is looked at (rounds.py). Then it is killed, three times, under load, and
has to be back within two seconds (the median), and all finished requests are sent once more, alone,
to a server of another shape. Exit status 1: something was wrong, and the last lines say what.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from soak import replay, rounds
from soak.process import NotStarted, Server, alive
from soak.verdict import Soak

CONTEXT = "512"
TIGHT = ("--memory", "319MiB", "--context", CONTEXT, "--parallel", "8", "--waiting", "12")
"""Blocks for two requests of the whole context; eight run, twelve wait."""
ALONE = ("--context", CONTEXT, "--parallel", "1", "--draft", "off")
SHARE = 0.35  # traffic's part of the whole: its answers take longer one by one
ROUND_S = 4.0, 30.0
KILLS = 3


def main() -> int:
    parser = argparse.ArgumentParser("soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1800, help="of the whole, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.seconds < 60:
        parser.error(f"--seconds is {args.seconds:g}, give at least 60")
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30),
               TextColumn("{task.fields[now]}"), TimeElapsedColumn())  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Progress(*columns, console=console) as bar:
        log = Path(folder) / "server.log"
        try:
            soak = run(args.seconds, args.seed, log, bar)
        except (OSError, EOFError, NotStarted) as error:
            tail = log.read_text()[-1500:]
            console.print(f"error: the server is gone: {error}\n{tail}", markup=False)
            return 1
    if args.json:
        print(json.dumps(soak.json(), indent=2))
    else:
        table = Table(show_header=False)
        for row in soak.rows():
            table.add_row(*row)
        Console().print(table)
    for failure in soak.failures:
        console.print(f"error: {failure}", style="red", markup=False, highlight=False)
    return 1 if soak.failures else 0


def run(seconds: float, seed: int, log: Path, bar: Progress) -> Soak:
    traffic_s = SHARE * seconds
    round_s = min(max(ROUND_S[0], traffic_s / 12), ROUND_S[1])
    found, server = rounds.Found(), Server(log, *TIGHT).start()
    try:
        task = bar.add_task("traffic", total=traffic_s, now="")
        began = time.monotonic()
        rounds.warm_up(server, str(seed), found)
        while (took := time.monotonic() - began) < traffic_s and not found.faults:
            rounds.run(server, f"{seed} {len(found.rss)}", round_s, found)
            bar.update(task, completed=time.monotonic() - began, now=(
                f"round {len(found.rss)}: {sum(found.counts.values()):,} requests,"
                f" {sum(found.rss[-1].values()) / 2**20:.1f} MiB"))  # fmt: skip
        stats = server.engine()["stats"]
        end: list[str] = []
        ready_s = [_killed(server, f"{seed} kill {n}", end) for n in range(KILLS)]
    finally:
        server.kill()
    todo = replay.order(found.finished, str(seed))
    task = bar.add_task("alone", total=len(todo), now="")
    second = Server(log, *ALONE).start()
    try:
        compared = replay.run(
            second, todo,
            lambda n: bar.update(task, completed=n, now=f"{n:,} of {len(todo):,} answers"),
        )  # fmt: skip
        if second.stop():
            end.append("a server that was told to end did not end with 0")
    finally:
        second.kill()
    text = log.read_text()
    end += [f"the server's log: {line}" for line in text.splitlines()
            if "Traceback" in line or "defect" in line][:5]  # fmt: skip
    return Soak(seed, took, found, stats, compared, ready_s, end)


def _killed(server: Server, seed: str, wrong: list[str]) -> float:
    """Kills the server while it answers and starts it again on the same port: seconds until it was
    ready."""
    processes = asyncio.run(rounds.killed(server, seed))
    end = time.monotonic() + 2
    while any(alive(p) for p in processes.values()) and time.monotonic() < end:
        time.sleep(0.01)
    wrong += [f"process {p} ({n}) has outlived its server's end"
              for n, p in processes.items() if alive(p)]  # fmt: skip
    return server.start().ready_s


if __name__ == "__main__":
    sys.exit(main())
