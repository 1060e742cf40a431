"""A Llama in torch, f32, in torch's own operations: a peer for prefill (benchmarks/llama_cpp.py).
Run by an interpreter with torch beside terrazzo's dependencies:

    python benchmarks/torch_llama.py MODEL THREADS TOKENS

For each line on standard input it runs a prompt of TOKENS random tokens through the model, the head
for the last one alone, and prints the seconds. The file's matrices are made f32 at the start.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional as f  # pyright: ignore[reportMissingImports]

from terrazzo.ir import formats
from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import GGUF


class Llama:
    """`forward`: token ids [n] -> f32 logits [vocab] after the last of them. Only rotary pairs that
    are interleaved, no biases."""

    def __init__(self, path: Path) -> None:
        gguf = GGUF.open(path)
        self.c = c = LlamaConfig.from_gguf(gguf)
        if c.rope_pairing != "interleaved" or c.attention_bias or c.rope_dim != c.head_dim:
            raise SystemExit(f"{path}: a kind of model that this peer does not have")
        self.w: dict[str, Any] = {}
        for name, info in gguf.tensors.items():
            if info.type == "F32":
                value = gguf.raw(name).view(np.float32).reshape(info.shape).copy()
            else:
                value = formats.decode(info.type.lower(), gguf.raw(name), info.shape)
            self.w[name] = torch.from_numpy(value)
        theta = c.rope_theta ** (-torch.arange(0, c.head_dim, 2) / c.head_dim)
        self.turn = torch.polar(torch.tensor(1.0), torch.arange(1024)[:, None] * theta)[:, None]

    def forward(self, ids: Any) -> Any:
        c, w, n = self.c, self.w, len(ids)
        x = w["token_embd.weight"][ids]
        for layer in range(c.layers):
            p = f"blk.{layer}."
            h = f.rms_norm(x, (c.hidden,), w[p + "attn_norm.weight"], c.rms_eps)
            q, k, v = (
                f.linear(h, w[f"{p}attn_{name}.weight"]).view(n, heads, c.head_dim)
                for name, heads in zip("qkv", (c.heads, c.kv_heads, c.kv_heads), strict=True)
            )
            q, k, v = (t.transpose(0, 1)[None] for t in (self.rotated(q), self.rotated(k), v))
            a = f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + f.linear(a[0].transpose(0, 1).reshape(n, -1), w[p + "attn_output.weight"])
            h = f.rms_norm(x, (c.hidden,), w[p + "ffn_norm.weight"], c.rms_eps)
            gate = f.silu(f.linear(h, w[p + "ffn_gate.weight"]))
            x = x + f.linear(gate * f.linear(h, w[p + "ffn_up.weight"]), w[p + "ffn_down.weight"])
        last = f.rms_norm(x[-1], (c.hidden,), w["output_norm.weight"], c.rms_eps)
        return f.linear(last, w["token_embd.weight" if c.tied_output else "output.weight"])

    def rotated(self, x: Any) -> Any:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turn[: len(x)]).flatten(2)


def main() -> None:
    path, threads, tokens = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    with torch.inference_mode():
        model = Llama(path)
        for _ in sys.stdin:
            ids = torch.randint(0, model.c.vocab_size, (tokens,))
            start = time.perf_counter()
            model.forward(ids)
            print(json.dumps(time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
