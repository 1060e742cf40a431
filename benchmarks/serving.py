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
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import peers
import rows
from llama_cpp import model_file
from rows import Row
from servers import Server, good, llama_server, terrazzo

from terrazzo.serve import load

LOADS = {1: 3, 4: 8, 16: 24}  # requests of a run, by streams
CONTEXT, PARALLEL = 2048, 16
THROUGHPUT_BAR, FIRST_BAR, GAP_BAR = 1.5, 0.7, 1.0  # the first at the most streams


@dataclass(frozen=True)
class Sample:
    """A run; `cpu_s` of the server meanwhile; the share of its tokens that drafts gave."""

    run: load.Run
    cpu_s: float
    drafted: float = 0.0

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
        before, cpu = server.figures() if ours else {}, server.cpu_s()
        run = good(server, t)
        cpu = server.cpu_s() - cpu
        after = server.figures() if ours else {}
    name = "terrazzo_accepted_tokens_total"
    return Sample(run, cpu, (after[name] - before[name]) / run.tokens if ours else 0.0)


def compare(sides: tuple[Server, Server], rounds: int) -> dict[tuple[str, int], list[Sample]]:
    """Samples by server and streams. Raises SystemExit if the two did not do the same work."""
    found: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for n in range(rounds):
        for at, streams in enumerate(LOADS):
            rows.say(f"{streams} streams, round {n + 1} of {rounds}")
            work: set[tuple[int, int]] = set()
            for server in sides[:: 1 if (n + at) % 2 == 0 else -1]:
                got = sample(server, streams, seed=100 * n + streams)
                found[server.name, streams].append(got)
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
        yield Row(what, threads, "tokens/s", [s.run.tokens_per_s for s in ours], peer,
                  [s.run.tokens_per_s for s in theirs], THROUGHPUT_BAR if streams == most else 0.0,
                  note=f"{guessed:.0%} of the tokens by drafts")  # fmt: skip
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
        beside = statistics.median(s.client_s for s in theirs)
        yield Row(f"{what}: the load client's own CPU", threads, "s", [s.client_s for s in ours],
                  note=f"{share[0]:.1%} of a core; with {peer} {beside:.2f} s,"
                  f" {share[1]:.1%}")  # fmt: skip


def measure(o: argparse.Namespace, peer: peers.Peers, model: Path) -> Iterator[Row]:
    threads = max(o.threads)
    slots = ("--context", CONTEXT, "--parallel", PARALLEL)
    ours = terrazzo(model, threads, *slots, "--name", "smollm2")
    try:
        theirs = llama_server(peer, model, threads, PARALLEL, CONTEXT * PARALLEL)
        try:
            yield from table(compare((ours, theirs), o.rounds), threads)
        finally:
            theirs.close()
    finally:
        ours.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="GGUF file or a known name")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="the most of these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=peers.DEFAULT_FOLDER, help="of the peer")
    parser.add_argument("--json", action="store_true", help="a row a line")
    o = parser.parse_args()
    rows.emit(measure(o, peers.require(o.folder), model_file(o.model)), o.json)


if __name__ == "__main__":
    main()
