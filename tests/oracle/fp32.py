"""The independent implementation: transformers' Llama in fp32 on the weights dequantised from the
GGUF file.

transformers reads the file through the `gguf` package (weights and hyper-parameters only: its
tokenizer for GGUF files does not know the `smollm` pre-tokeniser, so token ids come from
elsewhere).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM


def load(path: Path) -> Any:
    """The model, in fp32, ready to evaluate. Takes about 15 s."""
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # steady on a shared machine, and the same sums everywhere
    folder, name = str(path.parent), path.name
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    return model.eval()


def logits(model: Any, ids: list[int]) -> NDArray[np.float32]:
    """[positions, vocabulary] of one sequence."""
    return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def greedy(model: Any, ids: list[int], count: int) -> tuple[list[int], float]:
    """`count` tokens, the most likely each time (end tokens do not stop it), and the smallest lead,
    in logits, that a chosen token had over the second: how near the text came to being another
    one."""
    chosen: list[int] = []
    lead = float("inf")
    step, cache = torch.tensor([ids]), None
    for _ in range(count):
        out = model(step, cache=cache, use_cache=True)
        cache = out.cache
        values, best = torch.topk(out.logits[0, -1], 2)
        lead = min(lead, float(values[0] - values[1]))
        chosen.append(int(best[0]))
        step = best[:1][None]
    return chosen, lead
