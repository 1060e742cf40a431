"""What each kernel of a Llama step has to read, write and compute, whatever it does in fact.

The list mirrors what `llama_layers.Layers` records; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.models.config import LlamaConfig
from terrazzo.models.kv_cache import token_bytes
from terrazzo.models.loading import LlamaWeights


@dataclass(frozen=True)
class Cost:
    """One launch. `part`: what it is in the model. Bytes: `streamed` are weights, keys and values,
    which a step reads once; `passed` are activations, which stay in the caches. `operations`: a
    multiply-add is 2, of a product alone; `int8`: its operands are bytes."""

    part: str
    kernel: str
    streamed: int = 0
    passed: int = 0
    operations: int = 0
    int8: bool = False


_SCALES = (
    "sums of 16 products of bytes are scaled before they are added up: beside 4 dot instructions"
    " there are a conversion and two multiply-adds on the same ports, so 57 % is the most, without"
    " unpacking codes"
)
BELOW_LIMIT = {
    ("prefill", "q, k, v"): _SCALES,
    ("prefill", "attention out"): _SCALES,
    ("prefill", "gate, up"): _SCALES,
    ("prefill", "down"): _SCALES,
    ("prefill", "attention"): (
        "blocks of 256 positions are computed whole where the mask's diagonal crosses them, though"
        " only visible pairs are counted, and each score costs its maximum, exp and sum on the"
        " ports that multiply"
    ),
}
"""(step, part): why a kernel that takes a good part of the time stays far from the machine's
limit."""


def step_costs(
    config: LlamaConfig, weights: LlamaWeights, elements: Sequence[np.dtype], int8: bool,
    tokens: int, start: int, rows: int = 1,
) -> list[Cost]:  # fmt: skip
    """The launches, in order, of a step of `tokens` tokens of one sequence from position `start`
    on, with logits for `rows` of them. `int8`: as the step was made."""
    c = config
    wide = (c.heads + 2 * c.kv_heads) * c.head_dim
    kv = c.kv_heads * c.head_dim
    inner = c.heads * c.head_dim

    def row(width: int, *readers: Packed) -> int:
        """Bytes of a row of activations that products with `readers` read."""
        low = int8 and any(w.format.group > 1 for w in readers)
        return formats.bytes_per_row(formats.A8, width) if low else 4 * width

    def low(*readers: Packed) -> bool:
        return row(32, *readers) != 4 * 32

    def product(part: str, count: int, *matrices: Packed, kernel: str = "linear", more: int = 0,
                out: int = 4) -> Cost:  # fmt: skip
        n, k = sum(m.shape[0] for m in matrices), matrices[0].shape[1]
        return Cost(
            part, kernel, sum(m.data.nbytes for m in matrices),
            count * (row(k, *matrices) + out * n + more), 2 * count * n * k, low(*matrices),
        )  # fmt: skip

    seen = sum(range(start + 1, start + tokens + 1))  # (query, key) pairs
    out: list[Cost] = [Cost("embedding", "embedding", passed=8 * tokens * c.hidden)]
    for layer, element in zip(weights.layers, elements, strict=True):
        held = token_bytes(c, element)
        into = row(c.hidden, *layer.qkv)
        out.append(Cost("attention norm", "rms_norm", passed=tokens * (4 * c.hidden + into)))
        out += [product("q, k, v", tokens, m) for m in layer.qkv]
        turned = tokens * (8 * (wide - kv) + 4 * kv + held)
        out.append(Cost("rope, store", "rope_store_interleaved", passed=turned))
        out.append(Cost("attention", "attention_parts", (start + tokens) * held,
                        8 * tokens * inner, 4 * seen * inner))  # fmt: skip
        both = tokens * (4 * inner + row(inner, layer.output))
        out.append(Cost("join parts", "join_parts", passed=both))
        out.append(product("attention out", tokens, layer.output, more=4 * c.hidden))
        into = row(c.hidden, layer.gate, layer.up)
        out.append(Cost("feed-forward norm", "rms_norm", passed=tokens * (4 * c.hidden + into)))
        gated = product("gate, up", tokens, layer.gate, layer.up, kernel="gated_linear", out=0,
                        more=row(c.ffn, layer.down))  # fmt: skip
        out += [gated, product("down", tokens, layer.down, more=4 * c.hidden)]
    into = row(c.hidden, weights.head)
    return [
        *out,
        Cost("last rows", "embedding", passed=8 * rows * c.hidden),
        Cost("output norm", "rms_norm", passed=rows * (4 * c.hidden + into)),
        product("head", rows, weights.head),
    ]
