"""Stores around the caches: when a column loop's results are worth no place in them.

A plain store reads the line first, and a large output pushes out what the caches hold before anyone
reads it. So where a tensor of LARGE bytes or more is written, whole lines of it go to memory
directly: chosen at run time by its size, in a second copy of the loop. Short columns (rope's halves
of a head) keep plain stores: pieces of lines in several places were slower around the caches.
"""

from __future__ import annotations

from terrazzo.ir.ops import Store
from terrazzo.ir.types import DType
from terrazzo.targets.cpu.evaluate import Evaluator
from terrazzo.targets.cpu.frame import Frame
from terrazzo.targets.cpu.memory import PIECE
from terrazzo.targets.cpu.nest import Nest, Root

LARGE = 16 << 20  # several times what a core's second-level cache holds


class Around:
    """Conditions, as i1, for the function of `frame`."""

    def __init__(self, frame: Frame, ev: Evaluator) -> None:
        self.fr, self.f, self.ev = frame, frame.f, ev

    def prepare(self, nest: Nest) -> str | None:
        """Ahead of the row loops: whether anything that the nest stores is large, None if that is
        known not to be."""
        stores = [r.store for level in nest.levels for r in level.roots if r.store is not None]
        found = [x for x in map(self.large, stores) if x is not None]
        return self.any(found)

    def any(self, conditions: list[str]) -> str | None:
        out = conditions[0] if conditions else None
        for x in conditions[1:]:
            out = x if x == out else self.f.op(f"or i1 {out}, {x}")
        return out

    def large(self, s: Store) -> str | None:
        """Whether the tensor is large and is not one that the kernel reads in place."""
        f, p = self.f, self.fr.kernel.param(s.param)
        if not isinstance(p.dtype, DType) or p.dtype.bytes < 2:
            return None
        key = ("large", s.param)
        known = self.fr.get(key)
        if known is not None:
            return known
        size = str(p.dtype.bytes)
        static = [int(d) for d in map(self.fr.dim, p.dims) if d.isdigit()]
        if len(static) == len(p.dims):
            return None  # a size known beforehand: small tables and the like
        for d in p.dims:
            size = f.mul(size, self.fr.dim(d))
        out = f.op(f"icmp uge i64 {size}, {LARGE}")
        for pair in self.fr.kernel.aliases:
            if s.param in pair:
                a, b = (self.fr.pointer(x) for x in pair)
                out = f.op(f"and i1 {out}, {f.op(f'icmp ne ptr {a}, {b}')}")
        return self.fr.keep(key, out)

    def condition(self, roots: list[Root]) -> tuple[str, frozenset[str]] | None:
        """For a column loop over the current row: whether its contiguous stores to large tensors
        are aligned, and these tensors' names. None if it has no such store."""
        f, out, names = self.f, None, set[str]()
        for r in roots:
            s = r.store
            if s is None or r.kind != "store":
                continue
            pointer, stride = self.ev.memory.place_of(s)
            large = self.large(s) if str(stride) == "1" else None
            if large is None:
                continue
            low = f.op(f"and i64 {f.op(f'ptrtoint ptr {pointer} to i64')}, {PIECE - 1}")
            here = f.op(f"and i1 {large}, {f.op(f'icmp eq i64 {low}, 0')}")
            out = here if out is None else f.op(f"and i1 {out}, {here}")
            names.add(s.param)
        return None if out is None else (out, frozenset(names))
