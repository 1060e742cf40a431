"""The weight layout of the CPU micro-kernels: "p16", panels of 16 rows interleaved so that lane =
row.

A low-bit matrix [n, k] becomes up(n, 16) / 16 panels, each `panel_bytes` long (a multiple of 64);
rows past n are zero bytes and decode to 0. A panel is a sequence of groups of 32 k; every 64-byte
chunk of a group holds 4 bytes of each of the 16 rows, row by row. No bytes are added: 16 rows take
16 times a row's bytes.

    q4_0, q4_1  4 chunks; byte b of chunk j: low nibble k = 4j + b, high nibble k = 4j + 16 + b (the
                file's own pairing, so that repacking is a transpose) | f16 scale[16]
                | q4_1: f16 min[16]
    q8_0        8 chunks; byte b of chunk j: k = 4j + b | f16 scale[16]
    q6_k        4 chunks of low nibbles as q4 | 2 chunks of bit pairs; byte b of chunk h: the top
                bits of k = 8h + b, 8h + 16 + b, 8h + 4 + b, 8h + 20 + b, from bit 0 up
                | i8 subscale[2][16] (k 0..15, k 16..31); after every 8 groups f16 scale[16]

A plain float matrix [n, k] becomes panels k-major: [k][16] elements, zero rows added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from terrazzo.ir import formats
from terrazzo.ir.types import Format

LAYOUT = "p16"
ROWS = 16
ALIGN = 64


@dataclass(frozen=True)
class P16:
    """Byte offsets in a panel: group g starts at (g // per) * block + (g % per) * group.

    `chunks`: 64-byte chunks of codes in a group; offsets are from the group's start, `scale` and
    `min` of q6_k from its block's (`per` groups share one scale).
    """

    group: int
    block: int
    per: int
    chunks: int
    scale: int
    min: int | None = None
    sub: int | None = None


P16S = {
    "q4_0": P16(288, 288, 1, 4, scale=256),
    "q4_1": P16(320, 320, 1, 4, scale=256, min=288),
    "q8_0": P16(544, 544, 1, 8, scale=512),
    "q6_k": P16(416, 3360, 8, 6, scale=3328, sub=384),
}


def packed(fmt: Format) -> Format:
    """The same format in this layout."""
    return Format(fmt.name, fmt.group, LAYOUT)


def panels(n: int) -> int:
    return (n + ROWS - 1) // ROWS


def panel_bytes(fmt: Format | str, k: int) -> int:
    """Bytes from one panel to the next: a multiple of 64. ValueError if k is no multiple of the
    group."""
    return (ROWS * formats.bytes_per_row(fmt, k) + ALIGN - 1) // ALIGN * ALIGN


def packed_bytes(fmt: Format | str, n: int, k: int) -> int:
    return panels(n) * panel_bytes(fmt, k)


def aligned_empty(size: int) -> np.ndarray:
    """Uninitialised u8 array that starts at a multiple of 64 bytes."""
    raw = np.empty(size + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + size]


def repack(
    fmt: Format | str, raw: np.ndarray, n: int, k: int, out: np.ndarray | None = None
) -> np.ndarray:
    """u8 rows of GGUF blocks (n * bytes_per_row bytes) -> u8 [packed_bytes]; no value changes.

    `out`: where to write, u8 [packed_bytes], aligned to 64 (a mapped cache file, say); default a
    new array.
    """
    s = formats.spec(fmt)
    lay = P16S[s.format.name]
    rows = raw.reshape(n, k // s.block, s.bytes)
    out = aligned_empty(packed_bytes(fmt, n, k)) if out is None else out
    full = n // ROWS
    panel = out.reshape(panels(n), -1)
    used = panel[:, : k // s.block * lay.block].reshape(panels(n), k // s.block, lay.block)
    panel[:, k // s.block * lay.block :] = 0
    _repack_panels(s, lay, rows[: full * ROWS], used[:full])
    if n % ROWS:
        last = np.zeros((ROWS, k // s.block, s.bytes), np.uint8)
        last[: n % ROWS] = rows[full * ROWS :]
        _repack_panels(s, lay, last, used[full:])
    return out


def _repack_panels(s: formats.Spec, lay: P16, rows: np.ndarray, to: np.ndarray) -> None:
    """rows u8 [panels * 16, blocks, s.bytes] -> to u8 [panels, blocks, lay.block]."""
    p, blocks = to.shape[:2]
    if s.sub is not None and lay.sub is not None:
        groups = to[..., : 8 * lay.group].reshape(p, blocks, 8, lay.group)
        for at, words in ((0, _q6_low(rows)), (256, _q6_high(rows))):
            size = words.shape[-1]
            lanes = words.reshape(p, ROWS, blocks, 8, size)
            put = groups[..., at : at + 64 * size].view(np.uint32)
            put.reshape(p, blocks, 8, size, ROWS)[...] = lanes.transpose(0, 2, 3, 4, 1)
        sub = rows[..., s.sub : s.sub + 16].reshape(p, ROWS, blocks, 8, 2)
        groups[..., lay.sub :] = sub.transpose(0, 2, 3, 4, 1).reshape(p, blocks, 8, 32)
    else:
        words = _words(rows, s.planes[0].offset, lay.chunks).reshape(p, ROWS, blocks, lay.chunks)
        put = to[..., : lay.chunks * 64].view(np.uint32).reshape(p, blocks, lay.chunks, ROWS)
        put[...] = words.transpose(0, 2, 3, 1)
    fields = [(s.scale, lay.scale)] + (
        [(s.min, lay.min)] if s.min is not None and lay.min is not None else []
    )
    for at, put in fields:
        half = np.ascontiguousarray(rows[..., at : at + 2]).view(np.uint16).reshape(p, ROWS, blocks)
        to[..., put : put + 32].view(np.uint16)[...] = half.transpose(0, 2, 1)


def _words(rows: np.ndarray, at: int, count: int) -> np.ndarray:
    """`count` 32-bit words (4 codes or more each) from byte `at` of each block."""
    return np.ascontiguousarray(rows[..., at : at + 4 * count]).view(np.uint32)


def _q6_low(rows: np.ndarray) -> np.ndarray:
    """u32 [rows, blocks, 8 groups, 4]: the low nibbles in p16's pairing. In the file, byte l of
    half h holds k = 128h + l below and k = 128h + 64 + l above."""
    w = _words(rows, 0, 32).reshape(*rows.shape[:2], 2, 1, 2, 2, 4)  # half, -, 32 k, 16 k, word
    below, above = np.uint32(0x0F0F0F0F), np.uint32(0xF0F0F0F0)
    out = np.empty((*rows.shape[:2], 2, 2, 2, 4), np.uint32)  # half, 64 k, 32 k, word
    out[..., 0, :, :] = w[..., 0, :, 0, :] & below | w[..., 0, :, 1, :] << np.uint32(4) & above
    out[..., 1, :, :] = w[..., 0, :, 0, :] >> np.uint32(4) & below | w[..., 0, :, 1, :] & above
    return out.reshape(*rows.shape[:2], 8, 4)


def _q6_high(rows: np.ndarray) -> np.ndarray:
    """u32 [rows, blocks, 8 groups, 2]: the top bit pairs. In the file, byte l of half h holds
    those of k = 128h + l, + 32, + 64, + 96 from bit 0 up."""
    w = _words(rows, 128, 16).reshape(*rows.shape[:2], 2, 1, 2, 2, 2)  # half, -, 16 k, chunk, 4 k
    quarter = np.arange(0, 8, 2, dtype=np.uint32)[:, None, None, None]
    x = w >> quarter & np.uint32(0x03030303)  # half, 32 k, 16 k, chunk, 4 k
    low, high = x[..., 0, :, :], x[..., 1, :, :]
    two, four, six = np.uint32(2), np.uint32(4), np.uint32(6)
    out = low[..., 0] | high[..., 0] << two | low[..., 1] << four | high[..., 1] << six
    return out.reshape(*rows.shape[:2], 8, 2)


def unpack(fmt: Format | str, data: np.ndarray, n: int, k: int) -> np.ndarray:
    """Inverse of `repack`: u8 [n, bytes_per_row] of GGUF blocks."""
    s = formats.spec(fmt)
    lay = P16S[s.format.name]
    p, blocks = panels(n), k // s.block
    used = data.reshape(p, -1)[:, : blocks * lay.block].reshape(p, blocks, lay.block)
    out = np.zeros((p, ROWS, blocks, s.bytes), np.uint8)
    if lay.sub is not None and s.sub is not None:
        groups = used[..., : 8 * lay.group].reshape(p, blocks, 8, lay.group)
        low = _rows(groups[..., :256])
        high = _rows(groups[..., 256:384]).reshape(p, ROWS, blocks, 8, 2, 4)
        nibbles = np.stack((low & 15, low >> 4), -2).reshape(p, ROWS, blocks, 8, 2, 2, 2, 4)
        top = np.empty_like(nibbles)
        for half in (0, 1):
            for chunk in (0, 1):
                top[..., half, :, chunk, :] = high >> (2 * half + 4 * chunk) & 3
        formats.pack_codes(s, (nibbles | top << 4).reshape(p, ROWS, blocks, 256), out)
        sub = groups[..., lay.sub :].reshape(p, blocks, 16, ROWS)
        out[..., s.sub : s.sub + 16] = sub.transpose(0, 3, 1, 2)
    else:
        at = s.planes[0].offset
        codes = _rows(used[..., None, : lay.chunks * 64])
        out[..., at : at + lay.chunks * 4] = codes.reshape(p, ROWS, blocks, -1)
    for at, put in ((s.scale, lay.scale), (s.min, lay.min)):
        if at is not None and put is not None:
            half = used[..., put : put + 32].reshape(p, blocks, ROWS, 2)
            out[..., at : at + 2] = half.transpose(0, 2, 1, 3)
    return out.reshape(p * ROWS, -1)[:n]


def _rows(chunks: np.ndarray) -> np.ndarray:
    """u8 [p, blocks, groups, chunks * 64] -> [p, 16, blocks, groups, chunks * 4]."""
    p, blocks, groups, size = chunks.shape
    split = chunks.reshape(p, blocks, groups, size // 64, ROWS, 4)
    return split.transpose(0, 4, 1, 2, 3, 5).reshape(p, ROWS, blocks, groups, size // 16)


def row(fmt: Format | str, data: np.ndarray, index: int, k: int) -> np.ndarray:
    """f32 [k]: row `index` of a packed matrix, decoded."""
    size = panel_bytes(fmt, k)
    start = index // ROWS * size
    blocks = unpack(fmt, data[start : start + size], ROWS, k)
    return formats.decode(fmt, blocks[index % ROWS], (k,))


def pack_float(x: np.ndarray) -> np.ndarray:
    """[n, k] of any plain element type -> [panels, k, 16], zero rows added, aligned to 64 bytes."""
    n, k = x.shape
    out = aligned_empty(panels(n) * k * ROWS * x.itemsize).view(x.dtype).reshape(panels(n), k, ROWS)
    full = n // ROWS
    out[:full] = x[: full * ROWS].reshape(full, ROWS, k).transpose(0, 2, 1)
    if n % ROWS:
        out[full] = 0
        out[full, :, : n % ROWS] = x[full * ROWS :].T
    return out
