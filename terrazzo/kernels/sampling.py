"""From logits to a token: penalties, temperature, top-k, top-p and min-p, and a reproducible draw.

Thresholds are found exactly and without sorting: the value sought is built bit by bit from the top,
as its place among all floats in order. Ties with a threshold are kept, so the candidates never
depend on the order of the vocabulary. Rows are independent: a sequence's token is
the same in any batch.
"""

from __future__ import annotations

from typing import Any

import terrazzo.lang as tz
from terrazzo.kernels.random import exponential, philox

rows, dim, seqs, vocab, recent, two = tz.dims("rows dim seqs vocab recent two")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)

COLD = 1e-6  # temperatures up to this take the most likely token
LEAST = 2.0**-126  # smaller weights (relative to the most likely token's) are never drawn


def nth(order: Any) -> Any:
    """The f32 at place `order` (u32) among all f32 in ascending order; NaN at the ends."""
    return tz.bitcast(tz.where(order >= 0x80000000, order ^ 0x80000000, ~order), tz.f32)


@tz.kernel(aliases=[("out", "x")])
def softmax(x: tz.gm[T, rows, dim], out: tz.gm[T, rows, dim], scale: tz.f32, ROWS: tz.const = 4):
    """out = exp(scale · x) / Σ exp(scale · x) along dim, in f32."""
    for r in tz.grid(rows, step=ROWS):
        t = tz.load(x[r], space=tz.UB).to(tz.f32) * scale
        e = tz.exp(t - tz.max(t, axis=dim))
        out[r] = (e * (1.0 / tz.sum(e, axis=dim))).to(T)


@tz.kernel
def argmax(logits: tz.gm[tz.f32, seqs, vocab], out: tz.gm[tz.i32, seqs], BLOCK: tz.const = 4096):
    """out = the index of the largest logit of a row, the lowest one of equals. NaN is a fault."""
    for s in tz.grid(seqs):
        best, token = tz.full(float("-inf")), tz.full(0, dtype=tz.i32)
        for j in tz.loop(vocab, step=BLOCK):
            x = tz.load(logits[s, j], space=tz.UB)
            m = tz.max(x, axis=j)
            token = tz.where(m > best, tz.argmax(x, axis=j), token)
            best = tz.maximum(best, m)
        tz.expect(best >= float("-inf"), "a logit is NaN")  # the largest is, if any is
        out[s] = token


@tz.kernel
def repeat_penalty(
    logits: tz.gm[tz.f32, seqs, vocab],
    ids: tz.gm[tz.i32, seqs, recent],
    count: tz.gm[tz.i32, seqs],
    penalty: tz.gm[tz.f32, seqs],
    BLOCK: tz.const = 64,
):
    """In place: of the first `count` ids, positive logits are divided by penalty, others times it.

    The rule of Keskar et al., 2019. The ids of a row are distinct.
    """
    for s in tz.grid(seqs):
        by = tz.load(penalty[s])
        for j in tz.loop(0, count[s], of=recent, step=BLOCK):
            token = tz.load(ids[s, j])
            x = tz.load(logits[s, token])
            logits[s, token] = tz.where(x > 0.0, x / by, x * by)


