"""How large the buffers of a thread's scratch are, and how far apart their rows lie.

The same rules give code (`Frame`: extents are read at run time) and numbers (`Numbers`: for the
report of a kernel that does not fit).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from terrazzo.ir.ops import Kernel
from terrazzo.targets.cpu.builder import W

if TYPE_CHECKING:  # a start from cached code needs this file, and not the nest IR
    from terrazzo.targets.cpu.nest import Buf

STEPS = 32  # of bf16 along k in one instruction on matrix tiles
FIXED = 4096  # rows of blocks up to this wide have a pitch that the code knows


class Arithmetic(Protocol):
    """What sizes are computed with: `Function` emits it, `Plain` does it. i64 as text."""

    def add(self, a: str | int, b: str | int) -> str: ...
    def mul(self, a: str | int, b: str | int) -> str: ...
    def min(self, a: str, b: str | int) -> str: ...
    def roundup(self, a: str | int, m: int) -> str: ...
    def eighth(self, a: str) -> str: ...


class Plain:
    """Arithmetic on numbers."""

    def add(self, a: str | int, b: str | int) -> str:
        return str(int(a) + int(b))

    def mul(self, a: str | int, b: str | int) -> str:
        return str(int(a) * int(b))

    def min(self, a: str, b: str | int) -> str:
        return str(min(int(a), int(b)))

    def roundup(self, a: str | int, m: int) -> str:
        return str(-(-int(a) // m) * m)

    def eighth(self, a: str) -> str:
        return str(int(a) // 8)


class Layout:
    """Sizes of a kernel's buffers. `dim` says what the extents are."""

    def __init__(self, kernel: Kernel, arithmetic: Arithmetic) -> None:
        self.kernel, self.to = kernel, arithmetic
        self.static = dict(kernel.statics)
        self.known = {d for p in kernel.params for d in p.dims} | self.static.keys()

    def dim(self, name: str) -> str:
        """The extent of a dim."""
        raise NotImplementedError

    def room(self, axis: str) -> str:
        """The most indices that a block of the axis covers: its cap, or the dim's extent if that is
        less; of a whole axis, the dim's extent."""
        a = self.kernel.axis(axis)
        if not a.block or a.cap is None:
            return self.dim(a.dim)
        if a.dim not in self.known:  # no tensor has this dim
            return str(a.cap)
        extent = self.dim(a.dim)
        return str(min(int(extent), a.cap)) if extent.isdigit() else self.to.min(extent, a.cap)

    def size(self, axis: str) -> str:
        """What rows along the axis are laid out for: at least its room, and known beforehand unless
        the cap is large."""
        a = self.kernel.axis(axis)
        return str(a.cap) if a.block and a.cap and a.cap <= FIXED else self.room(axis)

    def pitch(self, b: Buf) -> str:
        """Elements (of a8, bytes) between rows of a tile buffer: the last axis rounded up to lanes,
        odd multiples of a cache line for wide rows (rows 4 KiB apart would share cache sets)."""
        size = self.size(b.axes[-1])
        if b.kind == "a8":
            return self.a8_bytes(size)
        if size.isdigit():
            n = (int(size) + W - 1) // W * W
            return str(n + W if n >= 64 else n)
        return self.to.add(self.to.roundup(size, W), W)

    def depth(self, b: Buf) -> str:
        """K-rows of a buffer of pairs: whole steps of the instruction."""
        return self.to.roundup(self.size(b.axes[0]), STEPS)

    def a8_bytes(self, n: str) -> str:
        """Bytes of a row of n values in a8, in whole cache lines."""
        eighth = str(int(n) // 8) if n.isdigit() else self.to.eighth(n)
        return self.to.roundup(self.to.add(n, self.to.mul(eighth, 3)), 64)

    def bytes(self, b: Buf) -> str:
        """Bytes of a buffer, in whole cache lines."""
        to = self.to
        if not b.axes:
            return "64"
        if b.kind == "panels":
            n = to.mul(to.mul(to.roundup(self.room(b.axes[1]), W), self.size(b.axes[0])), 4)
        elif b.kind == "pairs":
            n = to.mul(to.roundup(self.room(b.axes[1]), W), to.mul(self.depth(b), 2 * b.planes))
        else:
            rows = "1"
            for a in b.axes[:-1] if b.kind in ("tile", "a8") else ():
                rows = to.mul(rows, self.room(a))
            n = to.mul(to.mul(rows, self.pitch(b)), 1 if b.kind == "a8" else 4)
        return to.roundup(n, 64)


class Numbers(Layout):
    """Sizes for these extents, as decimal text."""

    def __init__(self, kernel: Kernel, dims: Mapping[str, int]) -> None:
        super().__init__(kernel, Plain())
        self.dims = dims

    def dim(self, name: str) -> str:
        return str(self.dims[name])
