"""Whether we have become slower: ratios of this machine, now, against the stored ones.

    python benchmarks/guard.py [--short] [--store] [--json]     (make bench-guard)

No times are compared, only ratios of figures taken in turns in one process: the median over the
rounds may fall below what `guard.json` has for this instruction set and CPU by TOLERANCE, on a CPU
that is not in it below the smallest of the others' by ELSEWHERE (caches differ: of one row beside
NumPy 8.9 on a Xeon, 3.4 on a Zen 4). The yardstick is NumPy, so that a faster f32 of ours makes no
other ratio fall. A ratio above the stored one never fails. A round during which other processes
took more than a tenth of a core is measured again, up to four times.

If a ratio is below its limit all is measured once more, and the better of the two counts. Where
other processes take more than BUSY cores even then, a ratio below its limit is shown, not judged.

`--store` keeps what is measured as this CPU's new figures. Exit status 1: a ratio is below its
limit. A set without stored figures is an error: nothing was guarded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # beside ours on one thread

import numpy as np  # noqa: E402
from undisturbed import others, undisturbed  # noqa: E402

STORED = Path(__file__).with_name("guard.json")
TOLERANCE, ELSEWHERE = 0.3, 0.6  # shares of the ratio; medians move by 10 to 20 % here
BUSY = 0.3
N, K = 1536, 576  # a layer of the demo model: 3.5 MB of f32, 0.9 of q8_0
Work = dict[str, Callable[[], object]]


def seconds(run: Callable[[], object], least: float) -> float:
    """Of one call, over at least `least` seconds."""
    run()
    count, start = 0, time.perf_counter()
    while (took := time.perf_counter() - start) < least:
        run()
        count += 1
    return took / count


def layers() -> Work:
    """linear of M rows x [K, N] by weight format, on one thread; NumPy's product beside it."""
    from terrazzo.ir import formats
    from terrazzo.ir.packed import Packed
    from terrazzo.kernels.linear import linear
    from terrazzo.kernels.norm import rms_norm
    from terrazzo.runtime import launch
    from terrazzo.targets.cpu import layouts

    rng = np.random.default_rng(0)
    weight = rng.standard_normal((N, K), dtype=np.float32)
    work: Work = {}
    for m in (1, 64):
        x = rng.standard_normal((m, K), dtype=np.float32)
        a8 = Packed(formats.A8, (m, K), formats.encode("a8", x))
        for name in ("f32", "q8_0", "q4_0") if m > 1 else ("q8_0", "q4_0"):
            out = np.empty((m, N), np.float32)
            if name == "f32":
                given: dict[str, Any] = {"a": x, "w": weight}
            else:
                data = layouts.repack(name, formats.encode(name, weight), N, K)
                rows = data.reshape(-1, layouts.panel_bytes(name, K))
                w = Packed(layouts.packed(formats.FORMATS[name]), (N, K), rows)
                given = {"a": a8, "w": w}
            ready = launch.Ready(launch.prepare(linear, (), {**given, "out": out}), 1)
            ready.given = {**given, "out": out}
            work[f"{name} x{m}"] = ready.run
        out = np.empty((m, N), np.float32)
        work[f"numpy x{m}"] = lambda x=x, out=out: np.matmul(x, weight.T, out=out)
    x = rng.standard_normal((512, K), dtype=np.float32)
    out, scale = np.empty_like(x), np.ones(K, np.float32)
    given = {"x": x, "weight": scale, "out": out, "eps": 1e-5}
    ready = launch.Ready(launch.prepare(rms_norm, (), given), 1)
    ready.given = given
    work["rms_norm"] = ready.run

    def by_numpy() -> None:
        np.divide(x, np.sqrt(np.einsum("rk,rk->r", x, x)[:, None] / K + 1e-5), out=out)

    work["numpy rms_norm"] = by_numpy
    return work


RATIOS = {  # name: (how much faster this is, than this)
    "numpy / f32, 64 rows": ("f32 x64", "numpy x64"),
    "numpy / q8_0, 1 row": ("q8_0 x1", "numpy x1"),
    "numpy / q4_0, 1 row": ("q4_0 x1", "numpy x1"),
    "numpy / q8_0, 64 rows": ("q8_0 x64", "numpy x64"),
    "numpy / q4_0, 64 rows": ("q4_0 x64", "numpy x64"),
    "numpy / rms_norm": ("rms_norm", "numpy rms_norm"),
}


