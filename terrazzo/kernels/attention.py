"""Causal attention with an online softmax (Dao et al., 2022): scores never leave the chip.

The context is worked through in blocks of 256 positions. Each block gives its own maximum, sum and
weighted values; blocks are merged in order. The 256 is part of the definition: a query's result
depends on its own context alone, not on how queries are grouped into tiles, launches or batches.
"""

from __future__ import annotations

from typing import Any

import terrazzo.lang as tz

tokens, spans, seqs, blocks, ctx = tz.dims("tokens spans seqs blocks ctx")
pages, kvheads, lanes = tz.dims("pages kvheads lanes")
group, d = tz.dims("group d", static=True)
heads, s, t = tz.dims("heads s t")
Q = tz.dtypes("Q", tz.f32, tz.f16, tz.bf16)
C = tz.dtypes("C", tz.f16, tz.bf16, tz.f32, tz.i8)
R = tz.dtypes("R", tz.f32, tz.f16, tz.bf16)

LOG2E = 1.4426950408889634
HIDDEN = (
    -1e30
)  # a score that weighs nothing beside any other, and whose difference with itself is 0
# Whether products take f16 and bf16 as they are, as the Cube wants them: scores are scaled after
# their product, weights are rounded before theirs. Elsewhere all is widened to f32 first.
ON_CUBE = tz.by_target(False, ascend=True, davinci=True)


def merged(top: Any, total: Any, acc: Any, m: Any, p: Any, o: Any) -> Any:
    """(top, total, acc) with what has maximum m, weights that add up to p and weighted values o
    merged in."""
    new = tz.maximum(top, m)
    old, own = tz.exp2(top - new), tz.exp2(m - new)
    return new, total * old + p * own, acc * old + o * own


def scores(qt: Any, kcache: Any, kscale: Any, at: Any, dtype: Any) -> Any:
    """Products of queries with the keys at (page, head, lane) of a cache, in `dtype`."""
    page, h, lane = at
    x = qt @ tz.load(kcache[page, h, :, lane], space=tz.L1).to(dtype)
    return x if kscale is None else x * tz.load(kscale[page, h, lane]).to(tz.f32)


def weighed(x: Any, axis: Any, vcache: Any, vscale: Any, at: Any, dtype: Any) -> Any:
    """A block of scores x along `axis` as `merged` takes it: maximum, sum of weights, and the
    values at (page, head, lane) of a cache times these."""
    page, h, lane = at
    m = tz.max(x, axis=axis)
    p = tz.exp2(x - m)
    w = p if vscale is None else p * tz.load(vscale[page, h, lane]).to(tz.f32)
    o = w.to(dtype) @ tz.load(vcache[page, h, lane], space=tz.L1).to(dtype)
    return m, tz.sum(p, axis=axis), o


