"""What a step of the model is made of: its dispatch, and kernels that stay far from their limits.

    python benchmarks/step.py [--model smollm2] [--threads 1 2] [--rounds 5] [--json]

Dispatch: what a decoded token takes beyond the kernels themselves (`terrazzo bench`). Kernels:
those that take over 5 % of the time of a decode step or of a piece of a prompt of 512 (`terrazzo
bench --roofline`); their share is that of the machine's limit, 60 % or a written reason are asked
for.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator

from rows import Row, emit, say

from terrazzo.cli import bench, roofline
from terrazzo.engine import model as engine
from terrazzo.runtime import machine

DISPATCH_BARS = {2: 60.0}  # µs, by threads


def measure(model: str, threads: int, rounds: int) -> Iterator[Row]:
    say(f"dispatch, {threads} threads")
    m = engine.load(model, threads=threads)
    bench.decode_rate(m, 16, 0, 0)
    runs = [m.step.recording.profiles(bench.PROFILES) for _ in range(rounds)]
    samples = [1e6 * statistics.median(p.dispatch_s for p in profiles) for profiles in runs]
    profiles = runs[-1]
    barriers = profiles[0].barriers
    body = statistics.median(p.body_s for p in profiles)
    floor = 1e6 * machine.dispatch_floor(max(barriers, 1), body, threads)
    moved = bench.bytes_per_token(m, 16) / 2**20
    note = f"{barriers} barriers, {moved:.0f} MiB; the machine's own unrest {floor:.0f} µs"
    yield Row("dispatch of a token", threads, "µs", samples, bar=DISPATCH_BARS.get(threads, 0.0),
              at_most=True, note=note)  # fmt: skip
    found = roofline.measure(m, 512, 0, lambda what, _at, _of: say(f"{what}, {threads} threads"))
    for step in found["steps"]:
        for k in step["kernels"]:
            if k["share_of_time"] <= roofline.MUCH:
                continue
            note = f"{k['share_of_time']:.0%} of the time, limit: {k['bound']}"
            yield Row(f"{step['step']}: {k['part']}", threads, "µs", [k["us"]],
                      share=k["share_of_limit"], share_bar=0.0 if k["reason"] else roofline.FAR,
                      note=note, reason=k["reason"] or "")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="GGUF file or a known name")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="a row a line")
    o = parser.parse_args()
    emit((row for t in o.threads for row in measure(o.model, t, o.rounds)), o.json)


if __name__ == "__main__":
    main()
