"""`terrazzo bench MODEL --roofline`: each kernel of a step against what the machine can do.

The least time of a kernel is the longest of three: its weights, keys and values at the bandwidth of
the step's working set, its activations at the bandwidth of the caches, its operations at the peak
of the instruction it uses; all three measured in the same run. Share = least time / time taken.

A kernel that takes over 5 % of a step's time and stays under 60 % of its limit needs a written
reason (`models/costs.py`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from terrazzo.cli import terminal

if TYPE_CHECKING:
    from terrazzo.engine.model import Model
    from terrazzo.models.costs import Cost
    from terrazzo.runtime.recording import Profile

CACHED = 256 << 10  # bytes: a working set of activations
PROFILES = {"decode": 41, "prefill": 5}
MUCH, FAR = 0.05, 0.6  # of the time; of the limit


@dataclass(frozen=True)
class Limits:
    """Per second: bytes of the step's working set, bytes from the caches, operations."""

    stream: float
    cache: float
    f32: float
    int8: float

    def least(self, cost: Cost) -> tuple[float, str]:
        """Seconds, and what bounds them."""
        peak = self.int8 if cost.int8 else self.f32
        times = {"memory": cost.streamed / self.stream, "cache": cost.passed / self.cache,
                 "int8" if cost.int8 else "f32": cost.operations / peak}  # fmt: skip
        bound = max(times, key=lambda name: times[name])
        return times[bound], bound


def measure(
    m: Model, prompt: int, depth: int, say: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Both steps: the last piece of a prompt of `prompt` tokens, and one token at `depth`."""
    from terrazzo.cli import bench
    from terrazzo.runtime import machine

    say("profiling", 0, 0)
    ids = bench.ids(m, max(prompt, depth + 1), 0)
    m.generate_ids(ids[:prompt], 1, ignore_eos=True)
    chunk = (prompt - 1) % m.step.budget.tokens + 1
    steps = {"prefill": _rows(m, chunk, prompt - chunk)}
    m.generate_ids(ids[: depth + 1], 2, ignore_eos=True)
    steps["decode"] = _rows(m, 1, depth + 1)
    say("measuring the machine", 0, 0)
    working_set = bench.bytes_per_token(m, depth)
    f32 = machine.f32_peak(m.threads) * 1e9
    limits = Limits(
        machine.read_bandwidth(working_set, m.threads) * 1e9,
        machine.read_bandwidth(CACHED * m.threads, m.threads) * 1e9,
        f32,
        (machine.int8_peak(m.threads) or f32 / 1e9) * 1e9,
    )
    return {
        "model": m.path,
        "threads": m.threads,
        "working_set_bytes": working_set,
        "stream_bytes_per_s": limits.stream,
        "cache_bytes_per_s": limits.cache,
        "f32_operations_per_s": limits.f32,
        "int8_operations_per_s": limits.int8,
        "steps": [
            {
                "step": name,
                "tokens": tokens,
                "start": start,
                "kernels": _table(name, costs, took, limits),
            }
            for name, (tokens, start, costs, took) in steps.items()
        ],
    }


def _rows(m: Model, tokens: int, start: int) -> tuple[int, int, list[Cost], list[float]]:
    """(tokens, start, costs, seconds) of the step that ran last, launch by launch."""
    from terrazzo.models.costs import step_costs

    int8 = m.activations == "int8"
    costs = step_costs(m.config, m.step.weights, m.step.cache.elements, int8, tokens, start)
    count = PROFILES["decode" if tokens == 1 else "prefill"]
    return tokens, start, costs, _seconds(m.step.recording.profiles(count))[: len(costs)]


def _seconds(profiles: Sequence[Profile]) -> list[float]:
    """Of each launch: the median."""
    return [
        statistics.median(times)
        for times in zip(*([x.seconds for x in p.launches] for p in profiles), strict=True)
    ]


def _table(step: str, costs: list[Cost], took: list[float], limits: Limits) -> list[dict[str, Any]]:
    """A row a part of the model, the longest first. `far`: takes much of the time and stays far
    from its limit; `reason`: why, None if nothing is written down."""
    from terrazzo.models.costs import BELOW_LIMIT

    rows: dict[str, dict[str, Any]] = {}
    whole = sum(took)
    for cost, seconds in zip(costs, took, strict=True):
        least, bound = limits.least(cost)
        row = rows.setdefault(cost.part, {
            "part": cost.part, "kernel": cost.kernel, "launches": 0, "bytes": 0, "operations": 0,
            "us": 0.0, "least_us": 0.0, "bound": bound,
        })  # fmt: skip
        row["launches"] += 1
        row["bytes"] += cost.streamed + cost.passed
        row["operations"] += cost.operations
        row["us"] += 1e6 * seconds
        row["least_us"] += 1e6 * least
    for row in rows.values():
        row["share_of_limit"] = row["least_us"] / row["us"] if row["us"] else 0.0
        row["share_of_time"] = row["us"] / (1e6 * whole) if whole else 0.0
        row["far"] = row["share_of_time"] > MUCH and row["share_of_limit"] < FAR
        row["reason"] = BELOW_LIMIT.get((step, row["part"])) if row["far"] else None
    return sorted(rows.values(), key=lambda row: -row["us"])


def report(r: dict[str, Any]) -> None:
    """A table a step."""
    print(
        f"{r['threads']} threads: {r['stream_bytes_per_s'] / 1e9:.1f} GB/s at"
        f" {terminal.nbytes(r['working_set_bytes'])}, {r['cache_bytes_per_s'] / 1e9:.0f} GB/s from"
        f" the caches, {r['f32_operations_per_s'] / 1e9:,.0f} GFLOP/s in f32,"
        f" {r['int8_operations_per_s'] / 1e9:,.0f} GOP/s in int8"
    )
    for step in r["steps"]:
        print(f"\n{step['step']}: {step['tokens']} tokens from position {step['start']:,} on\n")
        terminal.table(
            ("PART", "KERNEL", "LAUNCHES", "BYTES", "MOP", "µs", "OF THE TIME", "LIMIT",
             "OF THE LIMIT"),
            [
                (k["part"], k["kernel"], k["launches"], terminal.nbytes(k["bytes"]),
                 f"{k['operations'] / 1e6:,.1f}", f"{k['us']:,.1f}", f"{k['share_of_time']:.0%}",
                 k["bound"], f"{k['share_of_limit']:.0%}")
                for k in step["kernels"]
            ],
            right=(2, 3, 4, 5, 6, 8),
        )  # fmt: skip
    far = [(step["step"], k) for step in r["steps"] for k in step["kernels"] if k["far"]]
    if far:
        print(f"\nover {MUCH:.0%} of the time, under {FAR:.0%} of the limit:\n")
    for step, k in far:
        reason = k["reason"] or "NO REASON IS WRITTEN DOWN"
        print(f"{step}, {k['part']}: {k['share_of_limit']:.0%}: {reason}")
