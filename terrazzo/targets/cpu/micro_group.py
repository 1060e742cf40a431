"""The inner loop of low-bit dots: one group of 32 k, by the contract of `micro_q.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from terrazzo.targets.cpu.builder import Function
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.layouts import P16, P16S
from terrazzo.targets.cpu.micro_base import fma, half_to_float, prefetch, splat
from terrazzo.targets.cpu.micro_int import IntDot, int_dot
from terrazzo.targets.cpu.micro_neon import matrix_half


def group_of(f: Function, isa: Isa, name: str, a: list[str], off: list[str], w: list[str],
             columns: list[tuple[int, int]]) -> Callable[[str, list[str]], list[str]]:  # fmt: skip
    """The loop body for one group: its number and the carried accumulators in, the next ones out.
    `a`: each token's bytes; `off`: where its integer sums start, if not at 0; `w`: panels;
    `columns`: (panel, first lane) of each accumulator."""
    lay, lanes, dot = P16S[name], isa.int_lanes, int_dot(isa, name)
    vi, v = f"<{lanes} x i32>", f"<{lanes} x float>"
    pairs = isa.int_dot == "smmla" and len(a) % 2 == 0

    def half(p: str) -> str:
        return half_to_float(f, isa.half, lanes, f.load(f"<{lanes} x i16>", p, min(2 * lanes, 32)))

    def run(g: str, carried: list[str]) -> list[str]:
        block = f.mul(g if lay.per == 1 else f.op(f"lshr i64 {g}, 3"), lay.block)
        inside = 0 if lay.per == 1 else f.mul(f.op(f"and i64 {g}, 7"), lay.group)
        blocks = [f.gep(p, block) for p in w]
        groups = [f.gep(p, inside) for p in blocks]
        if isa.prefetch:
            one = isa.ahead > 0 and len(w) == 1
            ahead = str(isa.ahead) if one else f.mul("%panel", len(w))
            for p in groups:
                for line in range(0, (lay.group + 63) // 64, 2 if one else 1):
                    prefetch(f, f.gep(p, f.add(ahead, 64 * line)))
        q = [f.gep(p, f.mul(g, 32)) for p in a]
        t: dict[tuple[int, int, int], str] = {}
        for h in range(2):
            starts = [f.load("i32", f.gep(f.gep(p, f.mul(g, 8)), 4 * h), 4) for p in off]
            starts = [splat(f, lanes, "i32", x) for x in starts]
            sums = _half(f, dot, lay, lanes, q, starts, groups, columns, h, name, pairs)
            for i, p in enumerate(a):
                d = f.load("float", f.gep(f.gep(p, f.mul(g, 8)), f.add("%scales", 4 * h)), 4)
                d = splat(f, lanes, "float", d)
                for x in columns:
                    value = f.op(f"sitofp {vi} {sums[i, *x]} to {v}")
                    if h:
                        t[i, *x] = fma(f, lanes, value, d, t[i, *x])
                    else:
                        t[i, *x] = f.op(f"fmul {v} {value}, {d}")
        scale = {(r, p): half(f.gep(blocks[r], lay.scale + 2 * p)) for r, p in columns}
        low: dict[tuple[int, int], str] = {}
        if lay.min is not None:
            low = {(r, p): half(f.gep(blocks[r], lay.min + 2 * p)) for r, p in columns}
        elif name == "q4_0":
            low = {x: f.op(f"fmul {v} {s}, splat (float -8.0)") for x, s in scale.items()}
        old = iter(carried)
        new = []
        for i, p in enumerate(a):
            row = f.gep(f.gep(p, f.mul(g, 4)), "%sums")
            total = splat(f, lanes, "float", f.load("float", row, 4)) if low else ""
            for x in columns:
                y = fma(f, lanes, t[i, *x], scale[x], next(old))
                new.append(fma(f, lanes, low[x], total, y) if low else y)
        return new

    return run


def _half(f: Function, dot: IntDot, lay: P16, lanes: int, q: list[str], starts: list[str],
          groups: list[str], columns: list[tuple[int, int]], half: int, name: str, pairs: bool
          ) -> dict[tuple[int, int, int], str]:  # fmt: skip
    """The integer sums of k 0..15 (half 0) or 16..31 of a group, by (token, panel, first lane).
    `pairs`: by the instruction for two tokens at once.

    One half after the other, the second 8 k of each in a loop of one trip, on purpose: unrolled or
    with both halves' sums alive, the code generator moves everything across everything and the sums
    live on the stack (measured: up to 2 times slower on AVX2).
    """
    vi = f"<{lanes} x i32>"
    factor: dict[tuple[int, int], str] = {}
    if lay.sub is not None:
        for r, p in columns:
            raw = f.load(f"<{lanes} x i8>", f.gep(groups[r], lay.sub + 16 * half + p), lanes)
            factor[r, p] = f.op(f"sext <{lanes} x i8> {raw} to {vi}")
    if pairs:
        return matrix_half(
            f, name, q, columns, factor,
            lambda step: _chunks(f, lay, lanes, groups, columns, step, half),
        )  # fmt: skip
    tokens = range(len(q))
    keys = [(t, *x) for t in tokens for x in columns]

    def trip(step: str, carried: list[str]) -> list[str]:
        acc = dict(zip(keys, carried, strict=True))
        for k, codes in _chunks(f, lay, lanes, groups, columns, step, half):
            weights = {x: dot.weight(f, c) for x, c in codes.items()}
            for t in tokens:
                av = dot.activation(f, f.gep(q[t], k))
                for x in columns:
                    acc[t, *x] = dot.mac(f, acc[t, *x], weights[x], av)
        return list(acc.values())

    first = trip("0", [starts[t] if starts else "zeroinitializer" for t, _, _ in keys])
    done = f.loop("1", 2, 1, [(dot.sum_type, x) for x in first], trip)
    return {
        (t, r, p): dot.total(f, acc, factor.get((r, p)))
        for (t, r, p), acc in zip(keys, done, strict=True)
    }


def _chunks(f: Function, lay: P16, lanes: int, groups: list[str], columns: list[tuple[int, int]],
            step: str, half: int) -> Iterator[tuple[str, dict[tuple[int, int], str]]]:  # fmt: skip
    """The two 4-k pieces of a trip: (offset of k in the group, {column: <lanes x i32> of 4 codes}).
    Codes are unsigned, q8_0's as they are."""
    vi = f"<{lanes} x i32>"

    def load(offset: str) -> dict[tuple[int, int], str]:
        return {(r, p): f.load(vi, f.gep(f.gep(groups[r], offset), 4 * p), 32) for r, p in columns}

    def masked(x: str, shift: int, mask: int) -> str:
        if shift:
            x = f.op(f"{'lshr' if shift > 0 else 'shl'} {vi} {x}, splat (i32 {abs(shift)})")
        return f.op(f"and {vi} {x}, splat (i32 {mask * 0x01010101})")

    top = load(f.add(f.mul(step, 64), 256)) if lay.sub is not None else {}
    for j in range(2):
        chunk = f.add(f.mul(step, 2), j)
        codes = load(f.add(f.mul(chunk, 64), 256 * half if lay.chunks == 8 else 0))
        if lay.chunks != 8:
            codes = {x: masked(w, 4 * half, 15) for x, w in codes.items()}
        for x, w in top.items():
            high = masked(w, 4 * j + 2 * half - 4, 48)
            codes[x] = f.op(f"or {vi} {codes[x]}, {high}")
        yield f.add(f.mul(chunk, 4), 16 * half), codes
