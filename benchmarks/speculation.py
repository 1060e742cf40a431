"""Prompt lookup against plain decoding, in turns on one engine process each way.

    python benchmarks/speculation.py [--rounds 5]

Edits (the answer repeats its prompt, held to that by the questions' form) and other prompts, one
sequence, greedy. Prints tokens a second without and with drafts, the ratio of the rounds, and how
many drafted tokens were right. Bars: 1.5 on edits, 0.97 on others; the answers have to be equal.
"""

from __future__ import annotations

import argparse
import statistics
import time

from terrazzo.engine.engine import Engine
from terrazzo.engine.options import EngineOptions
from terrazzo.engine.request import Request

TEXT = (
    "The harbour was quiet in the morning. Three boats lay at the pier, and an old man mended"
    " nets on the deck of the largest. A boy carried a basket of bread along the quay, past the"
    " house of the harbour master, whose windows were still dark. The tide had turned an hour ago."
)
EDITS = (
    f"Copy this text exactly.\n\nText: {TEXT}\n\nCopy: {TEXT}\n\nText: {TEXT}\n\nCopy:",
    f"A text:\n\n{TEXT}\n\nThe same text again:\n\n{TEXT}\n\nAnd again:\n\n",
)
OTHERS = (
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "Explain why the sky is blue to a child of ten.",
    "List ten things that one can do on a rainy day, with a reason for each.",
)


def rate(engine: Engine, prompt: str, name: str) -> tuple[float, list[int], float]:
    """Tokens a second after the first one, the tokens, the share of drafts that were right."""
    ids = tuple(engine.tokenizer.encode(prompt))
    engine.add(Request(name, ids, max_tokens=160))
    tokens: list[int] = []
    first, right = 0.0, 0.0
    while engine.busy:
        for e in engine.step():
            first = first or time.perf_counter()
            tokens += e.tokens
            if e.usage and e.usage.drafted_tokens:
                right = e.usage.accepted_tokens / e.usage.drafted_tokens
    return (len(tokens) - 1) / (time.perf_counter() - first), tokens, right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="smollm2")
    a = parser.parse_args()
    plain, drafting = (
        Engine(EngineOptions(a.model, context=1024, parallel=1, draft=d)) for d in (None, "lookup")
    )
    for kind, prompts in (("edit", EDITS), ("other", OTHERS)):
        for n, prompt in enumerate(prompts):
            ratios, rates, right = [], [], 0.0
            for r in range(a.rounds):
                one, want, _ = rate(plain, prompt, f"{kind}{n}{r}")
                two, got, right = rate(drafting, prompt, f"{kind}{n}{r}")
                assert got == want, "drafts have changed the answer"
                ratios.append(two / one)
                rates.append((one, two))
            before, after = (statistics.median(x) for x in zip(*rates, strict=True))
            print(
                f"{kind} {n}: {before:.0f} -> {after:.0f} tokens/s, {statistics.median(ratios):.2f}"
                f" x [{min(ratios):.2f}, {max(ratios):.2f}], {right:.0%} of drafted tokens right"
            )


if __name__ == "__main__":
    main()
