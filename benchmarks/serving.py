"""`terrazzo serve` beside llama-server: the same file, cores, KV budget and traffic, in turns.

    python benchmarks/serving.py [--model smollm2] [--threads 2] [--rounds 3] [--json]

Traffic as `terrazzo bench-serve` sends it: a system message of 500 tokens that all share, questions
of 50 to 800, answers of 32 to 256 tokens of a length fixed before (`ignore_eos`), greedy, streamed;
1, 4 and 16 at a time. Each load of each round has a seed of its own, and both servers have seen its
system message before, in every slot that it uses. Both run all the time, but only the one that is
measured is not stopped (benchmarks/servers.py); who goes first alternates.

Figures: tokens/s of all streams together, the median time to the first text, the 99th percentile of
the time between two pieces of text, the server's CPU seconds for 1,000 tokens, and what of a core
the load client takes itself. Ours drafts by lookup, its default: the notes say what came of it.

Needs the peer (`python benchmarks/peers.py`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import peers
import rows
from llama_cpp import model_file
from rows import Row
from servers import Server, good, llama_server, terrazzo
from undisturbed import calm, others

from terrazzo.serve import load

LOADS = {1: 2, 4: 6, 16: 20}  # requests of a run, by streams
CONTEXT, PARALLEL = 2048, 16
PATIENCE_S = 60.0  # waited for other processes in all: one that spins takes llama-server's pace
THROUGHPUT_BAR, FIRST_BAR, GAP_BAR = 1.5, 0.7, 1.0  # the first at the most streams


@dataclass(frozen=True)
class Sample:
    """A run; `cpu_s` of the server meanwhile; cores that processes other than it and the client
    took; the share of its tokens that drafts gave."""

    run: load.Run
    cpu_s: float
    disturbed: float
    drafted: float

    @property
    def client_s(self) -> float:
        return self.run.client_cpu * self.run.wall_s


def sample(server: Server, streams: int, seed: int) -> Sample:
    """Raises SystemExit if a request failed."""
    t = load.Traffic(LOADS[streams], streams, seed=seed)
    first = replace(t, requests=streams, prompt=(1, 1), answer=(1, 1))  # the same system message
    with server.turn():
        good(server, first)
        ours = server.name == "terrazzo"
        before = server.figures() if ours else {}
        cpu, other = server.cpu_s(), others()
        run = good(server, t)
        cpu, other = server.cpu_s() - cpu, others() - other
        after = server.figures() if ours else {}
    name = "terrazzo_accepted_tokens_total"
    drafted = (after[name] - before[name]) / run.tokens if ours else 0.0
    return Sample(run, cpu, (other - cpu) / run.wall_s, drafted)  # `others` counts the server


def compare(
    sides: tuple[Server, Server], rounds: int, minutes: float
) -> dict[tuple[str, int], list[Sample]]:
    """Samples by server and streams. A round after the first is left out, and said to be, if it
    would not end within `minutes`. Raises SystemExit if the two did not do the same work."""
    found: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    start, patience = time.perf_counter(), PATIENCE_S
    for n in range(rounds):
        so_far = (time.perf_counter() - start) / 60
        if n and so_far * (n + 1) / n > minutes:
            rows.say(f"{n} of {rounds} rounds took {so_far:.1f} minutes: no more")
            break
        for at, streams in enumerate(LOADS):
            rows.say(f"{streams} streams, round {n + 1} of {rounds}")
            work: set[tuple[int, int]] = set()
            for server in sides[:: 1 if (n + at) % 2 == 0 else -1]:
                patience -= calm(patience)
                got = sample(server, streams, seed=100 * n + streams)
                found[server.name, streams].append(got)
                if got.disturbed > 0.1:
                    rows.say(f"others took {got.disturbed:.1f} cores beside {server.name}")
                work.add((got.run.prompt_tokens, got.run.tokens))
            if len(work) > 1:
                raise SystemExit(f"prompts and answers differ in size: {sorted(work)}")
    return found


def table(found: dict[tuple[str, int], list[Sample]], threads: int) -> Iterator[Row]:
    peer, most = "llama-server", max(LOADS)
    for streams in LOADS:
        ours, theirs = found["terrazzo", streams], found[peer, streams]
        what = f"{streams} stream" + "s" * (streams > 1)
        guessed = statistics.median(s.drafted for s in ours)
        busy = [statistics.median(s.disturbed for s in side) for side in (ours, theirs)]
        beside = f"; others took {busy[0]:.1f} and {busy[1]:.1f} cores" if max(busy) > 0.05 else ""
        yield Row(what, threads, "tokens/s", [s.run.tokens_per_s for s in ours], peer,
                  [s.run.tokens_per_s for s in theirs], THROUGHPUT_BAR if streams == most else 0.0,
                  note=f"{guessed:.0%} of the tokens by drafts{beside}")  # fmt: skip
        yield Row(f"{what}: first token, median", threads, "ms",
                  [1e3 * s.run.first_s[0] for s in ours], peer,
                  [1e3 * s.run.first_s[0] for s in theirs], FIRST_BAR, at_most=True)  # fmt: skip
        yield Row(f"{what}: between pieces of text, 99 %", threads, "ms",
                  [1e3 * s.run.gap_s[2] for s in ours], peer,
                  [1e3 * s.run.gap_s[2] for s in theirs], GAP_BAR, at_most=True)  # fmt: skip
        yield Row(f"{what}: the server's CPU for 1,000 tokens", threads, "s",
                  [1e3 * s.cpu_s / s.run.tokens for s in ours], peer,
                  [1e3 * s.cpu_s / s.run.tokens for s in theirs])  # fmt: skip
        share = [statistics.median(s.run.client_cpu for s in side) for side in (ours, theirs)]
        client = statistics.median(s.client_s for s in theirs)
        yield Row(f"{what}: the load client's own CPU", threads, "s", [s.client_s for s in ours],
                  note=f"{share[0]:.1%} of a core; with {peer} {client:.2f} s,"
                  f" {share[1]:.1%}")  # fmt: skip


def measure(o: argparse.Namespace, peer: peers.Peers, model: Path) -> Iterator[Row]:
    threads = max(o.threads)
    slots = ("--context", CONTEXT, "--parallel", PARALLEL)
    ours = terrazzo(model, threads, *slots, "--name", "smollm2")
    try:
        theirs = llama_server(peer, model, threads, PARALLEL, CONTEXT * PARALLEL)
        try:
            yield from table(compare((ours, theirs), o.rounds, o.minutes), threads)
        finally:
            theirs.close()
    finally:
        ours.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="GGUF file or a known name")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="the most of these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=6.0, help="no round that ends later")
    parser.add_argument("--folder", type=Path, default=peers.DEFAULT_FOLDER, help="of the peer")
    parser.add_argument("--json", action="store_true", help="a row a line")
    o = parser.parse_args()
    rows.emit(measure(o, peers.require(o.folder), model_file(o.model)), o.json)


if __name__ == "__main__":
    main()
