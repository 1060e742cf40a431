"""Packing of a right operand for matrix tiles: planes of bf16, k-rows in pairs (planes.py)."""

from __future__ import annotations

from terrazzo.ir.types import bf16
from terrazzo.targets.cpu.builder import VB, VF, VI, Function, W
from terrazzo.targets.cpu.dots import DotEmitter
from terrazzo.targets.cpu.evaluate import Evaluator
from terrazzo.targets.cpu.frame import Frame
from terrazzo.targets.cpu.nest import Buf, Root
from terrazzo.targets.cpu.planes import pair_of, row_of, split, widen


class PairPacker:
    """Writes the pairs of a root's value; values past the end of k are zeros."""

    def __init__(self, frame: Frame, ev: Evaluator, dots: DotEmitter) -> None:
        self.fr, self.f, self.ev, self.dots = frame, frame.f, ev, dots

    def along(self, r: Root, buf: Buf) -> None:
        """An operand that is evaluated along n: two k-rows at a time are interleaved."""
        f, (k, n) = self.f, buf.axes
        ext_k, ext_n = self.fr.extent(k), self.fr.extent(n)
        full = f.op(f"and i64 {ext_n}, {-W}")

        def rows(at: str, both: bool) -> None:
            def chunk(c: str, mask: tuple[str, str] | None) -> None:
                low = self.row(r, buf, n, {k: at}, c, mask)
                high = ["zeroinitializer"] * buf.planes
                if both:
                    high = self.row(r, buf, n, {k: f.add(at, 1)}, c, mask)
                for plane, pair in enumerate(zip(low, high, strict=True)):
                    self.dots.put_pairs(buf, c, at, plane, pair_of(f, *pair), VI)

            f.loop(0, full, W, [], lambda c, _: chunk(c, None))
            f.loop(full, ext_n, W, [], lambda c, _: chunk(c, self.ev.lanes(f.sub(ext_n, c))))

        even = f.op(f"and i64 {ext_k}, -2")
        f.loop(0, even, 2, [], lambda at, _: self.fr.scoped(lambda: rows(at, True)))
        f.loop(even, ext_k, 2, [], lambda at, _: self.fr.scoped(lambda: rows(at, False)))
        self.dots.end_pairs(buf, ext_n, ext_k)

    def across(self, r: Root, buf: Buf) -> None:
        """An operand that is contiguous along k: 16 rows of 16 pairs are transposed. Rows past the
        end repeat the last one; their columns are never stored."""
        f, (k, n) = self.f, buf.axes
        ext_k, ext_n = self.fr.extent(k), self.fr.extent(n)
        last, full = f.sub(ext_n, 1), f.op(f"and i64 {ext_k}, {-2 * W}")

        def square(j: str, c: str, tail: bool) -> None:
            tiles: list[list[str]] = [[] for _ in range(buf.planes)]
            for i in range(W):
                at = {n: f.min(f.add(j, i), last)}
                halves: list[list[str]] = []
                for half in (0, W):
                    left = f.sub(f.sub(ext_k, c), half)
                    mask = self.ev.lanes(left) if tail else None
                    halves.append(self.row(r, buf, k, at, f.add(c, half), mask))
                for tile, both in zip(tiles, zip(*halves, strict=True), strict=True):
                    tile.append(f.op(f"bitcast <{2 * W} x i16> {row_of(f, *both)} to {VF}"))
            for plane, tile in enumerate(tiles):
                for i, words in enumerate(transposed(f, tile)):
                    self.dots.put_pairs(buf, j, f.add(c, 2 * i), plane, words, VF)

        def block(j: str, _: list[str]) -> None:
            f.loop(0, full, 2 * W, [], lambda c, _: self.fr.scoped(lambda: square(j, c, False)))
            f.loop(full, ext_k, 2 * W, [], lambda c, _: self.fr.scoped(lambda: square(j, c, True)))

        f.loop(0, ext_n, W, [], lambda j, a: self.fr.scoped(lambda: block(j, a)))

    def row(
        self, r: Root, buf: Buf, col: str, at: dict[str, str], chunk: str,
        mask: tuple[str, str] | None,
    ) -> list[str]:  # fmt: skip
        """Planes (as `split` gives them) of 16 elements of the value along `col`, the other axis at
        its place; masked lanes are zeros."""
        ev = self.ev
        ev.col, ev.chunk, ev.mask = col, chunk, mask
        self.fr.position.update(at)
        self.fr.scopes.append({})
        x = ev.vector(r.value)
        self.fr.scopes.pop()
        for axis in at:
            del self.fr.position[axis]
        ev.col, ev.chunk, ev.mask = None, None, None
        if r.value.dtype == bf16:
            x = widen(self.f, x)
        else:
            x = self.f.op(f"bitcast {VF} {self.dots.as_f32(r.value, x)} to {VI}")
        if mask is not None:
            x = self.f.op(f"select {VB} {mask[0]}, {VI} {x}, {VI} zeroinitializer")
        return split(self.f, self.f.op(f"bitcast {VI} {x} to {VF}"), buf.planes)[0]


def transposed(f: Function, rows: list[str]) -> list[str]:
    """A 16 x 16 tile by four rounds of interleaving row i with row i + 8."""
    for _ in range(4):
        out: list[str] = []
        for i in range(W // 2):
            for half in (0, W // 2):
                pick = ", ".join(f"i32 {half + x}, i32 {W + half + x}" for x in range(W // 2))
                out.append(
                    f.op(f"shufflevector {VF} {rows[i]}, {VF} {rows[i + W // 2]}, {VI} <{pick}>")
                )
        rows = out
    return rows
