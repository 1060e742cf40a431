"""The DaVinci timing simulator against published measurements of 910B and 910C chips.

    python benchmarks/davinci_measured.py --rows FILE [--json] [--plot FILE] [--fit]

FILE: a CSV with family, chip, cores, params (JSON), metric, value. Each configuration's program is
made by the compiler from its params (`davinci_programs.py`) and simulated once. Scored are kernel
times (one row a configuration) and busy times of pipes, apart; busy times of stores on several
cores are reported only. `--fit` fits the constants without one family at a time and shows how the
result does on that family (minutes).
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import ceil, exp, log
from pathlib import Path
from typing import Any

from davinci_plot import plot
from davinci_programs import BUILDERS
from rich.console import Console
from rich.table import Table

from terrazzo.targets.davinci.chips import ALIASES, CHIPS, Chip, chip
from terrazzo.targets.davinci.program import CoreKind, Pipe, Program
from terrazzo.targets.davinci.timing.classes import Class, trace
from terrazzo.targets.davinci.timing.constants import DEFAULT, Constants
from terrazzo.targets.davinci.timing.simulate import timed
from terrazzo.targets.davinci.timing.timeline import Timeline

WHOLE = ("task_us", "ticks", "mte2_or_core_us")
PIPES: dict[str, tuple[Pipe, CoreKind]] = {
    "mac": ("M", "cube"), "cube": ("M", "cube"), "mte1": ("MTE1", "cube"),
    "fixpipe": ("FIX", "cube"), "vec": ("V", "vector"), "mte3": ("MTE3", "vector"),
}  # fmt: skip
STORES = ("mte3_us", "fixpipe_us")


@dataclass
class Config:
    """What was measured together: one program on one chip."""

    family: str
    chip: Chip
    cores: int
    params: dict[str, Any]
    program: Program | None = None
    traced: tuple[tuple[Class, ...], ...] = ()

    def timeline(self, k: Constants = DEFAULT) -> Timeline:
        if self.program is None:
            self.program = BUILDERS[self.family](self.params, self.chip, self.cores)
            self.traced = trace(self.program, self.chip, {}, {})
        return timed(self.program, self.traced, self.chip, k, window_cycles=0.0)


@dataclass
class Row:
    line: int
    config: Config
    metric: str
    measured: float
    predicted: float = field(default=float("nan"))

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def scored(self) -> str:
        """ "whole", "pipe" or ""."""
        if self.metric in WHOLE:
            return "whole"
        stores = self.metric in STORES and self.config.cores > 1
        return "" if stores or self.metric == "aicore_us" else "pipe"


def read(path: Path) -> list[Row]:
    """Rows of chips and families that are known here; lines count from the header, 1."""
    configs: dict[tuple[str, ...], Config] = {}
    rows: list[Row] = []
    with path.open() as file:
        for line, r in enumerate(csv.DictReader(file), 2):
            if r["family"] not in BUILDERS or r["chip"] not in {**CHIPS, **ALIASES}:
                continue
            key = (r["family"], r["chip"], r["cores"], r["params"])
            if key not in configs:
                params = json.loads(r["params"])
                configs[key] = Config(r["family"], chip(r["chip"]), int(r["cores"]), params)
            rows.append(Row(line, configs[key], r["metric"], float(r["value"])))
    return rows


def predicted(row: Row, t: Timeline) -> float:
    """The row's metric from a timeline. Raises KeyError for a metric not known."""
    cube = "cube" in t.cores
    mhz = t.chip.mhz
    match row.metric:
        case "task_us":
            return t.us
        case "aicore_us" | "mte2_or_core_us":
            return t.cycles / mhz
        case "ticks":  # of a counter, around the vector instructions
            use = t.pipe("vector", "V")
            return (use.busy if use else 0.0) / mhz * row.config.params["counter_mhz"]
    name, _, unit = row.metric.rpartition("_")
    pipe, kind = PIPES.get(name) or ("MTE2", "cube" if cube else "vector")
    use = t.pipe(kind, pipe)
    busy = (use.busy if use else 0.0) / mhz
    return busy if unit == "us" else 100 * busy / t.us


