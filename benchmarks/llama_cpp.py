"""A model's speed, start and memory beside llama.cpp: same file, same machine, taking turns.

    python benchmarks/llama_cpp.py PART [--model smollm2] [--threads 1 2] [--rounds 5] [--json]

PART, one of:

* prefill: a prompt of 512 tokens, against llama-bench on the same file, on the same model in Q4_0
  (its best format) and torch in f32; a row against the best of them;
* decode: 128 tokens, against llama-bench and llama.cpp's Python API;
* int4: both for the model in Q4_0 alone (`llama-quantize --pure`);
* context: 32 tokens behind 2,000, 4,000 and 8,000 (llama-bench with flash attention);
* start: a whole process that makes one token after a prompt of 19, and its peak resident memory,
  with everything cached, against the Python API; with nothing cached, and what compiling takes.

A sample of ours is the same work in this process, whose model stays loaded; one of llama-bench is
the median of its RUNS. Needs the peer (`python benchmarks/peers.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import peers
import rows
from rows import Row

from terrazzo.cli import bench
from terrazzo.engine import model as engine
from terrazzo.models import store
from terrazzo.runtime import machine

PROMPT = (
    "The three most important inventions in the history of computing are the transistor,"
    " the compiler and the network"
)  # 19 tokens
PREFILL, DECODE = 512, 128
DEPTHS, BEHIND = (2000, 4000, 8000), 32
RUNS = 2
PREFILL_BAR, BEST_BAR = 5.0, 2.0
DECODE_BARS, INT4_BARS = {1: 1.9, 2: 2.4}, {1: 2.0, 2: 2.4}
DEPTH_BAR, START_BAR, MEMORY_BAR, COMPILE_BAR = 1.5, 1.2, 1.15, 1.5
HERE = Path(__file__).parent


class Ours:
    """A loaded model; every call is a run with a prompt of its own."""

    def __init__(self, model: Path, threads: int) -> None:
        self.m = engine.load(model, threads=threads)
        self.numbers = count()

    def prefill(self) -> float:
        return bench.prefill_rate(self.m, PREFILL, next(self.numbers))

    def decode(self, tokens: int = DECODE, depth: int = 0) -> float:
        return bench.decode_rate(self.m, tokens, depth, next(self.numbers))

    def share(self, rate: float, depth: int) -> float:
        """Of the bandwidth, at `rate` tokens/s."""
        moved = bench.bytes_per_token(self.m, depth)
        return rate * moved / (machine.read_bandwidth(moved, self.m.threads) * 1e9)


def llama_bench(peer: peers.Peers, model: Path, threads: int, *sizes: object) -> float:
    """Tokens/s: the median of RUNS after one that warms up."""
    command = [peer.llama_bench, "-m", model, "-t", threads, "-r", RUNS, "-o", "json", *sizes]
    (row,) = _json([str(part) for part in command])
    return statistics.median(row["samples_ts"])


class Torch:
    """benchmarks/torch_llama.py in an interpreter that has torch; a process that waits."""

    def __init__(self, python: str, model: Path, threads: int) -> None:
        command = [python, str(HERE / "torch_llama.py"), str(model), str(threads), str(PREFILL)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.prefill()

    def prefill(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("benchmarks/torch_llama.py failed")
        return PREFILL / json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def prefill(o: argparse.Namespace, peer: peers.Peers, model: Path) -> Iterator[Row]:
    title = f"prefill of {PREFILL}"
    for threads in o.threads:
        ours, small = Ours(model, threads), int4_file(peer, model)
        sides: dict[str, Callable[[], float]] = {
            "ours": ours.prefill,
            "llama-bench": lambda t=threads: llama_bench(peer, model, t, "-p", PREFILL, "-n", 0),
            "llama-bench Q4_0": lambda t=threads, f=small: llama_bench(
                peer, f, t, "-p", PREFILL, "-n", 0
            ),
        }
        torch = Torch(o.torch_python, model, threads) if o.torch_python else None
        if torch:
            sides["torch f32"] = torch.prefill
        ours.prefill()
        samples = rows.in_turns(o.rounds, sides, f"{title}, {threads} threads")
        if torch:
            torch.close()
        mine = samples.pop("ours")
        best = max(samples, key=lambda name: statistics.median(samples[name]))
        for name, theirs in samples.items():
            bar = PREFILL_BAR if name == "llama-bench" else 0.0
            yield Row(title, threads, "tokens/s", mine, name, theirs, bar)
        note = "the best of these" if torch else "the best of these; torch is missing"
        yield Row(title, threads, "tokens/s", mine, best, samples[best], BEST_BAR, note=note)


def decode(o: argparse.Namespace, peer: peers.Peers, model: Path) -> Iterator[Row]:
    title = f"decode of {DECODE}"
    for threads in o.threads:
        ours = Ours(model, threads)
        sides = {
            "ours": ours.decode,
            "llama-bench": lambda t=threads: llama_bench(peer, model, t, "-p", 0, "-n", DECODE),
            "llama_cpp in Python": lambda t=threads: _json(_api(peer, model, t, DECODE))[
                "decode_tokens_per_s"
            ],
        }
        ours.decode()
        samples = rows.in_turns(o.rounds, sides, f"{title}, {threads} threads")
        mine = samples.pop("ours")
        share = ours.share(statistics.median(mine), DECODE // 2)
        bars = {"llama-bench": DECODE_BARS.get(threads, 0.0)}
        for name, theirs in samples.items():
            bar = bars.get(name, 0.0)
            yield Row(title, threads, "tokens/s", mine, name, theirs, bar, share=share)


def int4(o: argparse.Namespace, peer: peers.Peers, model: Path) -> Iterator[Row]:
    model = int4_file(peer, model)
    for threads in o.threads:
        ours = Ours(model, threads)
        for title, run, sizes, bar in (
            (f"decode of {DECODE}", ours.decode, ("-p", 0, "-n", DECODE), INT4_BARS.get(threads)),
            (f"prefill of {PREFILL}", ours.prefill, ("-p", PREFILL, "-n", 0), None),
        ):
            sides = {
                "ours": run,
                "llama-bench": lambda t=threads, s=sizes: llama_bench(peer, model, t, *s),
            }
            run()
            found = rows.in_turns(o.rounds, sides, f"Q4_0, {title}, {threads} threads")
            yield Row(f"Q4_0, {title}", threads, "tokens/s", found["ours"], "llama-bench",
                      found["llama-bench"], bar or 0.0)  # fmt: skip


def context(o: argparse.Namespace, peer: peers.Peers, model: Path) -> Iterator[Row]:
    for threads in o.threads:
        ours = Ours(model, threads)
        for depth in DEPTHS:
            title = f"decode of {BEHIND} behind {depth:,}"
            sizes = ("-p", 0, "-n", BEHIND, "-d", depth, "-fa", 1)
            sides = {
                "ours": lambda d=depth, of=ours: of.decode(BEHIND, d),
                "llama-bench": lambda t=threads, s=sizes: llama_bench(peer, model, t, *s),
            }
            ours.decode(BEHIND, depth)  # fills the context
            found = rows.in_turns(o.rounds, sides, f"{title}, {threads} threads")
            share = ours.share(statistics.median(found["ours"]), depth + BEHIND // 2)
            yield Row(title, threads, "tokens/s", found["ours"], "llama-bench",
                      found["llama-bench"], DEPTH_BAR, share=share)  # fmt: skip


def start(o: argparse.Namespace, peer: peers.Peers, model: Path) -> Iterator[Row]:
    for threads in o.threads:
        own = [sys.executable, "-m", "terrazzo", "generate", str(model), PROMPT, "--max-tokens"]
        own += ["1", "--temperature", "0", "--threads", str(threads), "--json"]
        who = {name: ([], []) for name in ("cold", "warm", "API")}  # seconds, MiB
        compiles: list[float] = []
        for number in range(o.rounds):
            rows.say(f"start, {threads} threads, round {number + 1} of {o.rounds}")
            with tempfile.TemporaryDirectory() as cache:
                environment = os.environ | {"TERRAZZO_CACHE": cache}
                for name, command in (
                    ("API", _api(peer, model, threads, 1)), ("cold", own), ("warm", own)
                ):  # fmt: skip
                    seconds, peak, said = _whole(command, environment)
                    if name == "cold":
                        compiles.append(json.loads(said)["compile_s"])
                    who[name][0].append(seconds)
                    who[name][1].append(peak)
        api = "llama_cpp in Python"
        title = "process that makes one token after 19"
        yield Row(title, threads, "s", who["warm"][0], api, who["API"][0], START_BAR, True)
        yield Row(f"{title}, nothing cached", threads, "s", who["cold"][0], api, who["API"][0])
        yield Row("compiling all kernels", threads, "s", compiles, bar=COMPILE_BAR, at_most=True)
        title = "peak resident memory of that process"
        yield Row(title, threads, "MiB", who["warm"][1], api, who["API"][1], MEMORY_BAR, True)


PARTS = {f.__name__: f for f in (prefill, decode, int4, context, start)}


def int4_file(peer: peers.Peers, model: Path) -> Path:
    """The model with Q4_0 matrices only, made once beside the peer."""
    file = peer.tools.parent.parent / f"{model.stem}-pure-Q4_0.gguf"
    if not file.exists():
        rows.say(f"making {file.name}")
        made = file.with_suffix(".part")
        command = [peer.tools / "llama-quantize", "--allow-requantize", "--pure", model, made]
        subprocess.run([*command, "Q4_0"], check=True, capture_output=True)
        made.rename(file)
    return file


def _api(peer: peers.Peers, model: Path, threads: int, tokens: int) -> list[str]:
    # -P: the package llama_cpp, not its namesake in the script's folder.
    python = [str(peer.python), "-P", str(HERE / "llama_cpp_api.py")]
    return [*python, str(model), str(threads), str(tokens), PROMPT]


def _json(command: list[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def _whole(command: list[str], environment: dict[str, str]) -> tuple[float, float, str]:
    """Seconds from start to end of a process, its peak resident MiB, and what it printed."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed with exit code {child.returncode}")
        out.seek(0)
        return seconds, usage.ru_maxrss / 1024, out.read()


def model_file(name: str) -> Path:
    return Path(name).resolve() if Path(name).is_file() else store.pull(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--model", default="smollm2", help="GGUF file or a known name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, default=peers.DEFAULT_FOLDER, help="of the peer")
    parser.add_argument("--torch-python", help="an interpreter with torch")
    parser.add_argument("--json", action="store_true", help="a row a line")
    o = parser.parse_args()
    peer = peers.require(o.folder)
    rows.emit(PARTS[o.part](o, peer, model_file(o.model)), o.json)


if __name__ == "__main__":
    main()
