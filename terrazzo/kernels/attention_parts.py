"""The engine's attention: the context in parts of 2,048 positions, of which threads may take one
each.

A part gives its own maximum, sum and weighted values, worked out in blocks of 256 as `attention`
does; parts are merged in order. The 2,048, like the 256, is part of the definition, so a query's
result is the same bits whether one thread merges its parts as it goes or several write them down
for `join_parts` to merge. (Split in a fixed way over the context: FlashDecoding, Dao et al., 2023.)
"""

from __future__ import annotations

import terrazzo.lang as tz
from terrazzo.kernels.attention import HIDDEN, LOG2E, C, Q, merged, scores, weighed
from terrazzo.kernels.convert import pack

PART = 2048
A8_COLUMNS = 32  # a8 rows are written in multiples of them
WIDE = 1 << 16  # columns of any row

tokens, spans, seqs, blocks, ctx = tz.dims("tokens spans seqs blocks ctx")
pages, kvheads, lanes = tz.dims("pages kvheads lanes")
group, d = tz.dims("group d", static=True)
parts, rows, dim, heads = tz.dims("parts rows dim heads")
R = tz.dtypes("R", tz.f32, tz.a8)


@tz.kernel
def attention_parts(
    q: tz.gm[Q, tokens, kvheads, group, d],
    kcache: tz.gm[C, pages, kvheads, d, lanes],
    vcache: tz.gm[C, pages, kvheads, lanes, d],
    table: tz.gm[tz.i32, seqs, blocks],
    seq: tz.gm[tz.i32, spans],
    first: tz.gm[tz.i32, spans],
    count: tz.gm[tz.i32, spans],
    position: tz.gm[tz.i32, spans],
    part: tz.gm[tz.i32, spans],
    end: tz.gm[tz.i32, spans],
    to: tz.gm[tz.i32, spans],
    tops: tz.gm[tz.f32, parts, kvheads, group],
    totals: tz.gm[tz.f32, parts, kvheads, group],
    values: tz.gm[tz.f32, parts, kvheads, group, d],
    scale: tz.f32,
    kscale: tz.gm[tz.f16, pages, kvheads, lanes] | None = None,
    vscale: tz.gm[tz.f16, pages, kvheads, lanes] | None = None,
    PAGE: tz.const = 16,
    BQ: tz.const = 32,
    STEP: tz.const = 256,
    LONG: tz.const = PART,
):
    """`attention` over the parts part .. end - 1 of each span's context, not divided by its sum.

    A span's i-th query goes to row to + i: maximum, sum and weighted values. A few queries may be
    one span or one for each part of their context.
    """
    for b, h in tz.grid(spans, kvheads):
        row, q0 = tz.load(seq[b]), tz.load(first[b])
        shift, there = position[b] - q0, to[b] - q0
        for i in tz.loop(q0, q0 + count[b], of=tokens, step=BQ):
            qt = tz.load(q[i, h]).to(tz.f32) * (scale * LOG2E)
            top, total, acc = tz.full(HIDDEN, i, group), tz.zeros(i, group), tz.zeros(i, group, d)
            for n in tz.loop(part[b], end[b]):
                most, sums = tz.full(HIDDEN, i, group), tz.zeros(i, group)
                own = tz.zeros(i, group, d)
                last = tz.minimum((n + 1) * LONG, i.stop + shift)
                for j in tz.loop(n * LONG, last, of=ctx, step=STEP):
                    at = table[row, j // PAGE], h, j % PAGE
                    x = scores(qt, kcache, kscale, at, tz.f32)
                    x = tz.where(tz.index(j) <= tz.index(i) + shift, x, HIDDEN)
                    found = weighed(x, j, vcache, vscale, at, tz.f32)
                    most, sums, own = merged(most, sums, own, *found)
                top, total, acc = merged(top, total, acc, most, sums, own)
            at = tz.index(i) + there
            tops[at, h] = top
            totals[at, h] = total
            values[at, h] = acc


@tz.kernel
def join_parts(
    tops: tz.gm[tz.f32, parts, heads],
    totals: tz.gm[tz.f32, parts, heads],
    values: tz.gm[tz.f32, parts, dim],
    first: tz.gm[tz.i32, rows],
    count: tz.gm[tz.i32, rows],
    apart: tz.gm[tz.i32, rows],
    out: tz.gm[R, rows, dim],
    D: tz.const = 64,
):
    """out = the attention of each query from its `count` parts, which are rows first, first +
    apart, and so on; D columns a head. An a8 out is quantised on the way."""
    for r in tz.grid(rows):
        at, step = tz.load(first[r]), tz.load(apart[r])
        for c in tz.loop(dim, step=D if D % A8_COLUMNS == 0 else WIDE):
            h = c.start // D if D % A8_COLUMNS == 0 else tz.index(c) // D
            top, total = tz.load(tops[at, h]), tz.load(totals[at, h])
            acc = tz.load(values[at, c])
            for n in tz.loop(1, count[r]):
                to = at + n * step
                m, p, o = tz.load(tops[to, h]), tz.load(totals[to, h]), tz.load(values[to, c])
                top, total, acc = merged(top, total, acc, m, p, o)
            out[r, c] = pack(acc / total, R)
