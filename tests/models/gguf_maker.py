"""Writes GGUF files for tests, sound ones and broken ones: every field can be set to anything."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from terrazzo.models.gguf import BLOCKS
from terrazzo.models.pretokenizer import byte_characters

U32, I32, F32, BOOL, STRING, ARRAY, U64, F64 = 4, 5, 6, 7, 8, 9, 10, 12
_PACK = {0: "<B", 1: "<b", 2: "<H", 3: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}
_PACK |= {U64: "<Q", 11: "<q", F64: "<d"}
TYPE_IDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q6_K": 14, "BF16": 30}


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(item: Any) -> bytes:
    """Type and value: Python's bool, int (u32), float (f32), str, list of str or of int (i32); or a
    pair (type id, value); or bytes, taken as they are."""
    match item:
        case bytes():
            return item
        case bool():
            return struct.pack("<IB", BOOL, item)
        case int():
            return struct.pack("<II", U32, item)
        case float():
            return struct.pack("<If", F32, item)
        case str():
            return struct.pack("<I", STRING) + string(item)
        case list() if item and isinstance(item[0], int):
            return struct.pack(f"<IIQ{len(item)}i", ARRAY, I32, len(item), *item)
        case list():
            head = struct.pack("<IIQ", ARRAY, STRING, len(item))
            return head + b"".join(string(text) for text in item)
        case (int() as kind, number):
            return struct.pack("<I", kind) + struct.pack(_PACK[kind], number)
    raise TypeError(item)


@dataclass
class Tensor:
    """`shape` in NumPy's order; `offset` None: behind the tensor before."""

    name: str
    shape: tuple[int, ...]
    type: str | int = "F32"
    offset: int | None = None
    data: bytes | None = None

    def nbytes(self) -> int:
        group, block = BLOCKS.get(str(self.type), (1, 4))
        count = 1
        for extent in self.shape:
            count *= extent
        return -(-count // group) * block


@dataclass
class Maker:
    """A file under construction; `build` gives its bytes."""

    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    key_count: int | None = None
    tensor_count: int | None = None

    def build(self) -> bytes:
        tensors = len(self.tensors) if self.tensor_count is None else self.tensor_count
        keys = len(self.metadata) if self.key_count is None else self.key_count
        out = self.magic + struct.pack("<IQQ", self.version, tensors, keys)
        for key, item in self.metadata.items():
            out += string(key) + value(item)
        data = b""
        for tensor in self.tensors:
            offset = len(data) if tensor.offset is None else tensor.offset
            kind = tensor.type if isinstance(tensor.type, int) else TYPE_IDS[tensor.type]
            out += string(tensor.name) + struct.pack("<I", len(tensor.shape))
            out += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
            out += struct.pack("<IQ", kind, offset)
            content = bytes(tensor.nbytes()) if tensor.data is None else tensor.data
            data += content + bytes(-len(content) % self.alignment)
        return out + bytes(-len(out) % self.alignment) + data


def tiny_llama() -> Maker:
    """A sound llama of 2 layers, 4 heads of 8, 2 key/value heads, and a vocabulary of the 256
    bytes, some merges, two control tokens and a user-defined one."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld"]
    joined = [merge.replace(" ", "") for merge in merges]
    tokens = [*byte_characters(), *joined, "<|im_start|>", "<|im_end|>", "<tool>", "<pad>"]
    types = [1] * (len(tokens) - 4) + [3, 3, 4, 5]
    hidden, ffn, vocab = 32, 64, len(tokens)
    metadata = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "llama.block_count": 2,
        "llama.context_length": 128,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": ffn,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": 8,
        "llama.vocab_size": vocab,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": vocab - 4,
        "tokenizer.ggml.eos_token_id": vocab - 3,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    }
    tensors = [
        Tensor("token_embd.weight", (vocab, hidden), "Q8_0"),
        Tensor("output_norm.weight", (hidden,)),
    ]
    for layer in range(2):
        for name, shape in (
            ("attn_norm", (hidden,)), ("attn_q", (hidden, hidden)), ("attn_k", (16, hidden)),
            ("attn_v", (16, hidden)), ("attn_output", (hidden, hidden)), ("ffn_norm", (hidden,)),
            ("ffn_gate", (ffn, hidden)), ("ffn_up", (ffn, hidden)), ("ffn_down", (hidden, ffn)),
        ):  # fmt: skip
            kind = "F32" if len(shape) == 1 else "Q4_1"
            tensors.append(Tensor(f"blk.{layer}.{name}.weight", shape, kind))
    return Maker(metadata, tensors)
