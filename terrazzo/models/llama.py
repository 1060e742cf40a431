"""The Llama decoder as one recording: token ids in, logits out, every kernel a tile program.

A step takes any mix of sequences and lengths up to its budgets (prompts in pieces, single tokens):
which tokens, positions, pages and rows is data in the step's index arrays, never a new recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from terrazzo.errors import OptionError
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.kernels.attention import attention
from terrazzo.kernels.embedding import embedding
from terrazzo.kernels.linear import gated_linear, linear
from terrazzo.kernels.norm import rms_norm
from terrazzo.kernels.quantize import quantize
from terrazzo.kernels.rope import rope_store_interleaved
from terrazzo.models.config import LlamaConfig
from terrazzo.models.loading import LayerWeights, LlamaWeights
from terrazzo.runtime.recorder import Recorder
from terrazzo.targets.cpu.pool import private_memory

PAGE = 16
SPAN = 32  # queries of one unit of attention
WIDE_K = 1 << 16
LOGIT_ROWS = 32
BY_TOKEN = {"rows": "tokens", "m": "tokens", "tokens": "tokens"}  # dims that are the step's tokens


@dataclass(frozen=True)
class Chunk:
    """Consecutive tokens of one sequence. `pages`: the sequence's page numbers, from its first
    token on; `start`: position of the first token; `logits`: of how many last tokens logits are
    wanted."""

    pages: np.ndarray
    tokens: Sequence[int]
    start: int
    logits: int = 1


@dataclass(frozen=True)
class Budget:
    """What one step can hold at most. `pages` is the size of the whole KV cache."""

    tokens: int
    seqs: int
    pages: int
    rows: int = LOGIT_ROWS

    @property
    def spans(self) -> int:
        return self.seqs + self.tokens // SPAN


class KVCache:
    """Pages of 16 tokens, a layer after the other: K [layers, pages, kv heads, d, 16] (token =
    lane), V [layers, pages, kv heads, 16, d]. f16, or f32 where rounding must not show (`wide`).
    Zero at
    first: what is read past a sequence's end is finite."""

    def __init__(self, config: LlamaConfig, pages: int, wide: bool = False) -> None:
        self.pages = pages
        dtype = np.dtype(np.float32 if wide else np.float16)
        size = self.bytes(config, pages, wide) // 2
        shape = (config.layers, pages, config.kv_heads)
        self.k = private_memory(size).view(dtype).reshape(*shape, config.head_dim, PAGE)
        self.v = private_memory(size).view(dtype).reshape(*shape, PAGE, config.head_dim)

    @staticmethod
    def bytes(config: LlamaConfig, pages: int, wide: bool = False) -> int:
        values = 2 * config.layers * pages * config.kv_heads * config.head_dim * PAGE
        return values * (4 if wide else 2)

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes


