"""Our low-bit formats (terrazzo/ir/formats.py) against the `gguf` package, which GGUF tools share.

Decoding must agree bit for bit: both sides round once a value, to f32. So must quantising, where
the package has it (not Q6_K).
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from terrazzo.ir import formats

TYPES = {
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
    "q4_1": gguf.GGMLQuantizationType.Q4_1,
    "q6_k": gguf.GGMLQuantizationType.Q6_K,
}


def same_bits(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return np.array_equal(ours.view(np.uint32), np.ascontiguousarray(theirs).view(np.uint32))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(1, 256), (7, 512), (3, 5, 1024)])
def test_decode_random_bytes(name: str, shape: tuple[int, ...]) -> None:
    """Any codes; scales and minima are finite f16 of any size and sign, subnormals among them."""
    rng = np.random.default_rng(len(name) * shape[-1])
    size = formats.bytes_per_row(name, shape[-1])
    raw = rng.integers(0, 256, (*shape[:-1], size), dtype=np.uint8)
    spec = formats.spec(name)
    blocks = raw.reshape(-1, spec.bytes)
    for offset in (spec.scale, spec.min):
        if offset is not None:
            # The exponent's five bits all ones would be inf or NaN: clear the highest.
            blocks[:, offset + 1] &= 0xBF
    ours = formats.decode(name, raw, shape)
    # -0 and 0 are one value; adding 0 makes them one.
    theirs = gguf.dequantize(raw, TYPES[name]).astype(np.float32).reshape(shape)
    assert same_bits(ours + np.float32(0), theirs + np.float32(0))


def test_decode_real_tensors(model_path: Path) -> None:
    seen = set()
    for tensor in gguf.GGUFReader(model_path).tensors:
        name = tensor.tensor_type.name.lower()
        if name in TYPES:
            seen.add(name)
            rows = np.asarray(tensor.data)[:1536]  # the embedding table has 49,152
            shape = (len(rows), int(tensor.shape[0]))
            ours = formats.decode(name, rows, shape)
            assert same_bits(ours, gguf.dequantize(rows, tensor.tensor_type)), tensor.name
    assert {"q4_1", "q8_0"} <= seen


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q4_1"])
@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0])
def test_quantise(name: str, size: float) -> None:
    x = np.random.default_rng(3).normal(0, size, (33, 256)).astype(np.float32)
    x[4], x[5, :32] = 0, 1.5
    assert np.array_equal(formats.encode(name, x), gguf.quantize(x, TYPES[name]))
