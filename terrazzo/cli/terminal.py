"""What commands share on the terminal: progress on stderr, numbers as people read them, JSON,
tables.

stdout carries the result only; everything else goes to stderr. rich is imported when it is first
needed: it costs a tenth of a second, which a quick command should not pay.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 0.8  # work that is done by then shows no progress


class Progress:
    """One line of progress on stderr that appears only if the work takes longer than PATIENCE_S.

    `report(what, done, total)` in bytes; a total of 0 means that it is not known. `report_count` is
    for things that are not bytes. On something that is no terminal nothing is shown.
    """

    def __init__(self, what: str) -> None:
        self._state = (what, 0, 0)
        self._spell: Callable[[int], str] = nbytes
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._over = False
        self._timer = threading.Timer(PATIENCE_S, self._show)
        self._timer.daemon = True

    def report(self, what: str, done: int, total: int) -> None:
        with self._lock:
            self._state, self._spell = (what, done, total), nbytes
            self._update()

    def report_count(self, what: str, done: int, total: int) -> None:
        with self._lock:
            self._state, self._spell = (what, done, total), str
            self._update()

    def _update(self) -> None:
        if self._bar is not None:
            what, done, total = self._state
            amount = f"{self._spell(done)} of {self._spell(total)}" if total else ""
            self._bar.update(
                self._task, description=what, completed=done, total=total or None, amount=amount
            )

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bar

        with self._lock:
            if self._over:
                return
            self._bar = Bar(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30),
                TextColumn("{task.fields[amount]}"), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task(self._state[0], total=None, amount="")
            self._update()
            self._bar.start()

    def start(self) -> None:
        if sys.stderr.isatty():
            self._timer.start()

    def stop(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """Shows `what` while the block runs; see Progress."""
    line = Progress(what)
    line.start()
    try:
        yield line
    finally:
        line.stop()


def note(text: str) -> None:
    """A line for the person at the terminal, not for a program that reads stdout."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def nbytes(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def seconds(value: float) -> str:
    """Three digits with the unit that suits: 0.0123 -> "12.3 ms"."""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= scale:
            return (
                f"{value / scale:.3g} {unit}"
                if value < 100 * scale
                else f"{value / scale:.0f} {unit}"
            )
    return f"{value * 1e9:.3g} ns"


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = ()
) -> None:
    """Aligned columns on stdout, the widths from the contents; `right`: columns aligned to the
    right."""
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(header))]
    for row in cells:
        parts = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(parts).rstrip())
