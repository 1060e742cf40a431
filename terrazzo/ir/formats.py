"""Low-bit formats, each declared once as data: where its fields lie in a block and how a value
decodes.

A value is `scale * subscale * (code + bias) + min`: the code is gathered from one or more bit
planes; scale and min are f16, one a block; the subscale is i8, one per 16 values. The weight
formats are the blocks of GGUF files, byte for byte. `a8` is ours: activations quantised on the fly,
in planes a row.

`decode` and `encode` are the NumPy definition; targets repack the bytes but never change a value.
The rounding of the weight encoders follows the reference quantisers published with the GGUF format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from terrazzo.ir.types import Format


@dataclass(frozen=True)
class Plane:
    """A plane of `bits`-wide pieces of the codes, at byte `offset` of the block.

    The block's values are cut into spans of `span`; value r of a span sits in byte r % w of the
    span's w = span * bits / 8 bytes, shifted left by bits * (r // w). The piece enters the code at
    bit `place`.
    """

    offset: int
    bits: int
    span: int
    place: int = 0


@dataclass(frozen=True)
class Spec:
    """A block format: `block` values in `bytes` bytes. Offsets are bytes within the block.

    `signed`: codes are two's complement bytes. `sub`: offset of the i8 subscales (one per 16
    values).
    """

    format: Format
    block: int
    bytes: int
    scale: int
    planes: tuple[Plane, ...]
    bias: int = 0
    min: int | None = None
    sub: int | None = None
    signed: bool = False


Q8_0 = Spec(Format("q8_0", 32), 32, 34, scale=0, planes=(Plane(2, 8, 32),), signed=True)
Q4_0 = Spec(Format("q4_0", 32), 32, 18, scale=0, planes=(Plane(2, 4, 32),), bias=-8)
Q4_1 = Spec(Format("q4_1", 32), 32, 20, scale=0, planes=(Plane(4, 4, 32),), min=2)
Q6_K = Spec(
    Format("q6_k", 256), 256, 210, scale=208,
    planes=(Plane(0, 4, 128), Plane(128, 2, 128, place=4)), bias=-32, sub=192,
)  # fmt: skip
SPECS = {s.format.name: s for s in (Q8_0, Q4_0, Q4_1, Q6_K)}

# Activations. Row of k values: k bytes q (i8) | k/16 f32 scale | k/32 f32 sum of scale * q. A sum
# covers 32 values, as the weights' mins do, so k is a multiple of 32. A scale covers 16: against 32
# that halves the divergence of a model's logits from fp32.
A8 = Format("a8", 32)
# 16 values whose largest magnitude is below this count as zero: 127 / amax stays finite.
A8_TINY = np.float32(2.0**-100)


FORMATS: dict[str, Format] = {**{n: s.format for n, s in SPECS.items()}, "a8": A8}


def spec(fmt: Format | str) -> Spec:
    """The block declaration of a weight format, whatever its layout. KeyError if there is none."""
    return SPECS[fmt if isinstance(fmt, str) else fmt.name]


def bytes_per_row(fmt: Format | str, k: int) -> int:
    """Bytes of a row of `k` values. ValueError if k is not a multiple of the format's group."""
    name = fmt if isinstance(fmt, str) else fmt.name
    if k % FORMATS[name].group:
        raise ValueError(f"{name}: a row of {k} values is no multiple of {FORMATS[name].group}")
    if name == "a8":
        return k + k // 16 * 4 + k // 32 * 4
    return k // SPECS[name].block * SPECS[name].bytes


def codes(s: Spec, blocks: np.ndarray) -> np.ndarray:
    """u8 [..., bytes] blocks -> u8 [..., block] codes, bias not added."""
    out = np.zeros((*blocks.shape[:-1], s.block), np.uint8)
    for p in s.planes:
        width, spans = p.span * p.bits // 8, s.block // p.span
        raw = blocks[..., p.offset : p.offset + width * spans]
        raw = raw.reshape(*blocks.shape[:-1], spans, 1, width)
        shifts = np.arange(0, 8, p.bits, dtype=np.uint8)[:, None]
        piece = (raw >> shifts) & np.uint8((1 << p.bits) - 1)
        out |= piece.reshape(out.shape) << np.uint8(p.place)
    return out