@tz.kernel
def attention(
    q: tz.gm[Q, tokens, kvheads, group, d],
    kcache: tz.gm[C, pages, kvheads, d, lanes],
    vcache: tz.gm[C, pages, kvheads, lanes, d],
    table: tz.gm[tz.i32, seqs, blocks],
    seq: tz.gm[tz.i32, spans],
    first: tz.gm[tz.i32, spans],
    count: tz.gm[tz.i32, spans],
    position: tz.gm[tz.i32, spans],
    out: tz.gm[R, tokens, kvheads, group, d],
    scale: tz.f32,
    kscale: tz.gm[tz.f16, pages, kvheads, lanes] | None = None,
    vscale: tz.gm[tz.f16, pages, kvheads, lanes] | None = None,
    PAGE: tz.const = 16,
    BQ: tz.const = 32,
    STEP: tz.const = 256,
    NARROW: tz.const = ON_CUBE,
):
    """out = softmax(scale · q kᵀ, over positions up to the query's own) v, over a paged cache.

    A span is `count` consecutive queries of one sequence: rows first .. first + count - 1 of q, at
    positions position .. of sequence `seq`, whose page i is table[seq, i]. A prompt may be one span
    or many (they run in parallel); a sequence that decodes is a span of one. Query heads are
    grouped by the key/value head they share. Keys and values up to each span's last position are in
    the cache; with scales it holds whole numbers (i8), a token's keys of a head in units of its
    kscale, its values in units of its vscale.
    """
    for b, h in tz.grid(spans, kvheads):
        F = C if NARROW else tz.f32  # what products take
        row, q0 = tz.load(seq[b]), tz.load(first[b])
        shift = position[b] - q0  # position of a query = its row in q + shift
        for i in tz.loop(q0, q0 + count[b], of=tokens, step=BQ):
            qt = tz.load(q[i, h], space=tz.L1).to(F)
            by = scale * LOG2E
            qt = qt if NARROW else qt * by
            top, total, acc = tz.full(HIDDEN, i, group), tz.zeros(i, group), tz.zeros(i, group, d)
            for j in tz.loop(0, i.stop + shift, of=ctx, step=STEP):
                at = table[row, j // PAGE], h, j % PAGE
                x = scores(qt, kcache, kscale, at, F)
                x = x * by if NARROW else x
                x = tz.where(tz.index(j) <= tz.index(i) + shift, x, HIDDEN)
                top, total, acc = merged(top, total, acc, *weighed(x, j, vcache, vscale, at, F))
            out[i, h] = (acc / total).to(R)


@tz.kernel
def flash_attention(
    q: tz.gm[Q, heads, s, d],
    k: tz.gm[Q, kvheads, t, d],
    v: tz.gm[Q, kvheads, t, d],
    out: tz.gm[R, heads, s, d],
    scale: tz.f32,
    BQ: tz.const = tz.by_target(64, amx=128),
    STEP: tz.const = 256,
    NARROW: tz.const = ON_CUBE,
):
    """out = softmax(scale · q kᵀ) v, causal, on plain tensors; query i sees keys 0 .. i + t - s."""
    for h, i in tz.grid(heads, s, step=(None, BQ)):
        F = Q if NARROW else tz.f32  # what products take
        by = scale * LOG2E
        qt = tz.load(q[h, i], space=tz.L1).to(F)
        qt = qt if NARROW else qt * by
        kv, shift = h // (heads // kvheads), t - s
        top, total, acc = tz.full(HIDDEN, i), tz.zeros(i), tz.zeros(i, d)
        for j in tz.loop(0, i.stop + shift, of=t, step=STEP):
            x = qt @ tz.load(k[kv, j], space=tz.L1).to(F)
            x = x * by if NARROW else x
            x = tz.where(tz.index(j) <= tz.index(i) + shift, x, HIDDEN)
            m = tz.max(x, axis=j)
            p = tz.exp2(x - m)
            o = p.to(F) @ tz.load(v[kv, j], space=tz.L1).to(F)
            top, total, acc = merged(top, total, acc, m, tz.sum(p, axis=j), o)
        out[h, i] = (acc / total).to(R)


@tz.kernel
def decode_attention(
    q: tz.gm[Q, seqs, kvheads, group, d],
    k: tz.gm[Q, seqs, kvheads, ctx, d],
    v: tz.gm[Q, seqs, kvheads, ctx, d],
    length: tz.gm[tz.i32, seqs],
    out: tz.gm[R, seqs, kvheads, group, d],
    scale: tz.f32,
    STEP: tz.const = 256,
    NARROW: tz.const = ON_CUBE,
):
    """out = softmax(scale · q kᵀ) v of one query a sequence, over its first `length` (≥ 1) keys.

    Query heads are grouped by the key/value head they share; caches are plain tensors.
    """
    for b, h in tz.grid(seqs, kvheads):
        F = Q if NARROW else tz.f32  # what products take
        by = scale * LOG2E
        qt = tz.load(q[b, h], space=tz.L1).to(F)
        qt = qt if NARROW else qt * by
        top, total, acc = tz.full(HIDDEN, group), tz.zeros(group), tz.zeros(group, d)
        for j in tz.loop(0, length[b], of=ctx, step=STEP):
            x = qt @ tz.load(k[b, h, j], space=tz.L1).to(F)
            x = x * by if NARROW else x
            m = tz.max(x, axis=j)
            p = tz.exp2(x - m)
            o = p.to(F) @ tz.load(v[b, h, j], space=tz.L1).to(F)
            top, total, acc = merged(top, total, acc, m, tz.sum(p, axis=j), o)
        out[b, h] = (acc / total).to(R)
