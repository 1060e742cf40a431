"""The Llama decoder as one recording, from token ids to logits, every kernel a tile program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.kernels.attention_parts import attention_parts, join_parts
from terrazzo.kernels.embedding import embedding
from terrazzo.kernels.linear import gated_linear, linear
from terrazzo.kernels.norm import rms_norm
from terrazzo.kernels.rope import rope_store_interleaved
from terrazzo.models.config import LlamaConfig
from terrazzo.models.kv_cache import PAGE, KVCache
from terrazzo.models.loading import LayerWeights, LlamaWeights
from terrazzo.runtime.recorder import Recorder
from terrazzo.targets.cpu.pool import private_memory

SPAN = 32  # queries of one unit of attention
SPLIT = 64  # rows for results of parts of contexts that are units of their own
WIDE_K = 1 << 16
BY_TOKEN = {"rows": "tokens", "m": "tokens", "tokens": "tokens"}  # dims that are the step's tokens


@dataclass(frozen=True)
class StepIndices:
    """What the host writes before a step, i32. Per token: `ids`, `position`, `slot` (page · PAGE +
    lane of its keys and values). `table` [sequences, pages]. `span` [7, spans]: sequence, first
    token, count, position, the context's first part and the one after its last, the row where the
    first token's result goes; `joined` [3, tokens]: the first of each token's rows, how many there
    are, how far apart. `rows`: the tokens whose logits are wanted."""

    ids: np.ndarray
    position: np.ndarray
    slot: np.ndarray
    table: np.ndarray
    span: np.ndarray
    joined: np.ndarray
    rows: np.ndarray

    @staticmethod
    def empty(tokens: int, seqs: int, pages: int, spans: int, rows: int) -> StepIndices:
        shapes = (
            (tokens,), (tokens,), (tokens,), (seqs, pages), (7, spans), (3, tokens), (rows,),
        )  # fmt: skip
        return StepIndices(
            *(
                private_memory(4 * int(np.prod(shape))).view(np.int32).reshape(shape)
                for shape in shapes
            )
        )


class Layers:
    """Notes the decoder down in `recorder`: over `at`'s tokens, keys and values in `cache`, into
    `logits` [rows, vocab]. `int8`: activations are quantised, 16 to a scale, before each
    product."""

    def __init__(
        self, config: LlamaConfig, weights: LlamaWeights, cache: KVCache,
        at: StepIndices, logits: np.ndarray, recorder: Recorder, *, int8: bool,
    ) -> None:  # fmt: skip
        self.config, self.weights, self.cache = config, weights, cache
        self.at, self.logits, self.int8 = at, logits, int8
        self.recorder = recorder
        self._record()

    # -- buffers --------------------------------------------------------------------------------
    def _floats(self, *shape: int) -> np.ndarray:
        return self.recorder.buffer(shape, np.float32)

    def _activations(self, rows: int, width: int, *readers: Packed) -> np.ndarray | Packed:
        """What products with `readers` read: a8 rows if any of them is low-bit, else f32."""
        if not (self.int8 and any(w.format.group > 1 for w in readers)):
            return self._floats(rows, width)
        size = formats.bytes_per_row(formats.A8, width)
        return Packed(formats.A8, (rows, width), self.recorder.buffer((rows, size), np.uint8))

    def _normalised(
        self, x: np.ndarray, norm: np.ndarray, rows: str, *readers: Packed
    ) -> np.ndarray | Packed:
        """x, normalised, as products with `readers` take it."""
        h = self._activations(*x.shape, *readers)
        eps = self.config.rms_eps
        self.recorder.add(rms_norm, {"rows": rows}, x=x, weight=norm, out=h, eps=eps)
        return h

    # -- the step -------------------------------------------------------------------------------
    def _record(self) -> None:
        c, w, at = self.config, self.weights, self.at
        x = self._floats(len(at.ids), c.hidden)
        self.recorder.add(embedding, BY_TOKEN, table=w.embedding, ids=at.ids, out=x)
        for n, layer in enumerate(w.layers):
            self._attend(n, layer, x)
            self._feed_forward(layer, x)
        last = self._floats(len(at.rows), c.hidden)
        by_row = {"tokens": "rows", "vocab": "tokens"}
        self.recorder.add(embedding, by_row, table=x, ids=at.rows, out=last)
        self._product(
            self._normalised(last, w.output_norm, "rows", w.head), w.head, self.logits, "rows"
        )

    def _product(
        self, a: np.ndarray | Packed, w: Packed, out: np.ndarray, rows: str, **more: object
    ) -> None:
        self.recorder.add(linear, {"m": rows}, a=a, w=w, out=out, **_whole_k(a, w), **more)

    def _attend(self, n: int, layer: LayerWeights, x: np.ndarray) -> None:
        """x += attention(norm(x)); keys and values of layer n go to the cache."""
        c, at, t = self.config, self.at, len(self.at.ids)
        heads, kv, d, half = c.heads, c.kv_heads, c.head_dim, c.head_dim // 2
        cache = self.cache.layers[n]
        h = self._normalised(x, layer.attn_norm, "tokens", *layer.qkv)
        qkv = self._floats(t, heads + 2 * kv, d)
        q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv], qkv[:, heads + kv :]
        start = 0
        for part, bias in zip(layer.qkv, layer.qkv_bias, strict=True):
            out = qkv.reshape(t, -1)[:, start : start + part.shape[0]]
            self._product(h, part, out, "tokens", bias=bias)
            start += part.shape[0]
        self.recorder.add(
            rope_store_interleaved,
            BY_TOKEN,
            q=q.reshape(t, kv, heads // kv, half, 2),
            k=k.reshape(t, kv, half, 2),
            v=v,
            cos=self.weights.rope.cos,
            sin=self.weights.rope.sin,
            position=at.position,
            slot=at.slot,
            out=q.reshape(t, kv, heads // kv, half, 2),
            kcache=cache.k.reshape(-1, kv, half, 2, PAGE),
            vcache=cache.v,
            kscale=cache.kscale,
            vscale=cache.vscale,
        )
        one = (t + SPLIT, kv, heads // kv)  # of a query, for a head
        names = ("tops", "totals", "values")
        parts = [self._floats(*one), self._floats(*one), self._floats(*one, d)]
        self.recorder.add(
            attention_parts,
            {"spans": "spans"},
            q=q.reshape(t, kv, heads // kv, d),
            kcache=cache.k,
            vcache=cache.v,
            kscale=cache.kscale,
            vscale=cache.vscale,
            table=at.table,
            seq=at.span[0],
            first=at.span[1],
            count=at.span[2],
            position=at.span[3],
            part=at.span[4],
            end=at.span[5],
            to=at.span[6],
            **dict(zip(names, parts, strict=True)),
            scale=d**-0.5,
            BQ=SPAN,
        )
        source = self._activations(t, heads * d, layer.output)
        self.recorder.add(
            join_parts,
            BY_TOKEN,
            **{n: x.reshape(len(x), -1) for n, x in zip(names, parts, strict=True)},
            first=at.joined[0],
            count=at.joined[1],
            apart=at.joined[2],
            out=source,
            D=d,
        )
        self._product(source, layer.output, x, "tokens", bias=layer.output_bias, residual=x)

    def _feed_forward(self, layer: LayerWeights, x: np.ndarray) -> None:
        """x += down(silu(gate(norm(x))) * up(norm(x)))."""
        h = self._normalised(x, layer.ffn_norm, "tokens", layer.gate, layer.up)
        ffn = self._activations(len(x), self.config.ffn, layer.down)
        more = {"gate": layer.gate, "up": layer.up, "out": ffn}
        self.recorder.add(gated_linear, BY_TOKEN, a=h, **more, **_whole_k(h, layer.gate))
        self._product(ffn, layer.down, x, "tokens", bias=layer.down_bias, residual=x)


def _whole_k(a: np.ndarray | Packed, w: Packed) -> dict[str, int]:
    """Products of a8 rows with low-bit weights read both in place: no reason to cut k."""
    return {"K": WIDE_K} if isinstance(a, Packed) and w.format.group > 1 else {}
