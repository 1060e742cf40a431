"""From a model file to the weights of a Llama step: repacked once, cached on disk, mapped the next
time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from terrazzo.errors import ModelFileError
from terrazzo.ir.packed import Packed
from terrazzo.models import weights
from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import GGUF, Described
from terrazzo.models.rope_table import RopeTable
from terrazzo.models.weights import (
    Progress,
    format_of,
    joinable,
    matrix,
    matrix_bytes,
    row_bytes,
    vector,
)  # fmt: skip
from terrazzo.runtime import blobs
from terrazzo.targets.cpu import objcache
from terrazzo.targets.cpu.layouts import ALIGN


@dataclass(frozen=True)
class LayerWeights:
    """`qkv` is one joined matrix, or three where the formats differ."""

    attn_norm: np.ndarray
    qkv: tuple[Packed, ...]
    qkv_bias: tuple[np.ndarray | None, ...]
    output: Packed
    output_bias: np.ndarray | None
    ffn_norm: np.ndarray
    gate: Packed
    up: Packed
    down: Packed
    down_bias: np.ndarray | None


@dataclass(frozen=True)
class LlamaWeights:
    embedding: Packed
    head: Packed
    output_norm: np.ndarray
    layers: tuple[LayerWeights, ...]
    rope: RopeTable
    nbytes: int


def groups(gguf: Described, config: LlamaConfig) -> list[tuple[str, ...]]:
    """Matrices in file order of the cache, joined where they can be."""
    out: list[tuple[str, ...]] = [("token_embd.weight",)]
    for n in range(config.layers):
        qkv = tuple(f"blk.{n}.attn_{p}.weight" for p in "qkv")
        out += [qkv] if joinable(gguf, qkv) else [(name,) for name in qkv]
        out += [(f"blk.{n}.{p}.weight",) for p in ("attn_output", "ffn_gate", "ffn_up", "ffn_down")]
    return out if config.tied_output else [*out, ("output.weight",)]


def load_weights(
    gguf: GGUF,
    config: LlamaConfig,
    memory: np.ndarray,
    progress: Progress | None = None,
    ready: bool = False,
) -> LlamaWeights:
    """Repack everything into `memory` (u8, `packed_bytes`); `ready`: it is in there already."""
    made: dict[str, Packed] = {}
    at = 0
    for names in groups(gguf, config):
        size = matrix_bytes(gguf, names)
        part = memory[at : at + size]
        if ready:
            rows = sum(gguf.info(n).shape[0] for n in names)
            k = gguf.info(names[0]).shape[1]
            fmt = format_of(gguf, names[0])
            made[names[0]] = Packed(fmt, (rows, k), part.reshape(-1, row_bytes(fmt, k)))
        else:
            made[names[0]] = matrix(gguf, names, part)
        at += -(-size // ALIGN) * ALIGN
        if progress:
            progress(at, len(memory))

    def optional(name: str) -> np.ndarray | None:
        return vector(gguf, name) if name in gguf.tensors else None

    def layer(n: int) -> LayerWeights:
        p = f"blk.{n}."
        gguf.release_all()  # reading a small tensor maps pages around it, too
        qkv = [made[x] for x in (f"{p}attn_{q}.weight" for q in "qkv") if x in made]
        biases = [optional(f"{p}attn_{q}.bias") for q in "qkv"]
        if len(qkv) == 1:
            present = [b for b in biases if b is not None]
            biases = [np.concatenate(present) if present else None]
        return LayerWeights(
            vector(gguf, f"{p}attn_norm.weight"),
            tuple(qkv),
            tuple(biases),
            made[f"{p}attn_output.weight"],
            optional(f"{p}attn_output.bias"),
            vector(gguf, f"{p}ffn_norm.weight"),
            made[f"{p}ffn_gate.weight"],
            made[f"{p}ffn_up.weight"],
            made[f"{p}ffn_down.weight"],
            optional(f"{p}ffn_down.bias"),
        )

    factors = optional("rope_freqs.weight")
    embedding = made["token_embd.weight"]
    return LlamaWeights(
        embedding, embedding if config.tied_output else made["output.weight"],
        vector(gguf, "output_norm.weight"), tuple(layer(n) for n in range(config.layers)),
        RopeTable(config, factors), at,
    )  # fmt: skip


def packed_bytes(gguf: Described, config: LlamaConfig) -> int:
    """Bytes of all matrices in the packed layout."""
    return sum(-(-matrix_bytes(gguf, g) // ALIGN) * ALIGN for g in groups(gguf, config))


def load(
    gguf: GGUF,
    config: LlamaConfig,
    threads: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> LlamaWeights:
    """The weights, repacked the first time and mapped from the cache afterwards.

    `progress(what, done, total)` in bytes. The caller has made sure that they fit the memory.
    """
    if config.ffn_bias:
        raise ModelFileError(f"{gguf.path}: biases of the feed-forward layer are not supported")
    size = packed_bytes(gguf, config)

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress("repacking weights", done, total)

    built: list[LlamaWeights] = []

    def build(memory: np.ndarray) -> None:
        built.append(load_weights(gguf, config, memory, report))

    memory = blobs.get_or_build(
        _key(gguf), size, build, family=str(gguf.path.resolve()), threads=threads
    )
    return built[0] if built else load_weights(gguf, config, memory, ready=True)


def _key(gguf: GGUF) -> str:
    """Of the file (identity, size, time of change, tensors) and of the code that repacks it."""
    stat = gguf.path.stat()
    digest = hashlib.sha256(objcache.source_hash())
    digest.update(Path(weights.__file__).read_bytes() + Path(__file__).read_bytes())
    digest.update(f"{stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}".encode())
    digest.update(repr(sorted(gguf.tensors.items())).encode())
    return digest.hexdigest()
