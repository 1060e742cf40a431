"""A model file's tensors as kernels take them: matrices in the CPU's packed layout, vectors as f32.

Matrices are repacked one by one and the file's pages released behind, so that the peak is one copy
of the weights. Projections that read the same input and have one format are joined into one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import DTYPES, Format
from terrazzo.models.gguf import GGUF, Described
from terrazzo.targets.cpu import layouts

Progress = Callable[[int, int], None]
_PLAIN = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


def format_of(gguf: Described, name: str) -> Format:
    """Packed format (layout p16) the tensor gets; plain element types are formats of group 1."""
    kind = gguf.info(name).type
    if kind in _PLAIN:
        return Format(_PLAIN[kind], 1, layouts.LAYOUT)
    return layouts.packed(formats.FORMATS[kind.lower()])


def vector(gguf: GGUF, name: str) -> np.ndarray:
    """A one-dimensional tensor as f32."""
    info = gguf.info(name)
    raw = gguf.raw(name)
    if info.type in _PLAIN:
        return raw.view(DTYPES[_PLAIN[info.type]].numpy).astype(np.float32)
    return formats.decode(formats.FORMATS[info.type.lower()], raw, info.shape)


def matrix_bytes(gguf: Described, names: Sequence[str]) -> int:
    """Bytes of the joined matrix in the packed layout."""
    total = 0
    for name in names:
        n, k = gguf.info(name).shape
        total += layouts.panels(n) * row_bytes(format_of(gguf, name), k)
    return total


def row_bytes(fmt: Format, k: int) -> int:
    """Bytes of one panel of 16 rows."""
    return (
        k * layouts.ROWS * DTYPES[fmt.name].bytes if fmt.group == 1 else layouts.panel_bytes(fmt, k)
    )


def joinable(gguf: Described, names: Sequence[str]) -> bool:
    """One format, one input width, and all but the last of whole panels."""
    infos = [gguf.info(n) for n in names]
    same = len({(i.type, i.shape[1]) for i in infos}) == 1
    return same and all(i.shape[0] % layouts.ROWS == 0 for i in infos[:-1])


def matrix(gguf: GGUF, names: Sequence[str], out: np.ndarray) -> Packed:
    """The tensors' rows one after the other, repacked into `out` (u8, 64-byte aligned,
    `matrix_bytes`)."""
    rows, k, at = 0, 0, 0
    fmt = format_of(gguf, names[0])
    for name in names:
        n, k = gguf.info(name).shape
        part = out[at : at + layouts.panels(n) * row_bytes(fmt, k)]
        if fmt.group == 1:
            x = gguf.raw(name).view(DTYPES[fmt.name].numpy).reshape(n, k)
            part[:] = layouts.pack_float(x).reshape(-1).view(np.uint8)
        else:
            layouts.repack(fmt, gguf.raw(name), n, k, part)
        gguf.release(name)
        rows, at = rows + n, at + len(part)
    return Packed(fmt, (rows, k), out[:at].reshape(-1, row_bytes(fmt, k)))
