"""A packed low-bit tensor as its owner holds it: format, logical shape and the bytes of its
rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terrazzo.ir.types import Format


@dataclass(frozen=True, eq=False)
class Packed:
    """`data` is u8, `shape[:-1] + (bytes of a row,)`; the caller owns it, stores write through it.

    `shape` is in values; its last extent is a multiple of `format.group`. What the bytes mean is
    declared in `ir/formats.py`. Compared by identity: two tensors with equal bytes are two tensors.
    """

    format: Format
    shape: tuple[int, ...]
    data: np.ndarray
