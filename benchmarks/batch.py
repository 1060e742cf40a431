"""Several sequences decoding at a time: ours against llama.cpp's batched-bench, same file, taking
turns.

    python benchmarks/batch.py [MODEL] [--sequences 1 2 4 8 16] [--threads 2] [--rounds 3] [--json]

Each side has N sequences with prompts of 64 tokens of their own, then makes 64 tokens of each,
greedily, one of every sequence a step. Figures: all sequences' tokens a second of decoding, median
[smallest, largest] of the rounds; the median of the rounds' ratios. One process a sample.

Needs the peer (`python benchmarks/peers.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import peers
from llama_cpp import model_file
from rich.console import Console
from rich.table import Table

PROMPT, DECODE = 64, 64
LIMIT = (16, 3.0)  # sequences, ratio asked for


def ours(model: Path, sequences: int, threads: int) -> float:
    """Tokens a second, in this process."""
    import numpy as np

    from terrazzo.engine import model as engine
    from terrazzo.engine.options import Sampling
    from terrazzo.models.kv_cache import PAGE
    from terrazzo.models.llama import Chunk

    context = PROMPT + DECODE + 1
    m = engine.load(model, threads=threads, context=context, sequences=sequences)
    pages = np.arange(m.step.cache.pages, dtype=np.int32).reshape(sequences, -1)
    assert pages.shape[1] * PAGE >= context
    last = [0] * sequences
    for s in range(sequences):
        prompt = [(7 * s + 13 * i) % m.config.vocab_size for i in range(PROMPT)]
        one = m.sampler.choose([Sampling(temperature=0.0)], [()])
        m.step.run([Chunk(pages[s], prompt, 0)], one)
        last[s] = int(m.sampler.token[0])
    choose = m.sampler.choose([Sampling(temperature=0.0)] * sequences, [()] * sequences)
    start = time.perf_counter()
    for at in range(PROMPT, PROMPT + DECODE):
        m.step.run([Chunk(pages[s], [last[s]], at) for s in range(sequences)], choose)
        last = m.sampler.token[:sequences].tolist()
    return sequences * DECODE / (time.perf_counter() - start)


def theirs(peer: peers.Peers, model: Path, sequences: int, threads: int) -> float:
    command = [peer.tools / "llama-batched-bench", "-m", model, "-t", threads, "-tb", threads,
               "-c", sequences * (PROMPT + DECODE + 32), "-b", 2048, "-npp", PROMPT,
               "-ntg", DECODE, "-npl", sequences, "--output-format", "jsonl"]  # fmt: skip
    rows = [json.loads(line) for line in _output([str(c) for c in command])]
    return next(r["speed_tg"] for r in rows if r["pl"] == sequences)


def _output(command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr.strip()}")
    return [line for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2", help="GGUF file or a known name")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--threads", type=int, nargs="+", default=[len(os.sched_getaffinity(0))])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=peers.DEFAULT_FOLDER, help="of the peer")
    parser.add_argument("--json", action="store_true", help="print every sample as JSON")
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    model = model_file(o.model)
    if o.ours:  # one sample
        print(json.dumps({"rate": ours(model, o.sequences[0], o.threads[0])}))
        return
    peer = peers.find(o.folder)
    if peer is None:
        raise SystemExit("llama.cpp is not built: python benchmarks/peers.py")
    rates: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    for number in range(o.rounds):
        for threads in o.threads:
            for n in o.sequences:
                for who in ("terrazzo", "llama.cpp")[:: 1 if number % 2 == 0 else -1]:
                    if who == "terrazzo":
                        own = [sys.executable, __file__, str(model), "--ours", "--sequences"]
                        line = _output([*own, str(n), "--threads", str(threads)])[-1]
                        rate = json.loads(line)["rate"]
                    else:
                        rate = theirs(peer, model, n, threads)
                    rates[n, threads, who].append(rate)
        print(f"round {number + 1} of {o.rounds} done", file=sys.stderr, flush=True)
    if o.json:
        print(json.dumps([{"sequences": n, "threads": t, "who": w, "samples": v}
                          for (n, t, w), v in rates.items()], indent=1))  # fmt: skip
        return
    table = Table("sequences", "threads", "terrazzo", "llama.cpp", "ratio", "limit",
                  title="decoding together, tokens/s")  # fmt: skip
    for n, threads in dict.fromkeys((n, t) for n, t, _ in rates):
        sides = [rates[n, threads, w] for w in ("terrazzo", "llama.cpp")]
        ratio = statistics.median(a / b for a, b in zip(*sides, strict=True))
        texts = [f"{statistics.median(v):.0f} \\[{min(v):.0f}, {max(v):.0f}]" for v in sides]
        limit = f"{LIMIT[1]} x" if n == LIMIT[0] else ""
        table.add_row(str(n), str(threads), *texts, f"{ratio:.2f} x", limit)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
