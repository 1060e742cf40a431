"""What benchmarks/kernels.py measures: rows as data, and for each kind of work the two calls.

A row names its work, shape, element type and bars. `build` makes the arrays and gives what runs
ours and torch's on them, both into memory that is there already (torch: where it has `out=`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import DTYPES, Format
from terrazzo.kernels import activation, attention, linear, norm, rope, sampling
from terrazzo.kernels.attention_parts import attention_parts, join_parts
from terrazzo.models.llama import Chunk, part_spans, whole_spans
from terrazzo.runtime import launch
from terrazzo.runtime.recorder import Recorder
from terrazzo.targets.cpu import layouts

CUBES = tuple((n, n, n) for n in (512, 1024, 2048, 4096))
LLM = ((512, 1536, 576), (512, 576, 1536), (128, 1536, 576))  # m, n, k of the demo model's layers
TABLES = ((512, 576), (4096, 4096))
HEAD = 64


@dataclass(frozen=True)
class Row:
    """`bar`: times the peer's speed; `share`: of the bandwidth at this working set. 0 asks for
    nothing. `shape`: m, n, k of products; tokens or context, query heads, key/value heads of
    attention; rows, columns."""

    work: str
    shape: tuple[int, ...]
    dtype: str
    bar: float = 0.0
    share: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.work} {'x'.join(map(str, self.shape))} {self.dtype}"


@dataclass(frozen=True)
class Case:
    """`ours`: a bound launch, or what makes a call for so many threads; `theirs`: torch's call (or
    our own fp32 product, where the row asks for that). `read`, `written`: bytes, each tensor once;
    `operations`: multiply and add count as two. `error`: largest difference of the two results
    over the largest result, None where they are of different weights."""

    ours: launch.Launch | Callable[[int], Callable[[], None]]
    theirs: Callable[[], object] | launch.Launch
    read: int
    written: int
    operations: float
    error: Callable[[], float] | None


def rows() -> Iterator[Row]:
    for shape in (*CUBES, *LLM):
        yield Row("matmul", shape, "f32", 0.95)
        yield Row("matmul", shape, "f16", 3.0)
        yield Row("matmul", shape, "bf16", 3.0)
    for dtype in ("f32", "f16"):
        for tokens, bar in ((512, 1.4), (2048, 1.2), (8192, 1.2)):
            yield Row("flash_attention", (tokens, 9, 9), dtype, bar)
        yield Row("decode_attention", (2048, 9, 3), dtype, 1.4)
        yield Row("decode_attention", (2048, 9, 9), dtype, 1.0, 0.85)
        for context in (16384, 32768):
            yield Row("paged_attention", (context, 9, 3), dtype, 1.0, 0.85)
    for shape in TABLES:
        small = shape == TABLES[0]
        for dtype in ("f32", "f16"):
            for work in ("rms_norm", "silu_mul", "rope", "softmax"):
                bar = 1.4 if work == "softmax" else 2.0 if small else 0.0
                yield Row(work, shape, dtype, bar, 0.0 if small else 0.85)
    for n, k in ((1536, 576), (576, 1536), (4096, 4096)):
        for m in (1, 16, 512):
            yield Row("linear q8_0", (m, n, k), "own f32", 2.5 if m > 1 else 0.0)
            yield Row("linear q4_0", (m, n, k), "own f32", 2.5 if m > 1 else 5.0)
    for m in (16, 512):
        yield Row("linear q8_0", (m, 4096, 4096), "_int_mm")
        yield Row("linear q4_0", (m, 4096, 4096), "_weight_int4pack_mm")


def to_torch(x: np.ndarray) -> Any:
    """The same memory as a tensor."""
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def build(row: Row) -> Case:
    rng = np.random.default_rng(1)
    work = row.work.partition(" ")[0]
    return {
        "matmul": _matmul, "flash_attention": _flash, "decode_attention": _decode,
        "paged_attention": _paged, "linear": _low_bit,
    }.get(work, _elementwise)(row, rng)  # fmt: skip


class _Arrays:
    """Arrays of one element type, each with torch's view of it; counts bytes."""

    def __init__(self, row: Row, rng: np.random.Generator) -> None:
        self.rng, self.dtype, self.read = rng, DTYPES[row.dtype].numpy, 0

    def normal(self, *shape: int) -> tuple[np.ndarray, Any]:
        x = self.rng.standard_normal(shape, dtype=np.float32).astype(self.dtype)
        self.read += x.nbytes
        return x, to_torch(x)

    def empty(self, *shape: int) -> tuple[np.ndarray, Any]:
        return np.ones(shape, self.dtype), to_torch(np.ones(shape, self.dtype))


