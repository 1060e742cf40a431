"""What benchmarks/run.py measured, kept and shown: results.json, RESULTS.md, a line of a terminal.

`python benchmarks/report.py` writes RESULTS.md anew from results.json. Both keep what each machine
measured.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
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

Written by `make bench`: change nothing here. What stands behind the figures, accuracy
and the DaVinci model are in [NOTES.md](NOTES.md). The machine that measured last comes first.

Medians of rounds in which both sides took turns. Ratio: median [smallest, largest] of the rounds'
ratios, how many times better than the peer; where the bar is an upper one (≤), ours over the
peer's. "of the limit": of the bandwidth measured in the same run at the same working set, in the
last table of what the machine could do at most. Peers: llama.cpp from the sources in
llama-cpp-python {peer} (`benchmarks/peers.py`), torch; `own f32` is our own fp32 product.
"""


@dataclass
class Measured:
    """What one machine measured. Parts by name: title, date, commit, disturbed, missing, rows (as
    `rows.to_dict`)."""

    machine: dict[str, Any]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def json(self) -> str:
        """A row a line."""
        parts: list[str] = []
        for name, part in self.parts.items():
            head = json.dumps({k: v for k, v in part.items() if k != "rows"})
            table = ",\n".join(json.dumps(row, ensure_ascii=False) for row in part["rows"])
            parts.append(f'{json.dumps(name)}: {head[:-1]}, "rows": [\n{table}]}}')
        body = ",\n".join(parts)
        return f'{{"machine": {json.dumps(self.machine)}, "parts": {{\n{body}\n}}}}'

    def name(self) -> str:
        m = self.machine
        return (f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['system']};"
                f" instruction set `{m['isa']}`")  # fmt: skip

    def bars(self) -> str:
        reached = [r.reached() for p in self.parts.values() for r in _rows(p)]
        yes = reached.count(True)
        return f"{yes} of {yes + reached.count(False)} bars are reached."

    def markdown(self) -> str:
        out = [f"## {self.name()}\n", f"{self.bars()}\n"]
        for part in self.parts.values():
            out.append(f"### {part['title']}\n")
            others = part["disturbed"]
            busy = f"; other processes took {others:.2f} cores" if others >= 0.05 else ""
            if part["rows"]:
                out += [f"{part['date']}, commit {part['commit']}{busy}.\n"]
                out += [*rows.markdown(_rows(part)), ""]
            if part["missing"]:
                rest = "The rest is left out" if part["rows"] else "Left out"
                out.append(f"{rest}: {part['missing']}.\n")
        return "\n".join(out)


@dataclass
class Store:
    """The machines that measured, the one that did last first."""

    path: Path
    machines: list[Measured]

    @classmethod
    def read(cls, path: Path) -> Store:
        old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        return cls(path, [Measured(**each) for each in old])

    def here(self) -> Measured:
        """This machine's, from now on the first."""
        now = facts()
        mine = next((m for m in self.machines if m.machine == now), Measured(now))
        self.machines = [mine, *(m for m in self.machines if m is not mine)]
        return mine

    def write(self) -> None:
        """The file and RESULTS.md."""
        text = ",\n".join(m.json() for m in self.machines)
        self.path.write_text(f"[{text}]\n", encoding="utf-8")
        parts = [HEAD.format(peer=peers.VERSION), *(m.markdown() for m in self.machines)]
        RESULTS.write_text("\n".join(parts), encoding="utf-8")


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
    Store.read(HERE / "results.json").write()
