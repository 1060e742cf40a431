"""Several sequences decoding at a time: ours against llama.cpp's batched-bench, same file, taking
turns.

    python benchmarks/batch.py [--model smollm2] [--sequences 1 2 4 8 16] [--threads 1 2]
                               [--rounds 3] [--json]

Each side has N sequences with prompts of 64 tokens of their own, then makes 64 tokens of each,
greedily, one of every sequence a step. Figures: all sequences' tokens a second of decoding.

Needs the peer (`python benchmarks/peers.py`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import peers
import rows
from llama_cpp import model_file
from rows import Row

from terrazzo.engine import model as engine
from terrazzo.engine.options import Sampling
from terrazzo.models.kv_cache import PAGE
from terrazzo.models.llama import Chunk

PROMPT, DECODE = 64, 64
BARS = {16: 3.0}  # by sequences


class Ours:
    def __init__(self, model: Path, sequences: int, threads: int) -> None:
        context = PROMPT + DECODE + 1
        self.m = engine.load(model, threads=threads, context=context, sequences=sequences)
        pages = np.arange(self.m.step.cache.pages, dtype=np.int32)
        self.pages = pages.reshape(sequences, -1)
        assert self.pages.shape[1] * PAGE >= context

    def rate(self) -> float:
        """Tokens a second."""
        m, sequences = self.m, len(self.pages)
        last = [0] * sequences
        for s in range(sequences):
            prompt = [(7 * s + 13 * i) % m.config.vocab_size for i in range(PROMPT)]
            one = m.sampler.choose([Sampling(temperature=0.0)], [()])
            m.step.run([Chunk(self.pages[s], prompt, 0)], one)
            last[s] = int(m.sampler.token[0])
        choose = m.sampler.choose([Sampling(temperature=0.0)] * sequences, [()] * sequences)
        start = time.perf_counter()
        for at in range(PROMPT, PROMPT + DECODE):
            m.step.run([Chunk(self.pages[s], [last[s]], at) for s in range(sequences)], choose)
            last = m.sampler.token[:sequences].tolist()
        return sequences * DECODE / (time.perf_counter() - start)


def theirs(peer: peers.Peers, model: Path, sequences: int, threads: int) -> float:
    command = [peer.tools / "llama-batched-bench", "-m", model, "-t", threads, "-tb", threads,
               "-c", sequences * (PROMPT + DECODE + 32), "-b", 2048, "-npp", PROMPT,
               "-ntg", DECODE, "-npl", sequences, "--output-format", "jsonl"]  # fmt: skip
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed ({done.returncode}):\n{done.stderr.strip()}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return next(r["speed_tg"] for r in lines if r["pl"] == sequences)


def measure(o: argparse.Namespace, peer: peers.Peers, model: Path) -> Iterator[Row]:
    for threads in o.threads:
        for n in o.sequences:
            ours = Ours(model, n, threads)
            sides = {
                "ours": ours.rate,
                "theirs": lambda n=n, t=threads: theirs(peer, model, n, t),
            }
            ours.rate()
            title = f"{n} sequences decoding together"
            found = rows.in_turns(o.rounds, sides, f"{title}, {threads} threads")
            yield Row(title, threads, "tokens/s", found["ours"], "llama-batched-bench",
                      found["theirs"], BARS.get(n, 0.0))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2", help="GGUF file or a known name")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=peers.DEFAULT_FOLDER, help="of the peer")
    parser.add_argument("--json", action="store_true", help="a row a line")
    o = parser.parse_args()
    rows.emit(measure(o, peers.require(o.folder), model_file(o.model)), o.json)


if __name__ == "__main__":
    main()