def predict(rows: Iterable[Row], k: Constants = DEFAULT) -> None:
    timelines: dict[int, Timeline] = {}
    for row in rows:
        if id(row.config) not in timelines:
            timelines[id(row.config)] = row.config.timeline(k)
        row.predicted = predicted(row, timelines[id(row.config)])


def whole(rows: Iterable[Row]) -> list[Row]:
    """Kernel times, one a configuration."""
    found = {id(r.config): r for r in reversed(list(rows)) if r.scored == "whole"}
    return list(reversed(found.values()))


@dataclass(frozen=True)
class Score:
    n: int
    median: float
    p90: float
    worst: float  # a factor

    def __str__(self) -> str:
        worst = f"{self.worst:.2f}x"
        return f"n {self.n}, median {self.median:.1%}, p90 {self.p90:.1%}, worst {worst}"


def score(rows: Sequence[Row]) -> Score:
    errors = sorted(abs(r.error) for r in rows)
    if not errors:
        return Score(0, 0.0, 0.0, 1.0)
    p90 = errors[min(len(errors), ceil(0.9 * len(errors))) - 1]
    worst = max(max(1 + r.error, 1 / max(1 + r.error, 1e-9)) for r in rows)
    return Score(len(errors), statistics.median(errors), p90, worst)


def orderings(rows: Sequence[Row], least: float = 0.05) -> list[tuple[Row, Row, bool]]:
    """Pairs of kernel times whose configurations differ in one thing and whose measured times
    differ by `least`: (faster, slower, predicted so?)."""
    out = []
    for a, b in combinations(rows, 2):
        if (a.config.family, a.config.chip) != (b.config.family, b.config.chip):
            continue
        differ = _differences(a.config, b.config)
        first, second = sorted((a, b), key=lambda r: r.measured)
        if differ == 1 and second.measured > first.measured * (1 + least):
            out.append((first, second, first.predicted < second.predicted))
    return out


