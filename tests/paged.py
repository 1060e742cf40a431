"""Launches on caches in pages, which lie in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
from davinci_launch import Launch, launch_of

import terrazzo.lang as tz
from terrazzo.ir.types import DTYPES
from terrazzo.kernels import attention
from terrazzo.targets.davinci.lowering.lower import Options

PAGE = 16
seqs, blocks, pages, lanes, d, ctx = tz.dims("seqs blocks pages lanes d ctx")


def table_of(lengths: list[int], rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Pages of each sequence, and how many there are; entries past a sequence's end are 0."""
    counts = [-(-n // PAGE) for n in lengths]
    order = rng.permutation(sum(counts)).astype(np.int32)
    table = np.zeros((len(lengths), max(counts)), np.int32)
    for i, count in enumerate(counts):
        table[i, :count], order = order[:count], order[count:]
    return table, sum(counts)


def attention_launch(
    lengths: list[tuple[int, int]], kvheads: int, group: int, width: int, cache: str, bq: int,
    ahead: int = 2,
) -> Launch:  # fmt: skip
    """The library's paged attention. lengths: of each sequence, context before and new queries."""
    rng = np.random.default_rng([len(lengths), width])
    kind = DTYPES[cache].numpy
    table, count = table_of([before + new for before, new in lengths], rng)
    new = np.array([n for _, n in lengths], np.int32)
    q = rng.standard_normal((new.sum(), kvheads, group, width)).astype(np.float32)
    args: dict[str, Any] = {
        "q": q, "out": np.zeros(q.shape, np.float16), "table": table, "scale": width**-0.5,
        "kcache": rng.standard_normal((count, kvheads, width, PAGE)).astype(kind),
        "vcache": rng.standard_normal((count, kvheads, PAGE, width)).astype(kind),
        "seq": np.arange(len(lengths), dtype=np.int32), "count": new,
        "first": (np.cumsum(new) - new).astype(np.int32),
        "position": np.array([before for before, _ in lengths], np.int32), "BQ": bq,
        "NARROW": 1,
    }  # fmt: skip
    return launch_of(attention.attention, args, Options(cores=2, ahead=ahead))


@tz.kernel
def page_sums(
    cache: tz.gm[tz.f32, pages, lanes, d],
    table: tz.gm[tz.i32, seqs, blocks],
    length: tz.gm[tz.i32, seqs],
    out: tz.gm[tz.f32, seqs, d],
    BEGIN: tz.const = 0,
):  # type: ignore[no-untyped-def]
    """out[s] = the sum of sequence s's rows from BEGIN on."""
    for s in tz.grid(seqs):
        total = tz.zeros(d)
        for j in tz.loop(BEGIN, length[s], of=ctx, step=48):
            page, lane = table[s, j // PAGE], j % PAGE
            total = total + tz.sum(tz.load(cache[page, lane], space=tz.UB), axis=j)
        out[s] = total


def sums_launch(lengths: list[int], width: int, begin: int = 0) -> Launch:
    rng = np.random.default_rng(width)
    table, count = table_of(lengths, rng)
    args: dict[str, Any] = {
        "cache": rng.standard_normal((count, PAGE, width)).astype(np.float32), "table": table,
        "length": np.array(lengths, np.int32), "BEGIN": begin,
        "out": np.zeros((len(lengths), width), np.float32),
    }  # fmt: skip
    return launch_of(page_sums, args, Options(vector_cores=2))