def _difference(ours: np.ndarray, theirs: Callable[[], Any]) -> Callable[[], float]:
    def error() -> float:
        want = theirs().float().numpy().reshape(ours.shape)
        return float(np.abs(ours.astype(np.float32) - want).max() / np.abs(want).max())

    return error


def _matmul(row: Row, rng: np.random.Generator) -> Case:
    m, n, k = row.shape
    make = _Arrays(row, rng)
    (a, ta), (b, tb), (out, tout) = make.normal(m, k), make.normal(k, n), make.empty(m, n)
    ready = launch.prepare(linear.matmul, (a, b, out), {})

    def theirs() -> Any:
        return torch.mm(ta, tb, out=tout)

    return Case(ready, theirs, make.read, out.nbytes, 2.0 * m * n * k, _difference(out, theirs))


def _sdpa(q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    def theirs() -> Any:
        return functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )

    return theirs


def _flash(row: Row, rng: np.random.Generator) -> Case:
    s, heads, kvheads = row.shape
    make = _Arrays(row, rng)
    q, tq = make.normal(heads, s, HEAD)
    (k, tk), (v, tv) = make.normal(kvheads, s, HEAD), make.normal(kvheads, s, HEAD)
    out = np.ones_like(q)
    ready = launch.prepare(attention.flash_attention, (q, k, v, out, HEAD**-0.5), {})
    theirs = _sdpa(tq[None], tk[None], tv[None], True)
    operations = 4.0 * heads * HEAD * s * (s + 1) / 2
    return Case(ready, theirs, make.read, out.nbytes, operations, _difference(out, theirs))


