"""A row of the results: what every benchmark here emits, and how its figures are read.

A script prints its rows as they come, one JSON object a line (`--json`, for benchmarks/run.py), or
as one table at its end.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

FASTER_IS_MORE = ("tokens/s", "requests", "×")  # units; of others (µs, s, MiB) less is better


@dataclass(frozen=True)
class Row:
    """`ours`, `theirs`: samples in `unit`, one a round, in the same order. `bar`: asked of the
    figure (0: nothing), `at_most`: from above. `share`: of the bandwidth measured at this working
    set, `share_bar` what is asked of it. `note`: what else a reader should see; `reason`: why a
    share stays low, said once below the table."""

    work: str
    threads: int
    unit: str
    ours: Sequence[float]
    peer: str = ""
    theirs: Sequence[float] = ()
    bar: float = 0.0
    at_most: bool = False
    share: float = 0.0
    share_bar: float = 0.0
    note: str = ""
    reason: str = ""

    def ratios(self) -> list[float]:
        """Round by round: both sides of one met the same machine. Times better than the peer; for
        `at_most` ours over theirs."""
        up = self.unit in FASTER_IS_MORE
        pairs = zip(self.ours, self.theirs, strict=False)
        return [a / b if up or self.at_most else b / a for a, b in pairs]

    def figure(self) -> float:
        """What the bar is about: the median ratio, without a peer the median itself."""
        return statistics.median(self.ratios() if self.theirs else self.ours)

    def reached(self) -> bool | None:
        """None: nothing is asked for."""
        if not self.bar and not self.share_bar:
            return None
        figure = self.figure()
        good = not self.bar or (figure <= self.bar if self.at_most else figure >= self.bar)
        return good and self.share >= self.share_bar


HEADS = ("work", "threads", "terrazzo", "peer", "ratio", "bar", "of the limit", "")


def cells(row: Row) -> tuple[str, ...]:
    """As HEADS."""
    ratios = row.ratios()
    between = f" [{_number(min(ratios))}, {_number(max(ratios))}]" if ratios else ""
    ratio = f"{_number(row.figure())} ×{between}" if ratios else ""
    unit = " ×" if ratios else f" {row.unit}"
    bar = f"{'≤' if row.at_most else '≥'} {row.bar:g}{unit}" if row.bar else ""
    share = f"{row.share:.0%}" if row.share else ""
    if row.share_bar:
        share += f" (≥ {row.share_bar:.0%})"
    reached = {None: "", True: "yes", False: "no"}[row.reached()]
    work = row.work + (f" ({row.note})" if row.note else "")
    ours = f"{_number(statistics.median(row.ours))} {row.unit}"
    theirs = f"{_number(statistics.median(row.theirs))} {row.peer}" if row.theirs else ""
    return work, str(row.threads), ours, theirs, ratio, bar, share, reached


def markdown(rows: Iterable[Row]) -> list[str]:
    """Lines of a table; columns that are empty in all rows are left out. Reasons follow it."""
    rows = list(rows)
    reasons = list(dict.fromkeys(row.reason for row in rows if row.reason))
    grid: list[tuple[str, ...]] = []
    for row in rows:
        *texts, reached = cells(row)
        grid.append((*texts, f"({reasons.index(row.reason) + 1})" if row.reason else reached))
    heads = (*HEADS[:-1], "reached")
    kept = [n for n in range(len(heads)) if any(line[n] for line in grid)]
    out = [" | ".join(heads[n] for n in kept), "|".join("---" for _ in kept)]
    out += [" | ".join(line[n] for n in kept) for line in grid]
    lines = [f"| {line} |" if "---" not in line else f"|{line}|" for line in out]
    return [*lines, *(f"\n({n + 1}) {reason}." for n, reason in enumerate(reasons))]


def table(rows: Iterable[Row]) -> Table:
    grid = Table(*HEADS)
    for row in rows:
        *texts, reached = (text.replace("[", "\\[") for text in cells(row))
        colour = {"yes": "[green]yes[/]", "no": "[red]no[/]"}
        grid.add_row(*texts, colour.get(reached, ""))
    return grid


def to_dict(row: Row) -> dict[str, Any]:
    """Without what is not given; samples to five digits."""
    given = {k: v for k, v in asdict(row).items() if v}
    for side in ("ours", "theirs"):
        if side in given:
            given[side] = [float(f"{x:.5g}") for x in given[side]]
    return given


def emit(rows: Iterable[Row], as_json: bool) -> None:
    """Each row as a line when it comes, or all as a table when they are there."""
    if as_json:
        for row in rows:
            print(json.dumps(to_dict(row)), flush=True)
        return
    found = table(rows)
    console = Console()
    console.width = max(console.width, 140)  # a pipe has no width of its own
    console.print(found)


def in_turns(
    rounds: int, sides: dict[str, Callable[[], float]], what: str
) -> dict[str, list[float]]:
    """A sample of each side a round; who goes first rotates."""
    names = list(sides)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for n in range(rounds):
        say(f"{what}, round {n + 1} of {rounds}")
        for name in names[n % len(names) :] + names[: n % len(names)]:
            samples[name].append(sides[name]())
    return samples


def say(text: str) -> None:
    """Progress; one line."""
    print(text, file=sys.stderr, flush=True)


def _number(value: float) -> str:
    """Three digits, all those before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
