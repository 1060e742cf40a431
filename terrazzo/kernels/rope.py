"""Rotary position embedding (Su et al., 2021), and the write of keys and values to the cache.

A head of d values is d/2 pairs; pair i turns by position · theta_i. The tables hold cos and sin in
f32 for every position and pair. Two conventions say which values make a pair; the tensors' dims
tell them apart: half-split (i, i + d/2) is a view [.., two, half], interleaved (2i, 2i + 1) is a
view [.., half, two].
"""

from __future__ import annotations

from typing import Any

import terrazzo.lang as tz

tokens, heads, kvheads, two, half, d = tz.dims("tokens heads kvheads two half d")
(group,) = tz.dims("group", static=True)
positions, pages, lanes = tz.dims("positions pages lanes")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)
R = tz.dtypes("R", tz.f32, tz.f16, tz.bf16)
C = tz.dtypes("C", tz.f16, tz.bf16, tz.f32, tz.i8)


def turned(x: Any, y: Any, cos: Any, sin: Any) -> Any:
    """The pair (x, y) turned by the angle, in f32."""
    x, y = x.to(tz.f32), y.to(tz.f32)
    return x * cos - y * sin, y * cos + x * sin


def in_units(x: Any, unit: Any) -> Any:
    """x in whole multiples of `unit` (f16), from -127 to 127. A unit too small for f16 is 0: so is
    x then."""
    u = unit.to(tz.f32)
    q = tz.round(x * tz.where(u > 0.0, 1.0 / u, 0.0))
    return tz.minimum(tz.maximum(q, -127.0), 127.0)


@tz.kernel(aliases=[("out", "x")])
def rope(
    x: tz.gm[T, tokens, heads, two, half],
    cos: tz.gm[tz.f32, positions, half],
    sin: tz.gm[tz.f32, positions, half],
    position: tz.gm[tz.i32, tokens],
    out: tz.gm[R, tokens, heads, two, half],
):
    """out = x with every pair (i, i + half) turned by its token's position. `two` is 2."""
    for t in tz.grid(tokens):
        at = tz.load(position[t])
        a, b = turned(x[t, :, 0], x[t, :, 1], cos[at], sin[at])
        out[t, :, 0] = a.to(R)
        out[t, :, 1] = b.to(R)


@tz.kernel(aliases=[("out", "x")])
def rope_interleaved(
    x: tz.gm[T, tokens, heads, half, two],
    cos: tz.gm[tz.f32, positions, half],
    sin: tz.gm[tz.f32, positions, half],
    position: tz.gm[tz.i32, tokens],
    out: tz.gm[R, tokens, heads, half, two],
):
    """out = x with every pair (2i, 2i + 1) turned by its token's position. `two` is 2."""
    for t in tz.grid(tokens):
        at = tz.load(position[t])
        a, b = turned(x[t, :, :, 0], x[t, :, :, 1], cos[at], sin[at])
        out[t, :, :, 0] = a.to(R)
        out[t, :, :, 1] = b.to(R)


