"""LlamaConfig: the demo model's numbers, and files whose metadata and tensors do not agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from gguf_maker import Maker, Tensor, tiny_llama

from terrazzo.errors import ModelFileError
from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import GGUF


def config(folder: Path, maker: Maker) -> LlamaConfig:
    path = folder / "m.gguf"
    path.write_bytes(maker.build())
    return LlamaConfig.from_gguf(GGUF.open(path))


def test_demo_model(model: GGUF) -> None:
    found = LlamaConfig.from_gguf(model)
    assert (found.name, found.architecture) == ("Smollm2 135M 8k Lc100K Mix1 Ep2", "llama")
    assert (found.vocab_size, found.layers, found.hidden, found.ffn) == (49152, 30, 576, 1536)
    assert (found.heads, found.kv_heads, found.head_dim, found.rope_dim) == (9, 3, 64, 64)
    assert (found.context_length, found.rope_theta, found.rope_scale) == (8192, 1e5, 1.0)
    assert found.rms_eps == pytest.approx(1e-5, rel=1e-6)  # stored as f32
    assert found.rope_pairing == "interleaved" and not found.rope_factors and found.tied_output
    assert not (found.attention_bias or found.attention_output_bias or found.ffn_bias)
    assert (found.bos_id, found.eos_id, found.unknown_id, found.padding_id) == (1, 2, 0, 2)
    assert (found.eot_id, found.quantisation, found.parameters) == (None, "Q4_1", 134_515_008)
    with pytest.raises(FrozenInstanceError):
        found.layers = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_defaults(tmp_path: Path) -> None:
    maker = tiny_llama()
    maker.tensors = [t for t in maker.tensors if "attn_k" not in t.name and "attn_v" not in t.name]
    maker.tensors += [
        Tensor(f"blk.{i}.attn_{p}.weight", (32, 32), "Q8_0") for i in range(2) for p in "kv"
    ]
    for key in ("attention.head_count_kv", "rope.freq_base", "rope.dimension_count", "vocab_size"):
        del maker.metadata[f"llama.{key}"]
    for key in ("general.name", "tokenizer.ggml.eos_token_id"):
        del maker.metadata[key]
    found = config(tmp_path, maker)
    assert (found.kv_heads, found.rope_theta, found.rope_dim) == (4, 10000.0, 8)
    assert (found.name, found.eos_id) == ("m", None)


def test_optional_tensors_and_scaling(tmp_path: Path) -> None:
    maker = tiny_llama()
    vocab = maker.metadata["llama.vocab_size"]
    rows = {"attn_q": 32, "attn_k": 16, "attn_v": 16, "ffn_gate": 64, "ffn_up": 64, "ffn_down": 32}
    for layer in range(2):
        maker.tensors += [Tensor(f"blk.{layer}.{n}.bias", (r,)) for n, r in rows.items()]
    maker.tensors += [Tensor("output.weight", (vocab, 32), "Q6_K" if vocab % 256 == 0 else "F16")]
    maker.tensors += [Tensor("rope_freqs.weight", (4,))]
    maker.metadata["llama.rope.scaling.type"] = "linear"
    maker.metadata["llama.rope.scaling.factor"] = 4.0
    found = config(tmp_path, maker)
    assert found.attention_bias and found.ffn_bias and not found.attention_output_bias
    assert not found.tied_output and found.rope_factors and found.rope_scale == 4.0
    del maker.metadata["llama.rope.scaling.factor"]
    maker.metadata["llama.rope.scale_linear"] = 2.0
    assert config(tmp_path, maker).rope_scale == 2.0
    maker.metadata["llama.rope.scaling.type"] = "none"
    assert config(tmp_path, maker).rope_scale == 1.0


def test_a_head_may_be_wider_than_its_share(tmp_path: Path) -> None:
    maker = tiny_llama()
    maker.metadata["llama.attention.key_length"] = maker.metadata[
        "llama.attention.value_length"
    ] = 16
    shapes = {"attn_q": (64, 32), "attn_k": (32, 32), "attn_v": (32, 32), "attn_output": (32, 64)}
    for tensor in maker.tensors:
        for part, shape in shapes.items():
            if f".{part}." in tensor.name:
                tensor.shape = shape
    assert config(tmp_path, maker).head_dim == 16


Change = Callable[[Maker], object]


def keys(**values: object) -> Change:
    """Sets llama.* keys (`__` for a dot); None removes."""

    def change(maker: Maker) -> None:
        for name, item in values.items():
            full = "llama." + name.replace("__", ".")
            maker.metadata.pop(full, None)
            if item is not None:
                maker.metadata[full] = item

    return change


def remove(name: str) -> Change:
    def change(maker: Maker) -> None:
        maker.metadata.pop(name, None)
        maker.tensors = [tensor for tensor in maker.tensors if tensor.name != name]

    return change


def tensor(name: str, shape: tuple[int, ...]) -> Change:
    return lambda maker: maker.tensors.append(Tensor(name, shape))


CONTRADICTIONS: list[tuple[Change, str]] = [
    (
        lambda m: m.metadata.update({"general.architecture": "mamba"}),
        "architecture 'mamba' is not supported (llama is)",
    ),
    (remove("general.architecture"), "metadata key 'general.architecture' is missing"),
    (keys(block_count=None), "metadata key 'llama.block_count' is missing"),
    (keys(embedding_length=0), "'llama.embedding_length' is 0, it must be at least 1"),
    (keys(embedding_length="32"), "'llama.embedding_length' must be an integer, not '32'"),
    (
        keys(feed_forward_length=[1, 2]),
        "'llama.feed_forward_length' must be an integer, not an array of 2",
    ),
    (keys(context_length=True), "'llama.context_length' must be an integer, not True"),
    (
        keys(attention__head_count=5, attention__head_count_kv=5),
        "llama.embedding_length 32 is not a multiple of llama.attention.head_count 5",
    ),
    (
        keys(attention__head_count_kv=3),
        "llama.attention.head_count 4 is not a multiple of llama.attention.head_count_kv 3",
    ),
    (
        keys(attention__layer_norm_rms_epsilon=None),
        "'llama.attention.layer_norm_rms_epsilon' is missing",
    ),
    (keys(attention__layer_norm_rms_epsilon=float("nan")), "epsilon' is nan, it must be above 0"),
    (
        keys(attention__key_length=8, attention__value_length=4),
        "key_length 8 and llama.attention.value_length 4 differ",
    ),
    (
        keys(rope__dimension_count=10),
        "llama.rope.dimension_count is 10; it must be even and at most the head's 8",
    ),
    (
        keys(rope__scaling__type="yarn"),
        "llama.rope.scaling.type 'yarn' is not supported (linear is)",
    ),
    (
        keys(rope__scaling__factor=2.0, rope__scale_linear=4.0),
        "scaling.factor 2.0 contradicts llama.rope.scale_linear 4.0",
    ),
    (
        keys(vocab_size=7),
        "llama.vocab_size 7, tokenizer.ggml.tokens 269, rows of token_embd.weight 269",
    ),
    (keys(expert_count=8), "a mixture of 8 experts is not supported"),
    (lambda m: m.metadata.update({"split.count": 3}), "one of 3 parts of a split model"),
    (
        lambda m: m.metadata.update({"tokenizer.ggml.eos_token_id": 900}),
        "eos_token_id is 900, the vocabulary has 269 tokens",
    ),
    (remove("tokenizer.ggml.tokens"), "'tokenizer.ggml.tokens' is missing"),
    (keys(block_count=3), "tensor 'blk.2.attn_norm.weight' is missing"),
    (
        keys(block_count=2**32 - 1),
        "llama.block_count is 4,294,967,295, but the file has only 20 tensors",
    ),
    (
        keys(block_count=1),
        "tensor 'blk.1.attn_norm.weight' is not part of a llama model with 1 layers",
    ),
    (
        keys(feed_forward_length=96),
        "'blk.0.ffn_gate.weight' has shape (64, 32), the metadata says (96, 32)",
    ),
    (remove("blk.1.ffn_up.weight"), "tensor 'blk.1.ffn_up.weight' is missing"),
    (tensor("blk.0.attn_q.bias", (32,)), "tensor 'blk.0.attn_k.bias' is missing"),
    (
        tensor("blk.0.ffn_gate_exps.weight", (2, 32)),
        "'blk.0.ffn_gate_exps.weight' is not part of a llama model",
    ),
]


@pytest.mark.parametrize(("change", "words"), CONTRADICTIONS, ids=[w for _, w in CONTRADICTIONS])
def test_contradictions_are_named(tmp_path: Path, change: Change, words: str) -> None:
    maker = tiny_llama()
    change(maker)
    with pytest.raises(ModelFileError) as caught:
        config(tmp_path, maker)
    assert words in str(caught.value) and str(tmp_path) in str(caught.value)