def _differences(a: Config, b: Config) -> int:
    ours, theirs = ({**c.params, "cores": c.cores} for c in (a, b))
    # More cores on as many more queries is one difference.
    changed = {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
    return len(changed - {"q_tokens"} if "cores" in changed else changed)


FREE: dict[str, tuple[float, float]] = {  # what a fit may choose, within these bounds
    "hbm_share": (0.6, 1.0), "l2_rate": (90.0, 200.0), "read_latency": (100.0, 1500.0),
    "write_latency": (50.0, 400.0), "issue": (1.0, 60.0), "nd2nz_row": (0.1, 10.0),
    "fix_rate": (20.0, 126.0), "hand_over": (50.0, 1200.0), "launch_us": (2.0, 12.0),
}  # fmt: skip
# Where a fit starts: the figures of the vendor's documents, before any measurement of a kernel.
# issue: they have none for transfers with global memory, this is the start of the ones inside a
# core; only the copies of 128 bytes show it, so without those rows it stays where it starts.
FACTS = Constants(hbm_share=0.85, l2_rate=110.0, read_latency=1295.0, write_latency=277.0,
                  issue=28.0, nd2nz_row=0.5, fix_rate=41.0, hand_over=220.0,
                  launch_us=5.9)  # fmt: skip


PRIOR = 0.004  # of mean error that a factor e away from a document's figure has to be worth


def fitted(rows: Sequence[Row]) -> Constants:
    """Constants with the least mean |log error| of kernel times, by steps along each of `FREE`. One
    that the rows hardly show stays near the documents' figure."""

    def loss(k: Constants) -> float:
        predict(rows, k)
        error = statistics.fmean(abs(log(r.predicted / r.measured)) for r in rows)
        return error + PRIOR * sum(abs(log(getattr(k, n) / getattr(FACTS, n))) for n in FREE)

    best, least = FACTS, loss(FACTS)
    step = 2.0
    while step > 0.04:
        before = least
        for name, (low, high) in FREE.items():
            for sign in (step, -step):
                value = min(max(getattr(best, name) * exp(sign), low), high)
                k = replace(best, **{name: value})
                if (there := loss(k)) < least:
                    best, least = k, there
        if before - least < 0.002:
            step /= 2
    return best


def fit(rows: Sequence[Row], console: Console) -> list[Row]:
    """Predictions of each family by constants fitted without it."""
    held: list[Row] = []
    for family in dict.fromkeys(r.config.family for r in rows):
        rest = [r for r in rows if r.config.family != family]
        k = fitted(rest)
        out = [r for r in rows if r.config.family == family]
        predict(out, k)
        kept = [Row(r.line, r.config, r.metric, r.measured, r.predicted) for r in out]
        values = ", ".join(f"{n} {getattr(k, n):.3g}" for n in FREE)
        console.print(f"without {family}: {score(kept)} ({values})")
        held += kept
    console.print(f"held out, all families: {score(held)}")
    return held


def report(rows: Sequence[Row], console: Console) -> None:
    table = Table("line", "family", "chip", "cores", "params", "metric", "measured", "predicted",
                  "error", box=None)  # fmt: skip
    quiet = {"dtype", "a", "b", "counter_mhz", "clock_assumed", "batch", "heads", "causal"}
    for r in rows:
        shown = " ".join(f"{k}={v}" for k, v in r.config.params.items() if k not in quiet)
        mark = "" if r.scored else " not scored"
        table.add_row(str(r.line), r.config.family, r.config.chip.name, str(r.config.cores), shown,
                      r.metric, f"{r.measured:.2f}", f"{r.predicted:.2f}",
                      f"{r.error:+.1%}{mark}")  # fmt: skip
    console.print(table)
    groups: list[tuple[str, Callable[[Row], bool]]] = [("all", lambda r: True)]
    for family in dict.fromkeys(r.config.family for r in rows):
        groups.append((family, lambda r, f=family: r.config.family == f))
    for name, wanted in groups:
        kernel = score([r for r in whole(rows) if wanted(r)])
        pipe = score([r for r in rows if r.scored == "pipe" and wanted(r)])
        console.print(f"{name}: kernel times {kernel}" + (f"; pipes {pipe}" if pipe.n else ""))
    pairs = orderings(whole(rows))
    console.print(f"orderings: {sum(ok for *_, ok in pairs)} of {len(pairs)}")
    for a, b, ok in pairs:
        if not ok:
            console.print(f"  wrong: line {a.line} is faster than line {b.line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--family", action="append")
    args = parser.parse_args()
    rows = [r for r in read(args.rows) if not args.family or r.config.family in args.family]
    predict(rows)
    console = Console(stderr=args.json)
    if not console.is_terminal:
        console = Console(stderr=args.json, width=200)
    if args.json:
        print(json.dumps({
            "rows": [
                {"line": r.line, "family": r.config.family, "chip": r.config.chip.name,
                 "cores": r.config.cores, "params": r.config.params, "metric": r.metric,
                 "measured": r.measured, "predicted": r.predicted, "scored": r.scored}
                for r in rows
            ],
            "kernel_times": vars(score(whole(rows))),
            "pipes": vars(score([r for r in rows if r.scored == "pipe"])),
            "orderings": [{"faster": a.line, "slower": b.line, "right": ok}
                          for a, b, ok in orderings(whole(rows))],
        }, indent=1))  # fmt: skip
    else:
        report(rows, console)
    if args.plot:
        points = [(r.config.family, r.measured, r.predicted) for r in whole(rows)]
        args.plot.write_text(plot(points), encoding="utf-8")
    if args.fit:
        fit(whole(rows), console)


if __name__ == "__main__":
    main()
