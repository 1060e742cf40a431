"""What a model is: its architecture's numbers, read from a GGUF file's metadata and checked.

Checked means: the keys exist and agree with one another, and every tensor the architecture needs is
in the file with the shape the numbers say, and no other. Whoever holds a LlamaConfig need not check
again.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from terrazzo.errors import ModelFileError
from terrazzo.models.gguf import GGUF
from terrazzo.models.metadata import Metadata

ARCHITECTURES = ("llama",)


@dataclass(frozen=True)
class LlamaConfig:
    """A decoder of the Llama family: RMS norms, rotary positions, grouped heads, gated SiLU.

    Sizes count values; `hidden` is the width of the residual stream, `ffn` of the gated layer.
    Query head h uses key/value head h // (heads // kv_heads).
    """

    name: str
    architecture: str
    quantisation: str  # the tensor type that holds most parameters
    parameters: int
    vocab_size: int
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    context_length: int
    rms_eps: float
    rope_theta: float
    rope_dim: int  # the first so many values of a head are rotated
    # Which two values turn together: 2i and 2i + 1, or i and i + rope_dim / 2.
    rope_pairing: Literal["interleaved", "halves"]
    rope_scale: float  # positions are divided by it (linear scaling); 1 without
    rope_factors: bool  # the tensor rope_freqs.weight (rope_dim / 2) divides the frequencies
    tied_output: bool  # no output.weight: token_embd.weight is used
    attention_bias: bool  # attn_q, attn_k and attn_v have .bias
    attention_output_bias: bool
    ffn_bias: bool
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None  # ends a turn, where the file says so
    unknown_id: int | None
    padding_id: int | None

    @classmethod
    def from_gguf(cls, gguf: GGUF) -> LlamaConfig:
        """Reads and checks; raises ModelFileError naming the key or tensor and the numbers."""
        meta = gguf.metadata
        architecture = meta.text("general.architecture")
        if architecture not in ARCHITECTURES:
            raise ModelFileError(
                f"{gguf.path}: architecture {architecture!r} is not supported"
                f" ({', '.join(ARCHITECTURES)} is)"
            )
        _refuse_variants(meta)
        hidden, heads = _positive(meta, "embedding_length"), _positive(meta, "attention.head_count")
        kv_heads = _positive(meta, "attention.head_count_kv", heads)
        if heads % kv_heads:
            raise ModelFileError(
                f"{gguf.path}: llama.attention.head_count {heads:,} is not a multiple of"
                f" llama.attention.head_count_kv {kv_heads:,}"
            )
        head_dim = _head_dim(meta, hidden, heads)
        config = cls(
            name=meta.text("general.name", gguf.path.stem),
            architecture=architecture,
            quantisation=_quantisation(gguf),
            parameters=sum(
                info.size for name, info in gguf.tensors.items() if name != "rope_freqs.weight"
            ),
            vocab_size=_vocab_size(gguf),
            layers=_positive(meta, "block_count"),
            hidden=hidden,
            ffn=_positive(meta, "feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            context_length=_positive(meta, "context_length"),
            rms_eps=_real(meta, "llama.attention.layer_norm_rms_epsilon"),
            rope_theta=_real(meta, "llama.rope.freq_base", 10_000.0),
            rope_dim=_rope_dim(meta, head_dim),
            # The converter to GGUF permutes q and k of this architecture for interleaved pairs.
            rope_pairing="interleaved",
            rope_scale=_rope_scale(meta),
            rope_factors="rope_freqs.weight" in gguf.tensors,
            tied_output="output.weight" not in gguf.tensors,
            attention_bias="blk.0.attn_q.bias" in gguf.tensors,
            attention_output_bias="blk.0.attn_output.bias" in gguf.tensors,
            ffn_bias="blk.0.ffn_up.bias" in gguf.tensors,
            bos_id=_token(gguf, "bos"),
            eos_id=_token(gguf, "eos"),
            eot_id=_token(gguf, "eot"),
            unknown_id=_token(gguf, "unknown"),
            padding_id=_token(gguf, "padding"),
        )
        config._check_tensors(gguf)
        return config

    def expected_tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape (NumPy order: outputs, inputs) of every tensor a file of this config
        holds."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocab_size, self.hidden),
            "output_norm.weight": (self.hidden,),
        }
        if not self.tied_output:
            shapes["output.weight"] = (self.vocab_size, self.hidden)
        if self.rope_factors:
            shapes["rope_freqs.weight"] = (self.rope_dim // 2,)
        matrices = {
            "attn_q": (queries, self.hidden, self.attention_bias),
            "attn_k": (keys, self.hidden, self.attention_bias),
            "attn_v": (keys, self.hidden, self.attention_bias),
            "attn_output": (self.hidden, queries, self.attention_output_bias),
            "ffn_gate": (self.ffn, self.hidden, self.ffn_bias),
            "ffn_up": (self.ffn, self.hidden, self.ffn_bias),
            "ffn_down": (self.hidden, self.ffn, self.ffn_bias),
        }
        for layer in range(self.layers):
            for part in ("attn_norm", "ffn_norm"):
                shapes[f"blk.{layer}.{part}.weight"] = (self.hidden,)
            for part, (rows, columns, bias) in matrices.items():
                shapes[f"blk.{layer}.{part}.weight"] = (rows, columns)
                if bias:
                    shapes[f"blk.{layer}.{part}.bias"] = (rows,)
        return shapes

    def _check_tensors(self, gguf: GGUF) -> None:
        if self.layers > len(gguf.tensors):  # before a table of `layers` entries is made
            raise ModelFileError(
                f"{gguf.path}: llama.block_count is {self.layers:,}, but the file has only"
                f" {len(gguf.tensors):,} tensors"
            )
        expected = self.expected_tensors()
        for name, shape in expected.items():
            found = gguf.info(name).shape
            if found != shape:
                raise ModelFileError(
                    f"{gguf.path}: tensor {name!r} has shape {found}, the metadata says {shape}"
                )
        for name in gguf.tensors:
            if name not in expected:
                raise ModelFileError(
                    f"{gguf.path}: tensor {name!r} is not part of a {self.architecture} model with"
                    f" {self.layers:,} layers as we run it"
                )


def _positive(meta: Metadata, key: str, default: int | None = None) -> int:
    key = f"llama.{key}"
    value = meta.integer(key, default)
    if value <= 0:
        raise ModelFileError(
            f"{meta.path}: metadata key {key!r} is {value:,}, it must be at least 1"
        )
    return value


def _real(meta: Metadata, key: str, default: float | None = None) -> float:
    value = meta.number(key, default)
    if not (math.isfinite(value) and value > 0):
        raise ModelFileError(f"{meta.path}: metadata key {key!r} is {value}, it must be above 0")
    return value


def _refuse_variants(meta: Metadata) -> None:
    """Kinds of file that call themselves llama and need more than we compute."""
    if experts := meta.integer("llama.expert_count", 0):
        raise ModelFileError(f"{meta.path}: a mixture of {experts:,} experts is not supported")
    if (parts := meta.integer("split.count", 0)) > 1:
        raise ModelFileError(
            f"{meta.path}: is one of {parts:,} parts of a split model, which is not supported",
            "merge the parts into one file",
        )


def _head_dim(meta: Metadata, hidden: int, heads: int) -> int:
    key, value = "llama.attention.key_length", "llama.attention.value_length"
    if key not in meta and hidden % heads:
        raise ModelFileError(
            f"{meta.path}: llama.embedding_length {hidden:,} is not a multiple of"
            f" llama.attention.head_count {heads:,}, and {key!r} is missing"
        )
    head_dim = _positive(meta, "attention.key_length", hidden // heads)
    if (value_dim := meta.integer(value, head_dim)) != head_dim:
        raise ModelFileError(
            f"{meta.path}: {key} {head_dim:,} and {value} {value_dim:,} differ, which is not"
            " supported"
        )
    return head_dim


def _rope_dim(meta: Metadata, head_dim: int) -> int:
    rope_dim = _positive(meta, "rope.dimension_count", head_dim)
    if rope_dim % 2 or rope_dim > head_dim:
        raise ModelFileError(
            f"{meta.path}: llama.rope.dimension_count is {rope_dim:,}; it must be even and at most"
            f" the head's {head_dim:,}"
        )
    return rope_dim


def _rope_scale(meta: Metadata) -> float:
    """What positions are divided by. `scale_linear` is the older spelling."""
    kind = meta.text("llama.rope.scaling.type", "linear")
    if kind == "none":
        return 1.0
    if kind != "linear":
        raise ModelFileError(
            f"{meta.path}: llama.rope.scaling.type {kind!r} is not supported (linear is)"
        )
    old = "llama.rope.scale_linear"
    scale = _real(meta, "llama.rope.scaling.factor", _real(meta, old, 1.0))
    if old in meta and scale != _real(meta, old):
        raise ModelFileError(
            f"{meta.path}: llama.rope.scaling.factor {scale} contradicts {old} {meta.number(old)}"
        )
    return scale


def _vocab_size(gguf: GGUF) -> int:
    """Rows of the embedding; the token list and `llama.vocab_size` must say the same."""
    rows = gguf.info("token_embd.weight").shape[0]
    tokens = gguf.metadata.length("tokenizer.ggml.tokens")
    if tokens is None:
        raise ModelFileError(f"{gguf.path}: metadata key 'tokenizer.ggml.tokens' is missing")
    named = gguf.metadata.integer("llama.vocab_size", tokens)
    if not rows == tokens == named:
        raise ModelFileError(
            f"{gguf.path}: the vocabulary's sizes contradict: llama.vocab_size {named:,},"
            f" tokenizer.ggml.tokens {tokens:,}, rows of token_embd.weight {rows:,}"
        )
    return rows


def _token(gguf: GGUF, role: str) -> int | None:
    """The id of a special token, None where the file names none (a missing key, or the converter's
    -1)."""
    key = f"tokenizer.ggml.{role}_token_id"
    value = gguf.metadata.integer(key, -1)
    size = gguf.metadata.length("tokenizer.ggml.tokens") or 0
    if value in (-1, 0xFFFF_FFFF):
        return None
    if not 0 <= value < size:
        raise ModelFileError(f"{gguf.path}: {key} is {value:,}, the vocabulary has {size:,} tokens")
    return value


def _quantisation(gguf: GGUF) -> str:
    sizes: Counter[str] = Counter()
    for info in gguf.tensors.values():
        sizes[info.type] += info.size
    return max(sizes, key=lambda name: sizes[name], default="none")