class LlamaStep:
    """The recorded step. `int8`: activations are quantised, 16 to a scale, before each product."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: LlamaWeights,
        cache: KVCache,
        budget: Budget,
        *,
        int8: bool,
        threads: int,
    ) -> None:
        self.config, self.weights, self.cache, self.budget, self.int8 = (
            config,
            weights,
            cache,
            budget,
            int8,
        )
        most = -(-config.context_length // PAGE)
        self.ids = self._indices(budget.tokens)
        self.position = self._indices(budget.tokens)
        self.slot = self._indices(budget.tokens)
        self.table = self._indices(budget.seqs, most)
        self.span = self._indices(4, budget.spans)
        self.rows = self._indices(budget.rows)
        size = 4 * budget.rows * config.vocab_size
        self.logits = private_memory(size).view(np.float32).reshape(budget.rows, -1)
        self.recorder = Recorder("step", threads)
        self._record()
        self.recording = self.recorder.finish()

    # -- buffers --------------------------------------------------------------------------------
    @staticmethod
    def _indices(*shape: int) -> np.ndarray:
        """What the host writes before a step."""
        return private_memory(4 * int(np.prod(shape))).view(np.int32).reshape(shape)

    def _floats(self, *shape: int) -> np.ndarray:
        return self.recorder.buffer(shape, np.float32)

    def _activations(self, rows: int, width: int, *readers: Packed) -> np.ndarray | Packed:
        """What products with `readers` read: a8 rows if any of them is low-bit, else f32."""
        if not self.int8 or all(w.format.group == 1 for w in readers):
            return self._floats(rows, width)
        size = formats.bytes_per_row(formats.A8, width)
        return Packed(formats.A8, (rows, width), self.recorder.buffer((rows, size), np.uint8))

    # -- the step -------------------------------------------------------------------------------
    def _record(self) -> None:
        c, w = self.config, self.weights
        x = self._floats(self.budget.tokens, c.hidden)
        self.recorder.add(embedding, BY_TOKEN, table=w.embedding, ids=self.ids, out=x)
        for n, layer in enumerate(w.layers):
            self._attend(n, layer, x)
            self._feed_forward(layer, x)
        last = self._floats(self.budget.rows, c.hidden)
        by_row = {"tokens": "rows", "vocab": "tokens"}
        self.recorder.add(embedding, by_row, table=x, ids=self.rows, out=last)
        h = self._normed(last, w.output_norm, "rows", w.head)
        self._product(h, w.head, self.logits, "rows")

    def _normed(
        self, x: np.ndarray, weight: np.ndarray, rows: str, *readers: Packed
    ) -> np.ndarray | Packed:
        h = self._activations(*x.shape, *readers)
        self.recorder.add(
            rms_norm, {"rows": rows}, x=x, weight=weight, out=h, eps=self.config.rms_eps
        )
        return h

    def _product(
        self, a: np.ndarray | Packed, w: Packed, out: np.ndarray, rows: str, **more: object
    ) -> None:
        self.recorder.add(linear, {"m": rows}, a=a, w=w, out=out, **_whole_k(a, w), **more)

    def _attend(self, n: int, layer: LayerWeights, x: np.ndarray) -> None:
        """x += attention(norm(x)); keys and values of layer n go to the cache."""
        c, t = self.config, self.budget.tokens
        heads, kv, d, half = c.heads, c.kv_heads, c.head_dim, c.head_dim // 2
        h = self._normed(x, layer.attn_norm, "tokens", *layer.qkv)
        qkv = self._floats(t, heads + 2 * kv, d)
        q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv], qkv[:, heads + kv :]
        at = 0
        for part, bias in zip(layer.qkv, layer.qkv_bias, strict=True):
            out = qkv.reshape(t, -1)[:, at : at + part.shape[0]]
            self._product(h, part, out, "tokens", bias=bias)
            at += part.shape[0]
        cos, sin = self.weights.rope
        self.recorder.add(
            rope_store_interleaved,
            BY_TOKEN,
            q=q.reshape(t, heads, half, 2),
            k=k.reshape(t, kv, half, 2),
            v=v,
            cos=cos,
            sin=sin,
            position=self.position,
            slot=self.slot,
            out=q.reshape(t, heads, half, 2),
            kcache=self.cache.k[n].reshape(-1, kv, half, 2, PAGE),
            vcache=self.cache.v[n],
        )
        mixed = self._floats(t, heads * d)
        self.recorder.add(
            attention,
            {"spans": "spans"},
            q=q.reshape(t, kv, heads // kv, d),
            kcache=self.cache.k[n],
            vcache=self.cache.v[n],
            table=self.table,
            seq=self.span[0],
            first=self.span[1],
            count=self.span[2],
            position=self.span[3],
            out=mixed.reshape(t, kv, heads // kv, d),
            scale=d**-0.5,
            BQ=SPAN,
        )
        source = self._activations(t, heads * d, layer.output)
        if isinstance(source, Packed):
            self.recorder.add(quantize, BY_TOKEN, x=mixed, out=source)
        else:
            source = mixed
        self._product(source, layer.output, x, "tokens", bias=layer.output_bias, residual=x)

    def _feed_forward(self, layer: LayerWeights, x: np.ndarray) -> None:
        """x += down(silu(gate(norm(x))) * up(norm(x)))."""
        h = self._normed(x, layer.ffn_norm, "tokens", layer.gate, layer.up)
        ffn = self._activations(len(x), self.config.ffn, layer.down)
        self.recorder.add(
            gated_linear,
            BY_TOKEN,
            a=h,
            gate=layer.gate,
            up=layer.up,
            out=ffn,
            **_whole_k(h, layer.gate),
        )
        self._product(ffn, layer.down, x, "tokens", bias=layer.down_bias, residual=x)

    def run(self, chunks: Sequence[Chunk]) -> np.ndarray:
        """Run one step; returns f32 [rows, vocab], the chunks' wanted logits in order: a view that
        the next step overwrites. Raises OptionError if the chunks exceed the budget."""
        tokens = sum(len(c.tokens) for c in chunks)
        rows = sum(c.logits for c in chunks)
        spans = sum(-(-len(c.tokens) // SPAN) for c in chunks)
        b = self.budget
        if tokens > b.tokens or len(chunks) > b.seqs or rows > b.rows or spans > b.spans:
            raise OptionError(
                f"a step of {tokens} tokens, {len(chunks)} sequences, {rows} rows exceeds {b}"
            )
        at = row = span = 0
        for n, c in enumerate(chunks):
            count = len(c.tokens)
            where = np.arange(c.start, c.start + count, dtype=np.int32)
            self.ids[at : at + count] = c.tokens
            self.position[at : at + count] = where
            self.slot[at : at + count] = c.pages[where // PAGE] * PAGE + where % PAGE
            used = -(-(c.start + count) // PAGE)
            self.table[n, :used] = c.pages[:used]
            for i in range(0, count, SPAN):
                self.span[:, span] = n, at + i, min(SPAN, count - i), c.start + i
                span += 1
            self.rows[row : row + c.logits] = np.arange(at + count - c.logits, at + count)
            at, row = at + count, row + c.logits
        self.recording.set("tokens", tokens)
        self.recording.set("spans", spans)
        self.recording.set("rows", rows)
        self.recording.replay()
        return self.logits[:rows]


def _whole_k(a: np.ndarray | Packed, w: Packed) -> dict[str, int]:
    """Products of a8 rows with low-bit weights read both in place: no reason to cut k."""
    return {"K": WIDE_K} if isinstance(a, Packed) and w.format.group > 1 else {}
