"""Attention in parts: against the oracle of the whole, and the same bits whoever takes a part."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_launch import Target, empty, on_cpu
from test_attention import Batch, check, make

from terrazzo.kernels.attention import attention
from terrazzo.kernels.attention_parts import attention_parts, join_parts


def run(target: Target, b: Batch, apart: set[int], scale: float, long: int, **consts: int) -> None:
    """b.args["out"]; sequences in `apart` have a span for each part of their context."""
    a = b.args
    tokens = len(a["q"])
    spans: list[tuple[int, ...]] = []
    joined = np.stack([np.arange(tokens), np.ones(tokens), np.ones(tokens)]).astype(np.int32)
    rows = tokens
    for s, (at, count, position) in enumerate(
        zip(a["first"].tolist(), a["count"].tolist(), a["position"].tolist(), strict=True)
    ):
        parts = -(-(position + count) // long)
        if s in apart:
            joined[0, at : at + count] = np.arange(rows, rows + count)
            joined[1:, at : at + count] = [[parts], [count]]
            for i in range(parts):
                spans.append((s, at, count, position, i, i + 1, rows))
                rows += count
        else:
            spans.append((s, at, count, position, 0, parts, at))
    names = ("seq", "first", "count", "position", "part", "end", "to")
    given = dict(zip(names, np.array(spans, np.int32).T.copy(), strict=True))
    *one, d = rows, *a["q"].shape[1:]
    held = {"tops": empty(tuple(one)), "totals": empty(tuple(one)), "values": empty((*one, d))}
    cache = {n: a[n] for n in ("q", "kcache", "vcache", "table")}
    target(attention_parts, **cache, **given, **held, scale=scale, LONG=long, **consts)
    flat = {n: x.reshape(rows, -1) for n, x in held.items()}
    out = empty((tokens, flat["values"].shape[1]))
    target(join_parts, **flat, first=joined[0], count=joined[1], apart=joined[2], out=out, D=d)
    a["out"] = out.reshape(a["q"].shape)


@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=4),
    kvheads=st.integers(1, 2), group=st.integers(1, 3), bq=st.sampled_from([7, 32]),
    d=st.sampled_from([16, 64, 80]),
    long=st.sampled_from([32, 64, 256]), apart=st.sets(st.integers(0, 3)),
)  # fmt: skip
def test_ragged_batches(
    target: Target, lengths: list[tuple[int, int]], kvheads: int, group: int, bq: int, d: int,
    long: int, apart: set[int],
) -> None:  # fmt: skip
    b = make(1, lengths, kvheads, group, d, "f16")
    run(target, b, apart, d**-0.5, long, BQ=bq, STEP=32)
    check(b, d**-0.5)


def test_the_same_bits_whole_or_apart() -> None:
    lengths = [(600, 3), (0, 70), (511, 1), (512, 1), (10, 5)]
    for cache in ("f16", "f32"):
        whole, apart = (make(2, lengths, 2, 3, 64, cache) for _ in range(2))
        run(on_cpu, whole, set(), 0.125, 128)
        run(on_cpu, apart, {0, 1, 2, 3, 4}, 0.125, 128)
        np.testing.assert_array_equal(whole.args["out"], apart.args["out"])


def test_one_part_is_attention_itself() -> None:
    a, b = (make(3, [(300, 20), (77, 1)], 1, 3, 64, "f16") for _ in range(2))
    run(on_cpu, a, set(), 0.125, 2048)
    cpu: Target = on_cpu
    cpu(attention, **b.args, scale=0.125)
    np.testing.assert_array_equal(a.args["out"], b.args["out"])