def kernels(count: int, least: float) -> dict[str, float]:
    work = layers()
    took: dict[str, list[float]] = {name: [] for name in work}

    def measure() -> None:
        for name, run in work.items():
            took[name].append(seconds(run, least))

    def forget() -> None:
        for figures in took.values():
            figures.pop()

    for _ in range(count):
        undisturbed(measure, forget)
    return {
        name: statistics.median(b / a for a, b in zip(took[fast], took[slow], strict=True))
        for name, (fast, slow) in RATIOS.items()
    }


def model(count: int, tokens: int) -> dict[str, float]:
    """Decoding by threads, and the share of the measured bandwidth that one thread's reading of the
    weights takes."""
    from contention import Decoder

    from terrazzo.runtime import machine, threads

    one = Decoder("smollm2", 1)
    size = one.m.step.weights.nbytes
    two = Decoder("smollm2", 2) if threads.default_threads() > 1 else None
    pace: list[float] = []
    shares: list[float] = []

    def measure() -> None:
        rate = one.rate(tokens)
        shares.append(rate * size / (machine.read_bandwidth(size, 1) * 1e9))
        if two is not None:
            pace.append(two.rate(tokens) / rate)

    def forget() -> None:
        shares.pop()
        if pace:
            pace.pop()

    for _ in range(count):
        undisturbed(measure, forget)
    found = {"decode: share of bandwidth, 1 thread": statistics.median(shares)}
    if pace:
        found["decode: 2 threads / 1 thread"] = statistics.median(pace)
    return found


def allowed(
    by_cpu: dict[str, dict[str, float]], here: str, found: Iterable[str]
) -> dict[str, float]:
    """The least a ratio may be, of those that are stored: ratios by CPU, the CPU here."""
    if here in by_cpu:
        return {n: v * (1 - TOLERANCE) for n, v in by_cpu[here].items() if n in found}
    stored = {n: [ratios[n] for ratios in by_cpu.values() if n in ratios] for n in found}
    return {n: min(values) * (1 - ELSEWHERE) for n, values in stored.items() if values}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="some 10 s: kernels only")
    parser.add_argument("--store", action="store_true", help="keep what is measured as the figures")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    from terrazzo.runtime import machine
    from terrazzo.targets.cpu import isa as isas

    isa = isas.detect()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    here = machine.describe().cpu
    by_cpu = stored.setdefault(isa.name, {})
    if not by_cpu and not args.store:
        raise SystemExit(f"error: {STORED.name} has nothing for {isa.name}: run with --store first")

    def measure() -> dict[str, float]:
        return kernels(5, 0.03) if args.short else {**kernels(9, 0.06), **model(5, 32)}

    found = measure()
    if args.store:
        by_cpu.setdefault(here, {}).update({n: round(value, 3) for n, value in found.items()})
        STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
    limits = allowed(by_cpu, here, found)
    busy = 0.0
    if any(found[name] < limit for name, limit in limits.items()):  # by chance? once more
        before, start = others(), time.perf_counter()
        again = measure()
        busy = (others() - before) / (time.perf_counter() - start)
        found = {name: max(value, again[name]) for name, value in found.items()}
    bad = [name for name, limit in limits.items() if found[name] < limit]
    judged = busy < BUSY
    if args.json:
        print(json.dumps({"isa": isa.name, "found": found, "limits": limits, "below": bad,
                          "judged": judged}))  # fmt: skip
    else:
        where = "" if here in by_cpu else f", not this one: {ELSEWHERE:.0%} less is allowed"
        print(f"{isa.name} on {here}; stored on {', '.join(by_cpu)}{where}")
        for name, value in found.items():
            limit = f"at least {limits[name]:.2f}" if name in limits else "not stored"
            print(f"{name:<38}{value:7.2f}  {limit}{'  BELOW' if name in bad else ''}")
    if bad and not judged:
        print(f"not judged: other processes take {busy:.1f} cores", file=sys.stderr)
    sys.exit(1 if bad and judged else 0)


if __name__ == "__main__":
    main()
