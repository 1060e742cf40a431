"""One process of llama.cpp's Python API, for benchmarks/llama_cpp.py. Run by an interpreter with
`llama_cpp`:

    python -P benchmarks/llama_cpp_api.py MODEL THREADS TOKENS PROMPT

Loads the model, makes TOKENS tokens greedily, prints {"prompt_tokens", "first_token_s",
"decode_tokens_per_s"}.
"""

from __future__ import annotations

import importlib
import json
import sys
import time


def main() -> None:
    model, threads, count, prompt = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    api = importlib.import_module("llama_cpp")  # not its namesake in this folder: hence -P
    engine = api.Llama(model, n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)
    ids = engine.tokenize(prompt.encode(), add_bos=False)
    start = time.perf_counter()
    tokens = engine.generate(ids, temp=0.0)
    next(tokens)
    first = time.perf_counter()
    for _ in range(count - 1):
        next(tokens)
    seconds = time.perf_counter() - first
    rate = (count - 1) / seconds if count > 1 else None
    figures = {"prompt_tokens": len(ids), "first_token_s": first - start}
    print(json.dumps(figures | {"decode_tokens_per_s": rate}))


if __name__ == "__main__":
    main()
