"""What the micro-kernel generators share: their result, vectors of any width, and the loop over
tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from terrazzo.targets.cpu.builder import Function

Call = Callable[[Function, int, int, str, str], None]
Fetch = Callable[[Function, str, str], None]
TOGETHER = 8  # tiles whose rows are fetched together


@dataclass(frozen=True)
class Micro:
    """A micro-kernel as LLVM text: `text` defines the internal function `name` (and its tiles),
    `decls` are the intrinsics it declares. Equal arguments give equal text."""

    name: str
    text: str
    decls: frozenset[str]


def module_text(parts: Iterable[Micro]) -> str:
    """The definitions of several micro-kernels, each once, after their declarations."""
    unique = {m.name: m for m in parts}
    decls = sorted(set().union(*(m.decls for m in unique.values())))
    return "\n".join([*decls, *(m.text for m in unique.values())])


def finish(functions: Sequence[Function]) -> Micro:
    """The last function is the one to call, the others are what it calls."""
    decls: set[str] = set().union(*(f.decls for f in functions))
    return Micro(functions[-1].name, "\n".join(f.text() for f in functions), frozenset(decls))


def splat(f: Function, lanes: int, ty: str, v: str) -> str:
    one = f.op(f"insertelement <{lanes} x {ty}> poison, {ty} {v}, i32 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return f.op(f"shufflevector <{lanes} x {ty}> {one}, <{lanes} x {ty}> poison, {zeros}")


def fma(f: Function, lanes: int, a: str, b: str, c: str) -> str:
    v = f"<{lanes} x float>"
    return f.call(v, f"llvm.fma.v{lanes}f32", [(v, a), (v, b), (v, c)])


def prefetch(f: Function, p: str, level: int = 2) -> None:
    """Read ahead into L2, or L1 of what L2 has (L1 has too few outstanding misses to reach
    memory's bandwidth); never faults, so `p` may lie past the data."""
    near = str(4 - level)  # LLVM's locality: 3 is L1
    f.call("void", "llvm.prefetch.p0", [("ptr", p), ("i32", "0"), ("i32", near), ("i32", "1")])


def half_to_float(f: Function, native: bool, lanes: int, bits: str) -> str:
    """<lanes x i16> f16 patterns -> f32, exact. Without an instruction for it, by integer steps:
    shift exponent and mantissa into place and rescale (2^112 mends the exponent bias, subnormals
    included)."""
    vi, vf = f"<{lanes} x i32>", f"<{lanes} x float>"
    if native:
        half = f.op(f"bitcast <{lanes} x i16> {bits} to <{lanes} x half>")
        return f.op(f"fpext <{lanes} x half> {half} to {vf}")
    wide = f.op(f"zext <{lanes} x i16> {bits} to {vi}")
    magnitude = f.op(f"shl {vi} {f.op(f'and {vi} {wide}, splat (i32 32767)')}, splat (i32 13)")
    scaled = f.op(
        f"fmul {vf} {f.op(f'bitcast {vi} {magnitude} to {vf}')}, splat (float 0x46F0000000000000)"
    )
    special = f.op(f"icmp uge {vi} {magnitude}, splat (i32 {0x7C00 << 13})")
    infinite = f.op(f"or {vi} {magnitude}, splat (i32 {0x7F800000})")
    number = f.op(f"bitcast {vf} {scaled} to {vi}")
    number = f.op(f"select <{lanes} x i1> {special}, {vi} {infinite}, {vi} {number}")
    sign = f.op(f"shl {vi} {f.op(f'and {vi} {wide}, splat (i32 32768)')}, splat (i32 16)")
    return f.op(f"bitcast {vi} {f.op(f'or {vi} {number}, {sign}')} to {vf}")


def cover(
    f: Function, tiles: Sequence[tuple[int, int]], call: Call, fetch: Fetch | None = None
) -> None:
    """Covers M rows x N columns (arguments %M, %N of f) with register tiles, most rows first.

    `call(f, rows, panels, i, p)` handles rows i.. and panels p.. of a (rows, panels) tile;
    left-over panels take one-panel tiles. Panels run outside, so that a panel stays in L1 while the
    rows go by. With `fetch(f, i, count)`, which brings rows i.. into L2, this is done for TOGETHER
    tiles' rows at a time.
    """
    count = f.cdiv("%N", 16)
    i = "0"
    for rows, wide in tiles:
        left = f.op(f"sdiv i64 {f.sub('%M', i)}, {rows}")
        end = f.add(i, f.mul(left, rows))
        whole = count if wide == 1 else f.op(f"and i64 {count}, {-wide}")

        def block(first: str, last: str, rows: int = rows, wide: int = wide, whole: str = whole):
            def column(p: str, w: int) -> None:
                f.loop(first, last, rows, [], lambda r, _: call(f, rows, w, r, p))

            f.loop("0", whole, wide, [], lambda p, _: column(p, wide))
            if wide > 1:
                f.loop(whole, count, 1, [], lambda p, _: column(p, 1))

        if fetch is None:
            block(i, end)
        else:

            def some(r: str, _: list[str], end: str = end, step: int = rows * TOGETHER, go=block):
                last = f.min(f.add(r, step), end)
                fetch(f, r, f.sub(last, r))
                go(r, last)

            f.loop(i, end, rows * TOGETHER, [], some)
        i = end


def widths(tiles: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """All (rows, panels) that `cover` may ask for."""
    return sorted({(rows, w) for rows, wide in tiles for w in (wide, 1)})


def start_value(f: Function, lanes: int, p: str) -> str:
    """What a chain starts from: 0 if %first, else what is at p (which is writable, hence
    readable)."""
    v = f"<{lanes} x float>"
    return f.op(f"select i1 %first, {v} zeroinitializer, {v} {f.load(v, p, 4)}")
