"""Decoding while another process keeps one core busy: 2 threads must not lose to 1.

    python benchmarks/contention.py [--model smollm2] [--rounds 7] [--json]

The other process is a loop pinned to one of the CPUs that this one may use; ours choose where they
run. In turns, each for 24 tokens: 1 thread and 2 threads, first without the load, then with it.
Figures: tokens/s, medians [smallest, largest]; the ratio, the median of the rounds'. Recovery:
seconds from the load's end until 2 threads decode 8 tokens at 0.9 of the median of the third second
after it (the machine's own pace changes over minutes).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rows import Row, emit, say

TOKENS, SHORT = 24, 8
CONTEXT = 256
RATIO, RECOVERY_S = 0.9, 1.0
BUSY = (
    "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile 1: pass"
)


class Decoder:
    """A model that decodes from position 64 on, over and over, at so many threads."""

    def __init__(self, model: Path | str, threads: int) -> None:
        from terrazzo.engine import model as engine
        from terrazzo.engine.options import Sampling

        self.m = engine.load(model, threads=threads, context=CONTEXT)
        self.ids = [7 + i for i in range(64)]
        self.greedy = Sampling(temperature=0.0)
        self.rate(2)

    def rate(self, tokens: int) -> float:
        """Tokens a second of decoding `tokens` more than the first one."""
        self.m.generate_ids(self.ids, tokens + 1, ignore_eos=True, sampling=self.greedy)
        return self.m.stats.decode_tokens_per_s


def busy(cpu: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(cpu)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def recovery(two: Decoder) -> float:
    start = time.perf_counter()
    seen: list[tuple[float, float]] = []
    while (at := time.perf_counter() - start) < 3:
        seen.append((at, two.rate(SHORT)))
    usual = statistics.median(rate for at, rate in seen if at > 2)
    return next(at for at, rate in seen if rate >= RATIO * usual)


def rounds(one: Decoder, two: Decoder, count: int) -> tuple[list[float], list[float]]:
    """Rates of `count` rounds in turns."""
    pairs = [(one.rate(TOKENS), two.rate(TOKENS)) for _ in range(count)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def measure(model: Path | str, count: int) -> Iterator[Row]:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise SystemExit("this needs 2 CPUs")
    one, two = Decoder(model, 1), Decoder(model, 2)
    say("2 threads against 1, without a load")
    ones, twos = rounds(one, two, count)
    pace = "decode with 2 threads against 1"
    yield Row(pace, 2, "×", [b / a for a, b in zip(ones, twos, strict=True)])
    recoveries: list[float] = []
    ratios: list[float] = []
    for turn in range(2):
        say(f"2 threads against 1, the load on CPU {cpus[-1 - turn]}")
        other = busy(cpus[-1 - turn])
        try:
            ones, twos = rounds(one, two, count)
            ratios += [b / a for a, b in zip(ones, twos, strict=True)]
            two.rate(TOKENS)
        finally:
            other.kill()
            other.wait()
        recoveries.append(recovery(two))
    yield Row(f"{pace}, another process on one core", 2, "×", ratios, bar=RATIO)
    yield Row("recovery after that process, the slower of two", 2, "s", [max(recoveries)],
              bar=RECOVERY_S, at_most=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="a row a line")
    args = parser.parse_args()
    emit(measure(args.model, args.rounds), args.json)


if __name__ == "__main__":
    main()
