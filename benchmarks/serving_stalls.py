"""How long a stream that runs waits for others' prompts, at `terrazzo serve`.

    python benchmarks/serving_stalls.py [--model smollm2] [--threads 2] [--rounds 3] [--json]

4 streams run while prompts of 1,500 to 1,800 tokens arrive. The longest time between two pieces of
a stream's text, beside the bound: what a whole step of prompts takes at that depth when nothing
else runs (the last 240 of 1,740 tokens, the others known), for a step in which sequences decode
takes at most half as many prompt tokens. A sequence that is preempted waits for its turn, and is
not meant.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import rows
from llama_cpp import model_file
from rows import Row
from servers import Server, good, terrazzo

from terrazzo.engine.blocks import BLOCK
from terrazzo.engine.options import EngineOptions
from terrazzo.serve.load import Traffic

CONTEXT = 2048
RUNNING, LEAST = 4, 6
LONG = (1500, 1800)
DEPTH, LAST = 1500, 240


def whole_step(server: Server, seed: int) -> float:
    """Seconds of a step of prompts alone, at the depth of a long prompt's end: the longer prompt of
    the seed begins as its shorter one does, and is found in the cache so far."""
    begin, end = (
        good(server, Traffic(1, 1, shared=0, prompt=(n, n), answer=(1, 1), seed=seed))
        for n in (DEPTH, DEPTH + LAST)
    )
    missing = end.prompt_tokens - begin.prompt_tokens + BLOCK
    assert EngineOptions.step_tokens - BLOCK <= missing <= EngineOptions.step_tokens
    return end.first_s[0]


def stalls(model: Path, threads: int, rounds: int) -> Iterator[Row]:
    server = terrazzo(model, threads, "--context", CONTEXT, "--parallel", 16, "--name", "smollm2")
    figures: dict[str, float] = {}
    gaps: list[float] = []
    bounds: list[float] = []
    try:
        for n in range(rounds):
            rows.say(f"stalls, round {n + 1} of {rounds}")
            with server.turn():
                bounds.append(1e3 * whole_step(server, 1000 + n))
                gaps.append(1e3 * _longest_gap(server, n))
                figures = server.figures()
    finally:
        server.close()
    most = EngineOptions.mixed_tokens
    yield Row(f"{RUNNING} streams while prompts of {LONG[0]:,} to {LONG[1]:,} tokens arrive:"
              " longest time between pieces", threads, "ms", gaps, "a whole step of prompts",
              bounds, 1.0, at_most=True)  # fmt: skip
    yield Row("most prompt tokens in a step in which sequences decode", threads, "tokens",
              [figures["terrazzo_mixed_step_prompt_tokens"]], bar=most, at_most=True)  # fmt: skip
    yield Row("longest such step", threads, "ms",
              [1e3 * figures["terrazzo_longest_mixed_step_seconds"]])  # fmt: skip


def _longest_gap(server: Server, seed: int) -> float:
    """Seconds, of streams beside which prompts arrive, two at a time, from the first to the end."""
    streams = Traffic(RUNNING, RUNNING, shared=0, prompt=(50, 50), answer=(256, 256), seed=seed)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(good, server, streams)
        time.sleep(0.5)  # they run before the first prompt comes
        arrived = 0
        while not running.done():
            some = Traffic(2, 2, shared=0, prompt=LONG, answer=(1, 1), seed=100 * seed + arrived)
            arrived += good(server, some).traffic.requests
        if arrived < LEAST:
            raise SystemExit(f"{arrived} prompts arrived while the streams ran: too few")
        return running.result().longest_gap_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="GGUF file or a known name")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="the most of these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="a row a line")
    o = parser.parse_args()
    rows.emit(stalls(model_file(o.model), max(o.threads), o.rounds), o.json)


if __name__ == "__main__":
    main()
