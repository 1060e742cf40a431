"""Measures everything beside its peers and writes benchmarks/RESULTS.md.   (make bench)

    python benchmarks/run.py [PART ...] [--folder .venv-bench] [--torch-python PYTHON] [--dry]

PART: some of the parts listed by --help, all without one; rows of other parts stay as the last run
on this machine left them, and other machines' results stay beside (results.json). Each part is a
script of its own that takes turns with its peer and hands over rows as they come. What cannot run
here (a peer that is missing, a machine with one CPU) is left out, and the results say why.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import peers
import report
import rows
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from undisturbed import others

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent


@dataclass(frozen=True)
class Part:
    """`minutes`: about, for the progress. `torch`: by an interpreter that has it."""

    title: str
    script: str
    arguments: tuple[str, ...] = ()
    minutes: float = 1.0
    peer: bool = False
    torch: bool = False


PARTS = {
    "decode": Part("Decode", "llama_cpp.py", ("decode",), 2, peer=True),
    "prefill": Part("Prefill", "llama_cpp.py", ("prefill",), 2, peer=True),
    "int4": Part("A model of INT4 matrices alone", "llama_cpp.py", ("int4",), 2, peer=True),
    "context": Part("Decode behind a long context", "llama_cpp.py", ("context", "--rounds", "3"), 4,
                    peer=True),
    "batch": Part("Several sequences", "batch.py", (), 3, peer=True),
    "serving": Part("Serving beside llama-server", "serving.py", (), 6, peer=True),
    "serving-kv": Part("Keys and values of a server", "serving_kv.py", (), 3),
    "serving-stalls": Part("Streams while long prompts arrive", "serving_stalls.py", (), 1),
    "start": Part("Start and memory", "llama_cpp.py", ("start",), 1, peer=True),
    "attention": Part("Attention", "kernels.py", ("--only", "attention"), 2, torch=True),
    "gemm": Part("Products of floats", "kernels.py", ("--only", "matmul"), 2, torch=True),
    "lowbit": Part("Products with INT8 and INT4 weights", "kernels.py", ("--only", "linear"), 2,
                   torch=True),
    "elementwise": Part("Norms, activations, rotations, softmax", "kernels.py",
                        ("--only", "rms_norm", "silu_mul", "rope", "softmax"), 2, torch=True),
    "step": Part("A step, by kernel", "step.py"),
    "contention": Part("Under contention", "contention.py"),
}  # fmt: skip


@dataclass
class Outcome:
    """`missing`: why rows are left out, or "". `disturbed`: cores that other processes took."""

    rows: list[rows.Row] = field(default_factory=list)
    missing: str = ""
    seconds: float = 0.0
    disturbed: float = 0.0


def command(part: Part, o: argparse.Namespace) -> list[str]:
    python = o.torch_python if part.torch else sys.executable
    out = [python, str(HERE / part.script), *part.arguments, "--json"]
    if part.script != "contention.py":
        out += ["--threads", *map(str, o.threads)]
    if part.peer:
        out += ["--folder", str(o.folder)]
    if part.script == "llama_cpp.py" and o.torch_python:
        out += ["--torch-python", o.torch_python]
    return out


def why_not(part: Part, o: argparse.Namespace) -> str:
    """Why a part cannot run here, or ""."""
    if part.peer and peers.find(o.folder) is None:
        return f"llama.cpp is not built in {o.folder.name}: `make bench-peers`"
    if part.torch and not o.torch_python:
        return "no interpreter with torch: `make bench-peers`"
    return ""


def run(part: Part, o: argparse.Namespace, progress: Progress) -> Outcome:
    """Rows as they come; a script that fails keeps those it had, and its last words."""
    outcome = Outcome(missing=why_not(part, o))
    if outcome.missing:
        return outcome
    task = progress.add_task(part.title, total=None)
    start, before = time.perf_counter(), others()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (
        str(REPOSITORY), os.environ.get("PYTHONPATH"))))}  # fmt: skip
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(part, o), stdout=pipe, stderr=pipe, text=True,
                               env=environment)  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    words: list[str] = []

    def listen(lines: Iterator[str]) -> None:
        for line in lines:
            words.append(line.strip())
            progress.update(task, description=f"{part.title}: {words[-1][:60]}")

    ear = Thread(target=listen, args=(process.stderr,))
    ear.start()
    try:
        for line in process.stdout:
            row = rows.Row(**json.loads(line))
            outcome.rows.append(row)
            progress.console.print(report.line(row), soft_wrap=True)
        process.wait()
    finally:
        process.kill()  # Ctrl-C: the child had it too
        process.wait()
        ear.join()
    if process.returncode:
        outcome.missing = f"stopped ({process.returncode}): {' '.join(words[-3:])[-300:]}"
    outcome.seconds = time.perf_counter() - start
    outcome.disturbed = (others() - before) / outcome.seconds
    progress.remove_task(task)
    return outcome


def with_torch(given: str | None) -> str | None:
    """An interpreter that has torch: the given one, this one, or that of `make oracle`."""
    asked = [given] if given else [sys.executable, str(REPOSITORY / ".venv-oracle/bin/python")]
    for python in asked:
        found = shutil.which(python)
        test = [found or "", "-c", "import torch"]
        if found and subprocess.run(test, capture_output=True, cwd=REPOSITORY).returncode == 0:
            return found
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--folder", type=Path, default=peers.DEFAULT_FOLDER, help="of llama.cpp")
    parser.add_argument("--torch-python", help="an interpreter with torch beside terrazzo")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dry", action="store_true", help="show the rows, write nothing")
    o = parser.parse_args()
    unknown = [name for name in o.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    o.torch_python = with_torch(o.torch_python)
    chosen = {name: PARTS[name] for name in o.parts or PARTS}
    store = report.Store.read(HERE / "results.json")
    here = store.here()
    console = Console(stderr=True)
    bar = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*bar, console=console, transient=True) as progress:
        whole = progress.add_task("all", total=sum(p.minutes for p in chosen.values()))
        for n, (name, part) in enumerate(chosen.items()):
            progress.update(whole, description=f"part {n + 1} of {len(chosen)}")
            outcome = run(part, o, progress)
            if outcome.missing:
                console.print(f"[yellow]left out of {part.title}:[/] {outcome.missing}")
            here.parts[name] = report.stored(part.title, outcome)
            here.parts = {name: here.parts[name] for name in PARTS if name in here.parts}
            if not o.dry:  # after each, so that little is lost
                store.write()
            progress.advance(whole, part.minutes)
    if not o.dry:
        console.print(f"written: {report.RESULTS.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
