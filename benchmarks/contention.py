"""Decoding while another process keeps one core busy: 2 threads must not lose to 1.

    python benchmarks/contention.py [MODEL] [--rounds 7] [--json]

The other process is a loop pinned to one of the CPUs that this one may use; ours choose where they
run. In turns, each for 24 tokens: 1 thread and 2 threads, first without the load, then with it.
Figures: tokens/s, medians [smallest, largest]; the ratio, the median of the rounds'. Recovery:
seconds from the load's end until 2 threads again decode 8 tokens at 0.9 of their rate without load.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

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


def rounds(one: Decoder, two: Decoder, count: int) -> tuple[list[float], list[float]]:
    """Rates of `count` rounds in turns."""
    pairs = [(one.rate(TOKENS), two.rate(TOKENS)) for _ in range(count)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def measure(model: Path | str, count: int) -> dict[str, object]:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise SystemExit("this needs 2 CPUs")
    one, two = Decoder(model, 1), Decoder(model, 2)
    free = rounds(one, two, count)
    usual = statistics.median(free[1])
    recoveries: list[float] = []
    loaded: tuple[list[float], list[float]] = ([], [])
    for turn in range(2):
        other = busy(cpus[-1 - turn])
        try:
            got = rounds(one, two, count)
            for whole, part in zip(loaded, got, strict=True):
                whole += part
            two.rate(TOKENS)
        finally:
            other.kill()
            other.wait()
        start = time.perf_counter()
        while two.rate(SHORT) < RATIO * usual and time.perf_counter() - start < 10:
            pass
        recoveries.append(time.perf_counter() - start)
    ratios = [b / a for a, b in zip(*loaded, strict=True)]
    return {
        "free": free,
        "loaded": loaded,
        "ratio_free": statistics.median(b / a for a, b in zip(*free, strict=True)),
        "ratio_loaded": statistics.median(ratios),
        "recovery_s": max(recoveries),
    }


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} [{min(values):.1f}, {max(values):.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.model, args.rounds)
    if args.json:
        print(json.dumps(found))
        return
    for name in ("free", "loaded"):
        one, two = found[name]  # type: ignore[misc]
        print(f"{name:<7} 1 thread {spread(one)}, 2 threads {spread(two)} tokens/s")
    print(f"2 threads / 1 thread: {found['ratio_free']:.2f} without the load")
    print(f"  {found['ratio_loaded']:.2f} with it, at least {RATIO} is asked for")
    print(f"recovery: {found['recovery_s']:.2f} s, at most {RECOVERY_S} is asked for")


if __name__ == "__main__":
    main()
