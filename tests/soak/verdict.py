"""What a soak has found, as rows of a table, and the reasons why it failed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from soak.replay import Compared
from soak.rounds import Found

GROWTH, READY_S, FILES = 0.02, 2.0, 4
WARM_UP = 0.25  # of the rounds: what is kept for good is made in these


@dataclass(frozen=True)
class Memory:
    """Medians over the first and the last third of the rounds after the warm-up, bytes."""

    name: str
    before: float
    after: float

    @property
    def growth(self) -> float:
        return self.after / self.before - 1


def memory(rss: Sequence[dict[str, int]]) -> list[Memory]:
    """By process and of all together; of processes that were there in every round looked at."""
    rounds = list(rss[max(1, round(len(rss) * WARM_UP)) :])
    third = max(1, len(rounds) // 3)
    first, last = rounds[:third], rounds[-third:]
    names = [n for n in rounds[-1] if all(n in r for r in rounds)]
    out = [Memory(n, statistics.median(r[n] for r in first), statistics.median(r[n] for r in last))
           for n in names]  # fmt: skip
    whole = [statistics.median(sum(r.values()) for r in part) for part in (first, last)]
    return [*out, Memory("all", *whole)]


@dataclass
class Soak:
    """`stats`: the engine's at the end of the traffic. `end`: what the restart and the log say."""

    seed: int
    traffic_s: float
    found: Found
    stats: dict[str, Any]
    compared: Compared
    ready_s: list[float]
    end: list[str]

    @property
    def failures(self) -> list[str]:
        found, out = self.found, list(self.found.faults)
        every = memory(found.rss)[-1]
        if every.growth > GROWTH:
            out.append(f"memory of all processes: from {every.before / 2**20:.1f} to"
                       f" {every.after / 2**20:.1f} MiB, {every.growth:.1%}")  # fmt: skip
        if found.files[-1] > found.files[0] + FILES:
            out.append(f"open files: {found.files[0]} after the first round, {found.files[-1]}"
                       " after the last")  # fmt: skip
        out += [f"alone it is another answer: {d}" for d in self.compared.different]
        if statistics.median(self.ready_s) > READY_S:
            out.append(f"killed, it was back after {_seconds(self.ready_s)}, not {READY_S:g}")
        # A run in which nothing was tight says nothing.
        must = {"answers compared": self.compared.answers, "429": found.statuses["429"],
                "preemptions": self.stats["preemptions"], "tokens found": self.stats["hit_tokens"],
                "drafted tokens": self.stats["drafted_tokens"],
                "hung up": found.statuses["hung up"]}  # fmt: skip
        out += [f"the traffic has brought about no {name}" for name, n in must.items() if not n]
        return [*out, *self.end]

    def rows(self) -> list[tuple[str, str]]:
        f, s, c = self.found, self.stats, self.compared
        statuses = ", ".join(f"{n} × {k}" for k, n in sorted(f.statuses.items()))
        mib = [
            f"{m.name} {m.before / 2**20:.1f} → {m.after / 2**20:.1f} MiB ({m.growth:+.2%})"
            for m in memory(f.rss)
        ]
        return [
            ("requests", f"{sum(f.counts.values()):,} in {self.traffic_s:.0f} s and"
             f" {len(f.rss)} rounds, seed {self.seed}"),
            ("", ", ".join(f"{n} {k}" for k, n in sorted(f.counts.items()))),
            ("answered", statuses),
            ("slowest", f"{f.slowest_s:.1f} s"),
            ("engine", f"{s['tokens']:,} tokens, {s['preemptions']:,} preemptions,"
             f" {s['hit_tokens']:,} prompt tokens found, {s['accepted_tokens']:,} of"
             f" {s['drafted_tokens']:,} drafted ones right"),
            ("compared", f"{c.answers:,} of {len(f.finished):,} answers alone: {c.choices:,}"
             f" choices, {c.tokens:,} tokens, {len(c.different)} differ"
             f" ({c.cached} found a beginning)"),
            *[("memory" if not i else "", text) for i, text in enumerate(mib)],
            ("open files", f"{f.files[0]} → {f.files[-1]}"),
            ("killed", f"ready again after {_seconds(self.ready_s)}"),
        ]  # fmt: skip

    def json(self) -> dict[str, Any]:
        return {
            "seed": self.seed, "traffic_s": self.traffic_s, "requests": dict(self.found.counts),
            "answered": dict(self.found.statuses), "slowest_s": self.found.slowest_s,
            "tokens": self.stats["tokens"], "preemptions": self.stats["preemptions"],
            "hit_tokens": self.stats["hit_tokens"], "compared": self.compared.answers,
            "finished": len(self.found.finished), "different": len(self.compared.different),
            "memory": {m.name: {"before": m.before, "after": m.after, "growth": m.growth}
                       for m in memory(self.found.rss)},
            "rss": self.found.rss, "files": self.found.files, "ready_s": self.ready_s,
            "failures": self.failures,
        }  # fmt: skip


def _seconds(values: Sequence[float]) -> str:
    return ", ".join(f"{v:.2f}" for v in values) + " s"
