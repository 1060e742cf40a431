"""Outputs of llama.cpp for the texts, written to a folder. Run by an interpreter that has
`llama_cpp` (`benchmarks/peers.py` makes one):

    python tests/oracle/llama_cpp_outputs.py MODEL TEXTS FOLDER

FOLDER gets `ids.json` ({"passages": [ids], "prompts": [ids], "greedy": [ids], "version": text})
and, for each passage i, `logits-I.npy` and `logits-I-flash.npy` (f32 [positions, vocabulary];
without and with its fused attention). Token ids are its tokeniser's: control tokens recognised, no
token added in front.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import llama_cpp  # pyright: ignore[reportMissingImports]
import numpy as np


def main() -> None:
    model, texts, folder = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    outputs: dict[str, object] = {"version": llama_cpp.__version__}
    for flash in (False, True):
        engine = llama_cpp.Llama(
            model, n_ctx=1024, logits_all=True, flash_attn=flash, verbose=False
        )  # fmt: skip
        passages = [_ids(engine, passage["text"]) for passage in texts["passages"]]
        for number, ids in enumerate(passages):
            engine.reset()
            engine.eval(ids)
            tail = "-flash" if flash else ""
            np.save(folder / f"logits-{number}{tail}.npy", engine.scores[: len(ids)])
        if not flash:
            prompts = [_ids(engine, prompt) for prompt in texts["prompts"]]
            outputs |= {"passages": passages, "prompts": prompts}
            outputs["greedy"] = [_greedy(engine, ids, texts["greedy_tokens"]) for ids in prompts]
        engine.close()
    (folder / "ids.json").write_text(json.dumps(outputs))


def _ids(engine: llama_cpp.Llama, text: str) -> list[int]:
    return engine.tokenize(text.encode(), add_bos=False, special=True)


def _greedy(engine: llama_cpp.Llama, ids: list[int], count: int) -> list[int]:
    engine.reset()
    chosen: list[int] = []
    step = ids
    for _ in range(count):
        engine.eval(step)
        step = [int(np.argmax(engine.scores[engine.n_tokens - 1]))]
        chosen += step
    return chosen


if __name__ == "__main__":
    main()
