"""A model's shapes without its weights: from a GGUF file's header, or from a bare config.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from terrazzo.errors import ModelFileError, OptionError
from terrazzo.ir.packed import Packed
from terrazzo.models import loading, store
from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import BLOCKS, GGUF, TensorInfo
from terrazzo.models.loading import LayerWeights, LlamaWeights
from terrazzo.models.rope_table import RopeTable
from terrazzo.models.weights import format_of, matrix_bytes, row_bytes
from terrazzo.targets.cpu.pool import private_memory

# Decoders whose tensors are those of a Llama; their biases by part.
FAMILIES: dict[str, frozenset[str]] = {
    "llama": frozenset(), "mistral": frozenset(), "qwen2": frozenset({"qkv"}),
}  # fmt: skip
_TYPES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}


@dataclass(frozen=True)
class Outline:
    """`tensors` are described, not read. `source` says where that comes from."""

    path: Path
    config: LlamaConfig
    tensors: Mapping[str, TensorInfo]
    source: str

    def info(self, name: str) -> TensorInfo:
        """Raises ModelFileError if there is no tensor of that name."""
        if name not in self.tensors:
            raise ModelFileError(f"{self.path}: tensor {name!r} is missing")
        return self.tensors[name]

    def packed_bytes(self) -> int:
        """Of all matrices as they are held."""
        return loading.packed_bytes(self, self.config)

    def vector_bytes(self) -> int:
        """Of all norms and biases, as f32."""
        return sum(4 * t.size for t in self.tensors.values() if len(t.shape) == 1)

    def stand_in(self) -> LlamaWeights:
        """Weights of the right shapes over addresses that must not be read: a sketch takes them."""
        c = self.config
        groups = loading.groups(self, c)
        memory = private_memory(max(matrix_bytes(self, g) for g in groups))
        made = {g[0]: self._matrix(g, memory) for g in groups}

        def vector(name: str) -> np.ndarray:
            (size,) = self.info(name).shape
            return memory[: 4 * size].view(np.float32)

        def bias(*names: str) -> np.ndarray | None:
            size = sum(self.tensors[n].size for n in names if n in self.tensors)
            return memory[: 4 * size].view(np.float32) if size else None

        def layer(n: int) -> LayerWeights:
            p = f"blk.{n}."
            parts = [f"{p}attn_{x}" for x in "qkv"]
            qkv = tuple(made[f"{x}.weight"] for x in parts if f"{x}.weight" in made)
            each = [bias(f"{x}.bias") for x in parts]
            return LayerWeights(
                vector(f"{p}attn_norm.weight"),
                qkv,
                tuple(each) if len(qkv) > 1 else (bias(*(f"{x}.bias" for x in parts)),),
                made[f"{p}attn_output.weight"],
                bias(f"{p}attn_output.bias"),
                vector(f"{p}ffn_norm.weight"),
                made[f"{p}ffn_gate.weight"],
                made[f"{p}ffn_up.weight"],
                made[f"{p}ffn_down.weight"],
                bias(f"{p}ffn_down.bias"),
            )

        table = made["token_embd.weight"]
        return LlamaWeights(
            table, table if c.tied_output else made["output.weight"],
            vector("output_norm.weight"), tuple(layer(n) for n in range(c.layers)),
            RopeTable(c, None), self.packed_bytes(),
        )  # fmt: skip

    def _matrix(self, names: tuple[str, ...], memory: np.ndarray) -> Packed:
        fmt, k = format_of(self, names[0]), self.info(names[0]).shape[1]
        rows = sum(self.info(n).shape[0] for n in names)
        data = memory[: matrix_bytes(self, names)].reshape(-1, row_bytes(fmt, k))
        return Packed(fmt, (rows, k), data)


def read(model: str, weights: str | None = None) -> Outline:
    """`model`: a name or path of a GGUF file, a config.json, or a folder that has one. `weights`:
    what a config.json's matrices are to be held as, a key of BLOCKS in any case (default: what it
    says). Raises ModelFileError, OptionError."""
    path = Path(model).expanduser()
    if path.suffix == ".json" or (path / "config.json").is_file():
        return _from_json(path if path.suffix == ".json" else path / "config.json", weights)
    if weights is not None:
        raise OptionError("a GGUF file says itself how its weights are held", "leave it out")
    gguf = GGUF.open(store.resolve(model))
    return Outline(gguf.path, LlamaConfig.from_gguf(gguf), gguf.tensors, "the file's header")


def _from_json(path: Path, weights: str | None) -> Outline:
    try:
        fields = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be read ({error})") from None
    if not isinstance(fields, dict):
        raise ModelFileError(f"{path}: holds no JSON object")
    config = _config(path, fields)
    kind = (
        weights or _TYPES.get(str(fields.get("dtype") or fields.get("torch_dtype")), "")
    ).upper()
    if kind not in BLOCKS:
        known = ", ".join(BLOCKS).lower()
        if weights is None:
            raise OptionError(f"{path}: does not say how weights are held", f"choose from {known}")
        raise OptionError(f"weights is {weights!r}", f"choose from {known}")
    tensors = {n: _tensor(n, shape, kind) for n, shape in config.expected_tensors().items()}
    return Outline(path, config, tensors, f"shapes of config.json, matrices in {kind.lower()}")


def _tensor(name: str, shape: tuple[int, ...], kind: str) -> TensorInfo:
    """As converters make it: vectors in f32; f16 where rows are no whole blocks."""
    if len(shape) == 1:
        kind = "F32"
    elif shape[-1] % BLOCKS[kind][0]:
        kind = "F16"
    group, size = BLOCKS[kind]
    return TensorInfo(name, shape, kind, 0, math.prod(shape) // group * size)


def _config(path: Path, fields: Mapping[str, Any]) -> LlamaConfig:
    """The numbers under their Hugging Face names."""
    family = str(fields.get("model_type"))
    if family not in FAMILIES:
        raise ModelFileError(
            f"{path}: model_type {family!r} is not one whose shapes are known"
            f" ({', '.join(FAMILIES)} are)"
        )

    def number(key: str, default: int | None = None) -> int:
        value = fields.get(key, default)
        if value is None and default is not None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
            raise ModelFileError(f"{path}: {key} is {value!r}, it must be a number from 1")
        return value

    hidden, heads = number("hidden_size"), number("num_attention_heads")
    bias = bool(fields.get("attention_bias", False))
    config = LlamaConfig(
        name=str(fields.get("_name_or_path") or path.absolute().parent.name),
        architecture=family,
        quantisation="",
        parameters=0,
        vocab_size=number("vocab_size"),
        layers=number("num_hidden_layers"),
        hidden=hidden,
        ffn=number("intermediate_size"),
        heads=heads,
        kv_heads=number("num_key_value_heads", heads),
        head_dim=number("head_dim", max(hidden // heads, 1)),
        context_length=number("max_position_embeddings", 2048),
        rms_eps=1e-5,
        rope_theta=1e4,
        rope_dim=number("head_dim", max(hidden // heads, 1)),
        rope_pairing="interleaved",
        rope_scale=1.0,
        rope_factors=False,
        tied_output=bool(fields.get("tie_word_embeddings", False)),
        attention_bias=bias or "qkv" in FAMILIES[family],
        attention_output_bias=bias and family == "llama",
        ffn_bias=False,
        bos_id=None,
        eos_id=None,
        eot_id=None,
        unknown_id=None,
        padding_id=None,
    )
    if config.heads % config.kv_heads:
        raise ModelFileError(
            f"{path}: num_attention_heads {heads:,} is not a multiple of num_key_value_heads"
            f" {config.kv_heads:,}"
        )
    return config