def pack_codes(s: Spec, code: np.ndarray, blocks: np.ndarray) -> None:
    """Inverse of `codes`: writes the bit planes of u8 [..., block] codes into the blocks."""
    for p in s.planes:
        width, spans = p.span * p.bits // 8, s.block // p.span
        piece = (code >> np.uint8(p.place)) & np.uint8((1 << p.bits) - 1)
        piece = piece.reshape(*code.shape[:-1], spans, 8 // p.bits, width)
        shifts = np.arange(0, 8, p.bits, dtype=np.uint8)[:, None]
        packed = np.bitwise_or.reduce(piece << shifts, axis=-2)
        blocks[..., p.offset : p.offset + width * spans] = packed.reshape(*code.shape[:-1], -1)


def f16_at(blocks: np.ndarray, offset: int) -> np.ndarray:
    """The f16 at byte `offset` of each block, as f32 [..., 1]."""
    half = np.ascontiguousarray(blocks[..., offset : offset + 2]).view(np.float16)
    return half.astype(np.float32)


def decode(fmt: Format | str, raw: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """u8 [..., bytes_per_row] -> f32 of `shape` (rows of values). One rounding a value:

    f32(scale * subscale * (code + bias)), the product of the first two being exact; with a min,
    f32(f32(scale * code) + min), whose product is exact too.
    """
    name = fmt if isinstance(fmt, str) else fmt.name
    rows = raw.reshape(*shape[:-1], bytes_per_row(name, shape[-1]))
    if name == "a8":
        q, scale, _ = a8_parts(rows)
        return (q.reshape(*scale.shape, 16) * scale[..., None]).reshape(shape)
    s = SPECS[name]
    blocks = rows.reshape(*shape[:-1], shape[-1] // s.block, s.bytes)
    code = codes(s, blocks)
    value = (code.view(np.int8) if s.signed else code).astype(np.float32) + np.float32(s.bias)
    scale = f16_at(blocks, s.scale)
    if s.sub is not None:
        sub = blocks[..., s.sub : s.sub + s.block // 16].view(np.int8).astype(np.float32)
        scale = np.repeat(scale * sub, 16, axis=-1)
    value *= scale
    if s.min is not None:
        value += f16_at(blocks, s.min)
    return value.reshape(shape)


def encode(fmt: Format | str, x: np.ndarray) -> np.ndarray:
    """f32 [..., k] -> u8 [..., bytes_per_row]. ValueError if k is not a multiple of the group."""
    name = fmt if isinstance(fmt, str) else fmt.name
    x = np.ascontiguousarray(x, np.float32)
    size = bytes_per_row(name, x.shape[-1])
    if name == "a8":
        return encode_a8(x)
    s = SPECS[name]
    out = np.zeros((*x.shape[:-1], x.shape[-1] // s.block, s.bytes), np.uint8)
    _ENCODERS[name](s, x.reshape(*x.shape[:-1], -1, s.block), out)
    return out.reshape(*x.shape[:-1], size)


def a8_parts(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a8 rows u8 [..., bytes] -> (i8 q [..., k], f32 scale [..., k/16], f32 sum [..., k/32])."""
    k = rows.shape[-1] // bytes_per_row("a8", 32) * 32
    tail = np.ascontiguousarray(rows[..., k:]).view(np.float32)
    return rows[..., :k].view(np.int8), tail[..., : k // 16], tail[..., k // 16 :]


def encode_a8(x: np.ndarray) -> np.ndarray:
    """f32 [..., k] -> a8 rows, in exactly the operations generated code uses (all f32, each
    rounded).

    Per 16 values: amax = max|x| by magnitude of the bits (so NaN > inf > numbers). If A8_TINY <=
    amax < inf then q = round_half_even(x * (127 / amax)) and scale = amax / 127; if amax is smaller
    q = 0 and scale = 0; if it is not finite q = 0 and scale = amax, which makes every product with
    these values NaN. Per 32 values: sum = s0 + s1, s = scale * (q added up, exact) of each 16.
    """
    groups = x.reshape(*x.shape[:-1], -1, 16)
    amax = (groups.view(np.int32) & 0x7FFFFFFF).max(-1, keepdims=True).view(np.float32)
    usable = (amax >= A8_TINY) & (amax < np.inf)
    inverse = np.float32(127) / np.where(usable, amax, np.float32(1))
    q = np.rint(np.where(usable, groups, np.float32(0)) * inverse)
    scale = np.where(amax < A8_TINY, np.float32(0), amax) / np.float32(127)
    with np.errstate(invalid="ignore"):
        half = q.sum(-1, dtype=np.float32) * scale[..., 0]
        total = half[..., ::2] + half[..., 1::2]
    parts = (q.astype(np.int8), scale, total)
    flat = [p.astype(p.dtype).reshape(*x.shape[:-1], -1).view(np.uint8) for p in parts]
    return np.concatenate(flat, axis=-1)


def _put_f16(blocks: np.ndarray, offset: int, value: np.ndarray) -> np.ndarray:
    """Stores value [..., 1] as f16 and returns what was stored, as f32."""
    half = value.astype(np.float16)
    blocks[..., offset : offset + 2] = half.view(np.uint8)
    return half.astype(np.float32)


def _inverse(d: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.where(d != 0, np.float32(1) / d, np.float32(0)).astype(np.float32)


def _extreme(x: np.ndarray) -> np.ndarray:
    """The (first) value of largest magnitude along the last axis, with its sign; keeps the axis."""
    return np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], -1)


def _encode_q8_0(s: Spec, x: np.ndarray, out: np.ndarray) -> None:
    d = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    scaled = x * _inverse(d)
    q = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # half away from zero
    _put_f16(out, s.scale, d)
    pack_codes(s, q.astype(np.int8).view(np.uint8), out)


def _encode_q4_0(s: Spec, x: np.ndarray, out: np.ndarray) -> None:
    d = _extreme(x) / np.float32(-8)
    q = np.minimum(np.trunc(x * _inverse(d) + np.float32(8.5)), 15)
    _put_f16(out, s.scale, d)
    pack_codes(s, q.astype(np.uint8), out)


def _encode_q4_1(s: Spec, x: np.ndarray, out: np.ndarray) -> None:
    low = x.min(-1, keepdims=True)
    d = (x.max(-1, keepdims=True) - low) / np.float32(15)
    q = np.minimum(np.trunc((x - low) * _inverse(d) + np.float32(0.5)), 15)
    _put_f16(out, s.scale, d)
    assert s.min is not None
    _put_f16(out, s.min, low)
    pack_codes(s, q.astype(np.uint8), out)


def _best_scale(x: np.ndarray) -> np.ndarray:
    """Scale of 16 values on the grid -32..31 with the least x²-weighted squared error, of 19
    tried."""
    top = _extreme(x)
    alive = np.abs(top) >= 1e-15
    top = np.where(alive, top, np.float32(1))
    weight = x * x
    best, scale = np.zeros_like(top), np.zeros_like(top)
    for step in (0, *range(-9, 0), *range(1, 10)):
        inverse = np.float32(-(32 + 0.1 * step)) / top
        q = np.clip(np.rint(inverse * x), -32, 31)
        xq = (weight * x * q).sum(-1, keepdims=True)
        qq = (weight * q * q).sum(-1, keepdims=True)
        fit = np.divide(xq, qq, out=np.zeros_like(xq), where=qq > 0)
        better = (qq > 0) & ((xq * fit > best) | (step == 0))
        scale, best = np.where(better, fit, scale), np.where(better, xq * fit, best)
    return np.where(alive, scale, np.float32(0))


def _encode_q6_k(s: Spec, x: np.ndarray, out: np.ndarray) -> None:
    groups = x.reshape(*x.shape[:-1], 16, 16)
    scales = _best_scale(groups)[..., 0]
    top = _extreme(scales)
    top = np.where(np.abs(top) >= 1e-15, top, np.float32(0))
    inverse = np.float32(-128) * _inverse(top)
    d = _put_f16(out, s.scale, _inverse(inverse))
    sub = np.minimum(np.rint(inverse * scales), 127)
    step = (d * sub)[..., None]
    q = np.where(step != 0, np.rint(groups * _inverse(step)), 0)
    code = (np.clip(q, -32, 31) + 32).astype(np.uint8).reshape(x.shape)
    assert s.sub is not None
    out[..., s.sub : s.sub + 16] = sub.astype(np.int8).view(np.uint8)
    pack_codes(s, code, out)


_ENCODERS: dict[str, Callable[[Spec, np.ndarray, np.ndarray], None]] = {
    "q8_0": _encode_q8_0, "q4_0": _encode_q4_0, "q4_1": _encode_q4_1, "q6_k": _encode_q6_k,
}  # fmt: skip