@tz.kernel(aliases=[("out", "q")])
def rope_store(
    q: tz.gm[T, tokens, kvheads, group, two, half],
    k: tz.gm[T, tokens, kvheads, two, half],
    v: tz.gm[T, tokens, kvheads, d],
    cos: tz.gm[tz.f32, positions, half],
    sin: tz.gm[tz.f32, positions, half],
    position: tz.gm[tz.i32, tokens],
    slot: tz.gm[tz.i32, tokens],
    out: tz.gm[R, tokens, kvheads, group, two, half],
    kcache: tz.gm[C, pages, kvheads, two, half, lanes],
    vcache: tz.gm[C, pages, kvheads, lanes, d],
    kscale: tz.gm[tz.f16, pages, kvheads, lanes] | None = None,
    vscale: tz.gm[tz.f16, pages, kvheads, lanes] | None = None,
    PAGE: tz.const = 16,
):
    """out = q turned; k turned and v as it is go into the cache at each token's slot (half-split).

    Query heads stand in groups with the key/value head that they share. Token t's slot is
    page · PAGE + lane. The key pages are a view of the cache's [.., d, lanes]; `two` is 2, lanes is
    PAGE. Slots of a launch are distinct. With scales the cache holds whole numbers: a token's keys
    of a head in units of its kscale (their largest magnitude / 127), its values likewise.
    """
    for t, h in tz.grid(tokens, kvheads):
        at, page, lane = tz.load(position[t]), slot[t] // PAGE, slot[t] % PAGE
        c, s = tz.load(cos[at]), tz.load(sin[at])
        a, b = turned(q[t, h, :, 0], q[t, h, :, 1], c, s)
        out[t, h, :, 0] = a.to(R)
        out[t, h, :, 1] = b.to(R)
        a, b = turned(k[t, h, 0], k[t, h, 1], c, s)
        w = tz.load(v[t, h]).to(tz.f32)
        if kscale is not None and vscale is not None:
            most = tz.maximum(tz.max(tz.abs(a), axis=half), tz.max(tz.abs(b), axis=half))
            unit, wide = (most / 127.0).to(tz.f16), (tz.max(tz.abs(w), axis=d) / 127.0).to(tz.f16)
            kscale[page, h, lane], vscale[page, h, lane] = unit, wide
            a, b, w = in_units(a, unit), in_units(b, unit), in_units(w, wide)
        kcache[page, h, 0, :, lane] = a.to(C)
        kcache[page, h, 1, :, lane] = b.to(C)
        vcache[page, h, lane] = w.to(C)


@tz.kernel(aliases=[("out", "q")])
def rope_store_interleaved(
    q: tz.gm[T, tokens, kvheads, group, half, two],
    k: tz.gm[T, tokens, kvheads, half, two],
    v: tz.gm[T, tokens, kvheads, d],
    cos: tz.gm[tz.f32, positions, half],
    sin: tz.gm[tz.f32, positions, half],
    position: tz.gm[tz.i32, tokens],
    slot: tz.gm[tz.i32, tokens],
    out: tz.gm[R, tokens, kvheads, group, half, two],
    kcache: tz.gm[C, pages, kvheads, half, two, lanes],
    vcache: tz.gm[C, pages, kvheads, lanes, d],
    kscale: tz.gm[tz.f16, pages, kvheads, lanes] | None = None,
    vscale: tz.gm[tz.f16, pages, kvheads, lanes] | None = None,
    PAGE: tz.const = 16,
):
    """As rope_store, for pairs (2i, 2i + 1)."""
    for t, h in tz.grid(tokens, kvheads):
        at, page, lane = tz.load(position[t]), slot[t] // PAGE, slot[t] % PAGE
        c, s = tz.load(cos[at]), tz.load(sin[at])
        a, b = turned(q[t, h, :, :, 0], q[t, h, :, :, 1], c, s)
        out[t, h, :, :, 0] = a.to(R)
        out[t, h, :, :, 1] = b.to(R)
        a, b = turned(k[t, h, :, 0], k[t, h, :, 1], c, s)
        w = tz.load(v[t, h]).to(tz.f32)
        if kscale is not None and vscale is not None:
            most = tz.maximum(tz.max(tz.abs(a), axis=half), tz.max(tz.abs(b), axis=half))
            unit, wide = (most / 127.0).to(tz.f16), (tz.max(tz.abs(w), axis=d) / 127.0).to(tz.f16)
            kscale[page, h, lane], vscale[page, h, lane] = unit, wide
            a, b, w = in_units(a, unit), in_units(b, unit), in_units(w, wide)
        kcache[page, h, :, 0, lane] = a.to(C)
        kcache[page, h, :, 1, lane] = b.to(C)
        vcache[page, h, lane] = w.to(C)
