"""Integer dots of 64-bit ARM: `sdot` (dot product extension) and `smmla` (i8mm extension).

Both sum products of signed bytes exactly in 32 bits, so no code needs a bias and nothing saturates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from terrazzo.targets.cpu.builder import Function
from terrazzo.targets.cpu.micro_base import splat

VI, VB = "<4 x i32>", "<16 x i8>"
Pieces = Iterable[tuple[str, dict[tuple[int, int], str]]]


def signed(f: Function, name: str, words: str) -> str:
    """<16 x i8> of signed codes from <4 x i32> of the format's codes as they are stored."""
    codes = f.op(f"bitcast {VI} {words} to {VB}")
    return f.op(f"sub {VB} {codes}, splat (i8 32)") if name == "q6_k" else codes


class Sdot:
    """sdot: four sums of four products each (an `IntDot` of 4 lanes)."""

    def __init__(self, name: str) -> None:
        self.name, self.sum_type, self.bias = name, VI, 0

    def activation(self, f: Function, p: str) -> list[str]:
        word = splat(f, 4, "i32", f.load("i32", p, 1))
        return [f.op(f"bitcast {VI} {word} to {VB}")]

    def weight(self, f: Function, codes: str) -> list[str]:
        return [signed(f, self.name, codes)]

    def mac(self, f: Function, acc: str, w: list[str], a: list[str]) -> str:
        args = [(VI, acc), (VB, w[0]), (VB, a[0])]
        return f.call(VI, "llvm.aarch64.neon.sdot.v4i32.v16i8", args)

    def total(self, f: Function, acc: str, sub: str | None) -> str:
        return acc if sub is None else f.op(f"mul {VI} {acc}, {sub}")


def matrix_half(
    f: Function,
    name: str,
    q: Sequence[str],
    columns: Sequence[tuple[int, int]],
    factor: dict[tuple[int, int], str],
    pieces: Callable[[str], Pieces],
) -> dict[tuple[int, int, int], str]:
    """The integer sums of 16 k for an even number of tokens by `smmla`: 2 tokens x 2 weight rows x
    8 k an instruction.

    `q`: each token's bytes; `columns`: (panel, first lane) of four weight rows each, `factor` of
    them if the format has one; `pieces(step)`: the two pieces of 4 k of trip `step`, 0 or 1, as
    (offset of k, {column: <4 x i32> of 4 codes a row}). Returns <4 x i32> by (token, panel, first
    lane).
    """
    keys = [(t, *x, rows) for t in range(0, len(q), 2) for x in columns for rows in range(2)]

    def trip(step: str, carried: list[str]) -> list[str]:
        acc = dict(zip(keys, carried, strict=True))
        (k, low), (_, high) = pieces(step)
        weights: dict[tuple[int, int, int], str] = {}
        for x in columns:
            for rows, pick in enumerate(("0, i32 4, i32 1, i32 5", "2, i32 6, i32 3, i32 7")):
                both = f.op(f"shufflevector {VI} {low[x]}, {VI} {high[x]}, <4 x i32> <i32 {pick}>")
                weights[*x, rows] = signed(f, name, both)
        for t in range(0, len(q), 2):
            pair = "poison"
            for i in range(2):
                eight = f.load("i64", f.gep(q[t + i], k), 1)
                pair = f.op(f"insertelement <2 x i64> {pair}, i64 {eight}, i32 {i}")
            tokens = f.op(f"bitcast <2 x i64> {pair} to {VB}")
            for x in columns:
                for rows in range(2):
                    args = [(VI, acc[t, *x, rows]), (VB, tokens), (VB, weights[*x, rows])]
                    sums = f.call(VI, "llvm.aarch64.neon.smmla.v4i32.v16i8", args)
                    acc[t, *x, rows] = sums
        return list(acc.values())

    first = trip("0", ["zeroinitializer"] * len(keys))
    done = dict(zip(keys, f.loop("1", 2, 1, [(VI, x) for x in first], trip), strict=True))
    out: dict[tuple[int, int, int], str] = {}
    for t in range(len(q)):
        pick = "2, i32 3, i32 6, i32 7" if t % 2 else "0, i32 1, i32 4, i32 5"
        for x in columns:
            below, above = (done[t - t % 2, *x, rows] for rows in range(2))
            sums = f.op(f"shufflevector {VI} {below}, {VI} {above}, <4 x i32> <i32 {pick}>")
            out[t, *x] = f.op(f"mul {VI} {sums}, {factor[x]}") if factor else sums
    return out
