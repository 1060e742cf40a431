"""The Llama decoder as one recording: token ids in, logits out, every kernel a tile program.

A step takes any mix of sequences and lengths up to its budgets (prompts in pieces, single tokens):
which tokens, positions, pages and rows is data in the step's index arrays, never a new recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from terrazzo.models.loading import LlamaWeights
from terrazzo.runtime.recorder import Recorder
from terrazzo.targets.cpu.pool import private_memory

PAGE = 16
SPAN = 32  # queries of one unit of attention
WIDE_K = 1 << 16  # a8 products read both operands in place: no reason to cut k
LOGIT_ROWS = 32


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
    """f16 pages of 16 tokens, a layer after the other: K [layers, pages, kv heads, d, 16] (token =
    lane), V [layers, pages, kv heads, 16, d]. Zero at first: what is read past a sequence's end is
    finite."""

    def __init__(self, config: LlamaConfig, pages: int) -> None:
        self.pages = pages
        size = config.layers * pages * config.kv_heads * config.head_dim * PAGE
        shape = (config.layers, pages, config.kv_heads)
        self.k = private_memory(2 * size).view(np.float16).reshape(*shape, config.head_dim, PAGE)
        self.v = private_memory(2 * size).view(np.float16).reshape(*shape, PAGE, config.head_dim)

    @staticmethod
    def bytes(config: LlamaConfig, pages: int) -> int:
        return 4 * config.layers * pages * config.kv_heads * config.head_dim * PAGE

    @property
    def nbytes(self) -> int:
        return self.k.nbytes + self.v.nbytes


class LlamaStep:
    """The recorded step. `int8`: activations are quantised per group of 32 before each product."""

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
        self.logits = self._floats(budget.rows, config.vocab_size)
        self.recorder = Recorder("step", threads)
        self._record()
        self.recording = self.recorder.finish()

    # -- buffers --------------------------------------------------------------------------------
    @staticmethod
    def _indices(*shape: int) -> np.ndarray:
        return private_memory(4 * int(np.prod(shape))).view(np.int32).reshape(shape)

    @staticmethod
    def _floats(*shape: int) -> np.ndarray:
        return private_memory(4 * int(np.prod(shape))).view(np.float32).reshape(shape)

    def _activations(self, rows: int, width: int, readers: Iterable[Packed]) -> np.ndarray | Packed:
        """What products with `readers` read: a8 rows if any of them is low-bit, else f32."""
        if not self.int8 or all(w.format.group == 1 for w in readers):
            return self._floats(rows, width)
        size = formats.bytes_per_row(formats.A8, width)
        return Packed(formats.A8, (rows, width), private_memory(rows * size).reshape(rows, size))

    # -- the step -------------------------------------------------------------------------------
    def _record(self) -> None:
        c, w, t = self.config, self.weights, self.budget.tokens
        r = self.recorder
        heads, kv, d, half = c.heads, c.kv_heads, c.head_dim, c.head_dim // 2
        x = self._floats(t, c.hidden)
        h = self._activations(t, c.hidden, [m for y in w.layers for m in (*y.qkv, y.gate, y.up)])
        qkv = self._floats(t, heads + 2 * kv, d)
        q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv], qkv[:, heads + kv :]
        mixed = self._floats(t, heads * d)
        attended = self._activations(t, heads * d, [y.output for y in w.layers])
        ffn = self._activations(t, c.ffn, [y.down for y in w.layers])
        cos, sin = w.rope
        by_token = {"rows": "tokens", "m": "tokens", "tokens": "tokens"}

        def product(
            a: np.ndarray | Packed, w: Packed, out: np.ndarray, rows: str, **more: object
        ) -> None:
            in_place = isinstance(a, Packed) and w.format.group > 1
            r.add(
                linear,
                {"m": rows},
                a=a,
                w=w,
                out=out,
                **({"K": WIDE_K} if in_place else {}),
                **more,
            )

        def norm(
            source: np.ndarray, weight: np.ndarray, out: np.ndarray | Packed, rows: str
        ) -> None:
            r.add(rms_norm, {"rows": rows}, x=source, weight=weight, out=out, eps=c.rms_eps)

        r.add(embedding, by_token, table=w.embedding, ids=self.ids, out=x)
        for n, layer in enumerate(w.layers):
            norm(x, layer.attn_norm, h, "tokens")
            flat = qkv.reshape(t, -1)
            at = 0
            for part, bias in zip(layer.qkv, layer.qkv_bias, strict=True):
                out = flat[:, at : at + part.shape[0]]
                product(h, part, out, "tokens", bias=bias)
                at += part.shape[0]
            r.add(
                rope_store_interleaved,
                by_token,
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
            r.add(
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
            if isinstance(attended, Packed):
                r.add(quantize, by_token, x=mixed, out=attended)
            source = attended if isinstance(attended, Packed) else mixed
            product(source, layer.output, x, "tokens", bias=layer.output_bias, residual=x)
            norm(x, layer.ffn_norm, h, "tokens")
            in_place = isinstance(h, Packed) and layer.gate.format.group > 1
            r.add(gated_linear, by_token, a=h, gate=layer.gate, up=layer.up, out=ffn,
                  **({"K": WIDE_K} if in_place else {}))  # fmt: skip
            product(ffn, layer.down, x, "tokens", bias=layer.down_bias, residual=x)
        last = self._floats(self.budget.rows, c.hidden)
        h_last = self._activations(self.budget.rows, c.hidden, [w.head])
        r.add(embedding, {"tokens": "rows", "vocab": "tokens"}, table=x, ids=self.rows, out=last)
        norm(last, w.output_norm, h_last, "rows")
        product(h_last, w.head, self.logits, "rows")

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
