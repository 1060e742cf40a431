"""Repacking changes no bit: back and forth, row by row, whatever n."""

from __future__ import annotations

import numpy as np
import pytest

from terrazzo.ir import formats
from terrazzo.targets.cpu import layouts


@pytest.mark.parametrize("name", layouts.P16S)
@pytest.mark.parametrize(("n", "k"), [(1, 256), (16, 512), (37, 768)])
def test_repack_is_lossless(name: str, n: int, k: int) -> None:
    rng = np.random.default_rng(n)
    raw = formats.encode(name, rng.standard_normal((n, k), dtype=np.float32))
    packed = layouts.repack(name, raw, n, k)
    assert (
        packed.ctypes.data % layouts.ALIGN == 0
        and layouts.panel_bytes(name, k) % layouts.ALIGN == 0
    )
    assert np.array_equal(layouts.unpack(name, packed, n, k), raw)
    values = formats.decode(name, raw, (n, k))
    for i in {0, n // 2, n - 1}:
        assert np.array_equal(
            layouts.row(name, packed, i, k).view(np.int32), values[i].view(np.int32)
        )
    padding = layouts.unpack(name, packed, layouts.panels(n) * 16, k)[n:]
    assert not padding.any()


@pytest.mark.parametrize("name", layouts.P16S)
def test_repack_keeps_every_byte_pattern(name: str) -> None:
    rng = np.random.default_rng(5)
    raw = rng.integers(0, 256, (33, formats.bytes_per_row(name, 512)), dtype=np.uint8)
    out = layouts.aligned_empty(layouts.packed_bytes(name, 33, 512))
    out[:] = 255
    assert layouts.repack(name, raw, 33, 512, out) is out
    assert np.array_equal(layouts.unpack(name, out, 33, 512), raw)


def test_float_panels() -> None:
    x = np.arange(35 * 3, dtype=np.float16).reshape(35, 3)
    p = layouts.pack_float(x)
    assert p.shape == (3, 3, 16) and p.ctypes.data % layouts.ALIGN == 0
    assert np.array_equal(p.transpose(0, 2, 1).reshape(48, 3)[:35], x) and not p[2, :, 3:].any()
