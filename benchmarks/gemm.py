"""fp32 matrix products: the library's `matmul` against torch.mm, in one process, taking turns.

    python benchmarks/gemm.py [--threads 1 2] [--sizes 512 1024 2048] [--rounds 15] [--json]

Needs torch beside terrazzo (`make oracle` makes such an environment: .venv-oracle/bin/python). Each
round times one after the other; the table has medians, and the median of the rounds' ratios. The
limit is the multiply-add peak measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from terrazzo.kernels.linear import matmul
from terrazzo.runtime import launch, machine

PAUSE_S = 0.03  # lets the other side's spinning threads fall asleep before ours are timed


def timed(run: Callable[[], object]) -> float:
    time.sleep(PAUSE_S)
    run()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(n: int, threads: int, rounds: int, peak: float) -> dict[str, Any]:
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(threads)
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((2, n, n), dtype=np.float32)
    out = np.empty_like(a)
    ta, tb, tout = torch.from_numpy(a), torch.from_numpy(b), torch.empty((n, n))
    ready = launch.Ready(launch.prepare(matmul, (a, b, out), {}), threads)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        ours.append(timed(ready.run))
        theirs.append(timed(lambda: torch.mm(ta, tb, out=tout)))
    error = float(np.abs(out - tout.numpy()).max())
    work = 2 * n**3 / 1e9
    return {
        "n": n,
        "threads": threads,
        "ours_gflop_s": work / statistics.median(ours),
        "torch_gflop_s": work / statistics.median(theirs),
        "ratio": statistics.median(t / o for o, t in zip(ours, theirs, strict=True)),
        "of_peak": work / statistics.median(ours) / peak,
        "max_difference": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for threads in args.threads:
        peak = machine.f32_peak(threads)
        rows += [compare(n, threads, args.rounds, peak) for n in args.sizes]
    if args.json:
        print(json.dumps(rows))
        return
    table = Table(title="fp32 n x n x n: GFLOP/s, medians")
    for name in ("n", "threads", "terrazzo", "torch", "ratio", "of FMA peak", "max difference"):
        table.add_column(name, justify="right")
    for r in rows:
        table.add_row(
            str(r["n"]), str(r["threads"]), f"{r['ours_gflop_s']:.1f}", f"{r['torch_gflop_s']:.1f}",
            f"{r['ratio']:.2f}", f"{r['of_peak']:.0%}", f"{r['max_difference']:.1e}",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