@tz.kernel
def candidates(
    logits: tz.gm[tz.f32, seqs, vocab],
    temperature: tz.gm[tz.f32, seqs],
    top_k: tz.gm[tz.i32, seqs],
    top_p: tz.gm[tz.f32, seqs],
    min_p: tz.gm[tz.f32, seqs],
    weight: tz.gm[tz.f32, seqs, vocab],
    BLOCK: tz.const = 4096,
):
    """weight = exp((logit - the largest) / temperature) of tokens that may be drawn, else 0.

    A token may be drawn if it is among the top_k largest (0: all); if it is among the fewest
    likeliest of those whose weights add up to at least top_p of the sum (1: all); and if its weight
    is at least min_p (0: all), the likeliest token's being 1. The likeliest always may. At a
    temperature of up to 1e-6 it is the only one, the lowest index of equals. Logits are finite or
    -inf; NaN is a fault.
    """
    for s in tz.grid(seqs):
        best, first = tz.full(float("-inf")), tz.full(0, dtype=tz.i32)
        for j in tz.loop(vocab, step=BLOCK):
            x = tz.load(logits[s, j], space=tz.UB)
            m = tz.max(x, axis=j)
            first = tz.where(m > best, tz.argmax(x, axis=j), first)
            best = tz.maximum(best, m)
        tz.expect(best >= float("-inf"), "a logit is NaN")
        t, k, p = tz.load(temperature[s]), tz.load(top_k[s]), tz.load(top_p[s])
        hot = t > COLD

        # The largest place that at least k logits reach: its 32 bits, or none if there is no k.
        place = tz.full(0, dtype=tz.u32)
        for b in tz.loop(tz.where(hot & (k > 0) & (k < vocab), 32, 0)):
            trial = place | (tz.full(0x80000000, dtype=tz.u32) >> b.to(tz.u32))
            limit, reach = nth(trial), tz.full(0, dtype=tz.i32)
            for j in tz.loop(vocab, step=BLOCK):
                reach += tz.sum((tz.load(logits[s, j], space=tz.UB) >= limit).to(tz.i32), axis=j)
            place = tz.where(reach >= k, trial, place)
        limit = tz.where(place >= 0x00800000, nth(place), float("-inf"))  # NaN lies below -inf

        heat = tz.where(hot, 1.0 / t, 0.0)
        total = tz.full(0.0)
        for j in tz.loop(vocab, step=BLOCK):
            x = tz.load(logits[s, j], space=tz.UB)
            e = tz.where(x >= limit, tz.exp((x - best) * heat), 0.0)
            e = tz.where(hot, e, (tz.index(j) == first).to(tz.f32))
            weight[s, j] = e
            total += tz.sum(e, axis=j)

        # The largest bound that weights of enough sum reach, in [0, 1]: bits up to 0x3F800000.
        place = tz.full(0, dtype=tz.u32)
        for b in tz.loop(tz.where(hot & (p < 1.0), 30, 0)):
            trial = place | (tz.full(0x20000000, dtype=tz.u32) >> b.to(tz.u32))
            limit, mass = tz.bitcast(trial, tz.f32), tz.full(0.0)
            for j in tz.loop(vocab, step=BLOCK):
                e = tz.load(weight[s, j], space=tz.UB)
                mass += tz.sum(tz.where(e >= limit, e, 0.0), axis=j)
            place = tz.where(mass >= p * total, trial, place)

        bound = tz.maximum(tz.maximum(tz.bitcast(place, tz.f32), min_p[s]), LEAST)
        bound = tz.minimum(bound, 1.0)
        for j in tz.loop(vocab, step=BLOCK):
            e = tz.load(weight[s, j], space=tz.UB)
            weight[s, j] = tz.where(e >= bound, e, 0.0)


@tz.kernel
def draw(
    weight: tz.gm[tz.f32, seqs, vocab],
    seed: tz.gm[tz.u32, seqs, two],
    position: tz.gm[tz.i32, seqs],
    out: tz.gm[tz.i32, seqs],
    BLOCK: tz.const = 128,
):
    """out = a token with probability weight / Σ weight, by Gumbel-max (Maddison et al., 2014).

    The token with the largest weight / E wins, E exponentially distributed: the rule in its ratio
    form. E is made from Philox with key seed[s] and counter (token, position[s], 0, 0). `two` is 2.
    """
    for s in tz.grid(seqs):
        k0, k1, at = tz.load(seed[s, 0]), tz.load(seed[s, 1]), position[s].to(tz.u32)
        zero = tz.full(0, dtype=tz.u32)
        best, token = tz.full(-1.0), tz.full(0, dtype=tz.i32)
        for i in tz.loop(vocab, step=BLOCK):
            # Most blocks hold no candidate; no numbers are made for them.
            live = tz.max(weight[s, i], axis=i) > 0.0
            for j in tz.loop(i.start, tz.where(live, i.stop, i.start), of=vocab, step=BLOCK):
                word = philox(tz.index(j).to(tz.u32), at, zero, zero, k0, k1)[0]
                e = tz.load(weight[s, j], space=tz.UB)
                score = tz.where(e > 0.0, e / exponential(word), -1.0)
                m = tz.max(score, axis=j)
                token = tz.where(m > best, tz.argmax(score, axis=j), token)
                best = tz.maximum(best, m)
        out[s] = token
