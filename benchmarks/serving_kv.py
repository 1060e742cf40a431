"""What `terrazzo serve` makes of a memory for keys and values.

    python benchmarks/serving_kv.py [--model smollm2] [--threads 2] [--rounds 2] [--json]

* Keys and values in f16, auto and int8: how many requests of a whole context fit, by the plan of
  `terrazzo fit`; then servers within the same memory, so little that f16 cannot hold all streams,
  under the traffic of `terrazzo bench-serve`, in turns.
* Meanwhile, at the f16 server, whenever at least 16 sequences run and others wait: the share of the
  held blocks' places that have a token, beside what the same tokens would take of contexts that
  are reserved whole for each sequence. Figures are those of /metrics.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import rows
from llama_cpp import model_file
from rows import Row
from servers import Server, good, terrazzo

from terrazzo.cli.fit import parse_bytes
from terrazzo.engine.memory import Planner, Wanted
from terrazzo.engine.program import program_bytes
from terrazzo.models import outline
from terrazzo.models.kv_cache import Kind
from terrazzo.serve.load import Traffic

KINDS: dict[Kind, float] = {"f16": 0.0, "auto": 1.7, "int8": 1.9}  # bars: requests that fit
PLANNED, CONTEXT = "4GiB", 2048
MEMORY, STREAMS, REQUESTS = "540MiB", 32, 48
FULL, USE_BAR = 16, 95.0
Figures = dict[str, float]


def fit(model: Path, threads: int) -> Iterator[Row]:
    """Requests of CONTEXT tokens that fit PLANNED bytes."""
    with program_bytes("terrazzo.engine.engine") as program:
        planner = Planner(outline.read(str(model), None), program())
    fits = {
        kind: planner.largest_parallel(
            Wanted(CONTEXT, 1024, kind, threads=threads), CONTEXT, parse_bytes(PLANNED)
        )
        for kind in KINDS
    }
    for kind, bar in KINDS.items():
        if bar:
            yield Row(f"requests of {CONTEXT:,} tokens that fit {PLANNED}, --kv {kind}", threads,
                      "requests", [fits[kind]], "--kv f16", [fits["f16"]], bar)  # fmt: skip


@contextmanager
def watching(server: Server, every_s: float = 0.2) -> Iterator[list[Figures]]:
    """What /metrics says meanwhile."""
    seen: list[Figures] = []
    over = Event()

    def watch() -> None:
        while not over.wait(every_s):
            with suppress(OSError):  # one that is late is left out
                seen.append(server.figures())

    thread = Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


class Kinds:
    """Rounds of servers with all KINDS within MEMORY."""

    def __init__(self, model: Path, threads: int) -> None:
        self.threads = threads
        self.rates: dict[Kind, list[float]] = defaultdict(list)
        self.preempted: dict[Kind, list[float]] = defaultdict(list)
        self.at_once: dict[Kind, list[float]] = defaultdict(list)
        self.used: list[float] = []  # shares of each round, in %
        self.reserved: list[float] = []
        self.pool: list[float] = []
        self.servers: dict[Kind, Server] = {}
        try:
            for kind in KINDS:
                self.servers[kind] = terrazzo(
                    model, threads, "--context", CONTEXT, "--parallel", STREAMS, "--memory", MEMORY,
                    "--kv", kind, "--name", "smollm2", name=f"terrazzo --kv {kind}",
                )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for server in self.servers.values():
            server.close()

    def round(self, n: int) -> None:
        kinds = list(KINDS)
        for kind in kinds[n % len(kinds) :] + kinds[: n % len(kinds)]:
            server = self.servers[kind]
            with server.turn():
                before = server.figures()["terrazzo_preemptions_total"]
                with watching(server) as seen:
                    got = good(server, Traffic(REQUESTS, STREAMS, seed=n))
                after = server.figures()["terrazzo_preemptions_total"]
            self.rates[kind].append(got.tokens_per_s)
            self.preempted[kind].append(after - before)
            self.at_once[kind].append(max(f["terrazzo_running_sequences"] for f in seen))
            if kind == "f16":
                self._use(seen)

    def _use(self, seen: list[Figures]) -> None:
        """Raises SystemExit if there was no saturation: then nothing was measured."""
        full = [f for f in seen if f["terrazzo_running_sequences"] >= FULL
                and f["terrazzo_waiting_sequences"]]  # fmt: skip
        if not full:
            raise SystemExit(f"never did {FULL} sequences run while others waited")

        def share(token: str, places: str, scale: float = 1.0) -> float:
            return statistics.median(
                100 * f[f"terrazzo_{token}"] / (f[f"terrazzo_{places}"] * scale) for f in full
            )

        self.used.append(share("kv_slots_used", "kv_slots_allocated"))
        self.pool.append(share("kv_slots_used", "kv_blocks", 16))
        self.reserved.append(share("kv_tokens_held", "running_sequences", CONTEXT))

    def table(self) -> Iterator[Row]:
        what = f"{FULL} or more run, others wait"
        yield Row(f"places of held blocks that have a token: {what}", self.threads, "%", self.used,
                  bar=USE_BAR)  # fmt: skip
        yield Row("places of all blocks", self.threads, "%", self.pool)
        yield Row(f"places of a context of {CONTEXT:,} reserved for each sequence",
                  self.threads, "%", self.reserved)  # fmt: skip
        for kind, rates in self.rates.items():
            most, lost = max(self.at_once[kind]), sum(self.preempted[kind])
            note = f"{most:.0f} at once at most, {lost:.0f} preemptions"
            peer = ("--kv f16", self.rates["f16"]) if kind != "f16" else ("", ())
            yield Row(f"{STREAMS} streams within {MEMORY}, --kv {kind}", self.threads, "tokens/s",
                      rates, *peer, note=note)  # fmt: skip


def measure(o: argparse.Namespace, model: Path) -> Iterator[Row]:
    threads = max(o.threads)
    yield from fit(model, threads)
    kinds = Kinds(model, threads)
    try:
        for n in range(o.rounds):
            rows.say(f"{', '.join(KINDS)} within {MEMORY}, round {n + 1} of {o.rounds}")
            kinds.round(n)
    finally:
        kinds.close()
    yield from kinds.table()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="GGUF file or a known name")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="the most of these")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="a row a line")
    o = parser.parse_args()
    rows.emit(measure(o, model_file(o.model)), o.json)


if __name__ == "__main__":
    main()