def _decode(row: Row, rng: np.random.Generator) -> Case:
    context, heads, kvheads = row.shape
    make = _Arrays(row, rng)
    q, tq = make.normal(1, kvheads, heads // kvheads, HEAD)
    (k, tk), (v, tv) = (make.normal(1, kvheads, context, HEAD) for _ in range(2))
    out, length = np.ones_like(q), np.array([context], np.int32)
    ready = launch.prepare(attention.decode_attention, (q, k, v, length, out, HEAD**-0.5), {})
    theirs = _sdpa(tq.reshape(1, heads, 1, HEAD), tk, tv, False)
    operations = 4.0 * heads * HEAD * context
    return Case(ready, theirs, make.read, out.nbytes, operations, _difference(out, theirs))


def _paged(row: Row, rng: np.random.Generator) -> Case:
    """The engine's attention on its paged cache; torch has the same values in plain tensors."""
    context, heads, kvheads = row.shape
    page = 16
    make = _Arrays(row, rng)
    q, tq = make.normal(1, kvheads, heads // kvheads, HEAD)
    k, _ = make.normal(context // page, kvheads, HEAD, page)
    v, _ = make.normal(context // page, kvheads, page, HEAD)
    plain = [np.ascontiguousarray(x).reshape(1, kvheads, context, HEAD)
             for x in (k.transpose(1, 0, 3, 2), v.transpose(1, 0, 2, 3))]  # fmt: skip
    pages = np.arange(context // page, dtype=np.int32)
    chunk, out = Chunk(pages, [0], context - 1), np.ones((1, heads * HEAD), np.float32)

    def ours(threads: int) -> Callable[[], None]:
        parts = chunk.parts if threads > 1 else 1
        spans = part_spans(chunk, 0, 0, 0) if threads > 1 else whole_spans(chunk, 0, 0)
        names = ("seq", "first", "count", "position", "part", "end", "to")
        given = dict(zip(names, np.array(spans, np.int32).T.copy(), strict=True))
        one = (parts, *q.shape[1:3])
        held = {"tops": np.empty(one, np.float32), "totals": np.empty(one, np.float32),
                "values": np.empty((*one, HEAD), np.float32)}  # fmt: skip
        recorder = Recorder("attention", threads)
        recorder.add(attention_parts, {}, q=q, kcache=k, vcache=v, table=pages[None], **given,
                     **held, scale=HEAD**-0.5)  # fmt: skip
        first, count, apart = (np.array([x], np.int32) for x in (0, parts, 1))
        recorder.add(join_parts, {}, **{n: x.reshape(parts, -1) for n, x in held.items()},
                     first=first, count=count, apart=apart, out=out)  # fmt: skip
        return recorder.finish().replay

    tk, tv = map(to_torch, plain)
    theirs = _sdpa(tq.reshape(1, heads, 1, HEAD), tk, tv, False)
    operations = 4.0 * heads * HEAD * context
    return Case(ours, theirs, make.read, out.nbytes, operations, _difference(out, theirs))


def _elementwise(row: Row, rng: np.random.Generator) -> Case:
    n, dim = row.shape
    make = _Arrays(row, rng)
    (x, tx), (out, tout) = make.normal(n, dim), make.empty(n, dim)
    if row.work == "rms_norm":
        w = np.ones(dim, np.float32)
        tw = torch.ones(dim, dtype=tx.dtype)
        ready = launch.prepare(norm.rms_norm, (x, w, out, 1e-5), {})

        def theirs() -> Any:  # has no out=
            return functional.rms_norm(tx, (dim,), tw, 1e-5)
    elif row.work == "silu_mul":
        up, tup = make.normal(n, dim)
        ready = launch.prepare(activation.silu_mul, (x, up, out), {})

        def theirs() -> Any:
            torch.ops.aten.silu.out(tx, out=tout)
            return tout.mul_(tup)
    elif row.work == "softmax":
        ready = launch.prepare(sampling.softmax, (x, out, 1.0), {})

        def theirs() -> Any:
            return torch.softmax(tx, -1, out=tout)
    else:
        return _rope(row, make, (x, tx), (out, tout))
    return Case(ready, theirs, make.read, out.nbytes, 0.0, _difference(out, theirs))


def _rope(row: Row, make: _Arrays, x: tuple[np.ndarray, Any], out: tuple[np.ndarray, Any]) -> Case:
    """Half-split pairs of heads of 64; torch makes its output with three calls in place."""
    n, dim = row.shape
    half = HEAD // 2
    angle = np.arange(n)[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    split = (n, dim // HEAD, 2, half)
    args = (x[0].reshape(split), cos, sin, np.arange(n, dtype=np.int32), out[0].reshape(split))
    ready = launch.prepare(rope.rope, args, {})
    tx, tout = x[1].reshape(split), out[1].reshape(split)
    tcos, tsin = (torch.from_numpy(t).to(tx.dtype)[:, None] for t in (cos, sin))

    def theirs() -> Any:
        torch.mul(tx, tcos[:, :, None], out=tout)
        tout[:, :, 0].addcmul_(tx[:, :, 1], tsin, value=-1)
        tout[:, :, 1].addcmul_(tx[:, :, 0], tsin)
        return tout

    return Case(ready, theirs, make.read, out[0].nbytes, 0.0, _difference(out[0], theirs))


def _low_bit(row: Row, rng: np.random.Generator) -> Case:
    """a8 activations and weights in few bits, against our own f32 product on packed panels or an
    integer product of torch's (other weights, equal shapes)."""
    m, n, k = row.shape
    fmt = row.work.partition(" ")[2]
    x = rng.standard_normal((m, k), dtype=np.float32)
    w = rng.standard_normal((n, k), dtype=np.float32)
    a = Packed(formats.A8, (m, k), formats.encode(formats.A8, x))
    b = launch.weights(Packed(formats.FORMATS[fmt], (n, k), formats.encode(fmt, w)))
    out = np.ones((m, n), np.float32)
    ready = launch.prepare(linear.linear, (a, b, out), {})
    peer: Callable[[], object] | launch.Launch
    if row.dtype == "own f32":
        plain = layouts.pack_float(w).reshape(layouts.panels(n), -1).view(np.uint8)
        whole = Packed(Format("f32", 1, layouts.LAYOUT), (n, k), plain)
        peer = launch.prepare(linear.linear, (x, whole, np.ones_like(out)), {})
    elif row.dtype == "_int_mm":
        ta, tb = (to_torch((v * 30).astype(np.int8)) for v in (x, np.ascontiguousarray(w.T)))
        tout = torch.empty(m, n, dtype=torch.int32)
        peer = partial(torch._int_mm, ta, tb, out=tout)
    else:
        codes = torch.randint(0, 16, (n, k), dtype=torch.int32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        ta, scales = to_torch(x).bfloat16(), torch.ones(k // 32, n, 2).bfloat16()
        peer = partial(torch.ops.aten._weight_int4pack_mm_for_cpu, ta, packed, 32, scales)
    return Case(ready, peer, b.data.nbytes + a.data.nbytes, out.nbytes, 2.0 * m * n * k, None)
