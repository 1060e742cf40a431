"""What benchmarks/run.py measured, kept and shown: results.json, RESULTS.md, a line of a terminal.

`python benchmarks/report.py` writes RESULTS.md anew from results.json.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import peers
import rows

from terrazzo.runtime import machine
from terrazzo.targets.cpu import isa

if TYPE_CHECKING:
    from run import Outcome

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
HEAD = """# Results

Written by `make bench`: change nothing here. What stands behind the figures, accuracy, other
machines and the DaVinci model are in [NOTES.md](NOTES.md).

{machine}

Medians of rounds in which both sides took turns. Ratio: median [smallest, largest] of the rounds'
ratios, how many times better than the peer; where the bar is an upper one (≤), ours over the
peer's. "of the limit": of the bandwidth measured in the same run at the same working set, in the
last table of what the machine could do at most. Peers: llama.cpp from the sources in
llama-cpp-python {peer} (`benchmarks/peers.py`), torch; `own f32` is our own fp32 product.
"""


@dataclass
class Store:
    """Parts by name: title, date, commit, disturbed, missing, rows (as `rows.to_dict`)."""

    path: Path
    machine: dict[str, Any]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Store:
        """Parts that another machine measured are not taken over."""
        here = facts()
        old = json.loads(path.read_text()) if path.exists() else {}
        return cls(path, here, old["parts"] if old.get("machine") == here else {})

    def write(self, order: Sequence[str]) -> None:
        """The file, a row a line, and RESULTS.md."""
        self.parts = {name: self.parts[name] for name in order if name in self.parts}
        lines = [f'{{"machine": {json.dumps(self.machine)}, "parts": {{']
        for n, (name, part) in enumerate(self.parts.items()):
            head = json.dumps({k: v for k, v in part.items() if k != "rows"})
            table = ",\n".join(json.dumps(row, ensure_ascii=False) for row in part["rows"])
            comma = "," if n + 1 < len(self.parts) else ""
            lines.append(f'{json.dumps(name)}: {head[:-1]}, "rows": [\n{table}]}}{comma}')
        self.path.write_text("\n".join([*lines, "}}", ""]), encoding="utf-8")
        RESULTS.write_text(self.markdown(), encoding="utf-8")

    def markdown(self) -> str:
        m = self.machine
        text = (
            f"Machine: {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['system']};"
            f" instruction set `{m['isa']}`."
        )
        out = [HEAD.format(machine=text, peer=peers.VERSION)]
        reached = [r.reached() for p in self.parts.values() for r in _rows(p)]
        out.append(f"{reached.count(True)} of {reached.count(True) + reached.count(False)} bars"
                   " are reached.\n")  # fmt: skip
        for part in self.parts.values():
            out.append(f"## {part['title']}\n")
            others = part["disturbed"]
            busy = f"; other processes took {others:.2f} cores" if others >= 0.05 else ""
            if part["rows"]:
                out += [f"{part['date']}, commit {part['commit']}{busy}.\n"]
                out += [*rows.markdown(_rows(part)), ""]
            if part["missing"]:
                rest = "The rest is left out" if part["rows"] else "Left out"
                out.append(f"{rest}: {part['missing']}.\n")
        return "\n".join(out)


def _rows(part: dict[str, Any]) -> list[rows.Row]:
    return [rows.Row(**row) for row in part["rows"]]


def stored(title: str, outcome: Outcome) -> dict[str, Any]:
    return {
        "title": title,
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "disturbed": round(outcome.disturbed, 2),
        "missing": outcome.missing,
        "rows": [rows.to_dict(row) for row in outcome.rows],
    }


def facts() -> dict[str, Any]:
    m = machine.describe()
    found = isa.detect()
    return {
        "cpu": m.cpu, "cores": len(os.sched_getaffinity(0)),
        "memory_gib": m.memory_total >> 30, "system": m.system.partition("-")[0], "isa": found.name,
    }  # fmt: skip


def commit() -> str:
    """Of this checkout; with a + where files differ from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(HERE), *arguments]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../terrazzo")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def line(row: rows.Row) -> str:
    """For a terminal."""
    work, threads, ours, theirs, ratio, bar, share, reached = rows.cells(row)
    colour = {"yes": "green", "no": "red", "": "default"}[reached]
    beside = f" beside {theirs}: [{colour}]{ratio.replace('[', chr(92) + '[')}[/]" if theirs else ""
    tail = "".join(f", {x}" for x in (share and f"{share} of the limit", bar) if x)
    plural = "" if threads == "1" else "s"
    return f"{work}, {threads} thread{plural}: {ours}{beside}{tail}"


if __name__ == "__main__":
    path = HERE / "results.json"
    old = json.loads(path.read_text())
    RESULTS.write_text(Store(path, old["machine"], old["parts"]).markdown(), encoding="utf-8")
