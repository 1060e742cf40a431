"""Linking one object for an address in this process: its place in memory, and its relocations.

Small and quick (0.2 ms an object). The image is three spans of whole pages: code and stubs;
constants and the global offset table; data. The C library may be further away than a call reaches:
such calls go to a stub, which jumps to where a slot of the table points.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import NamedTuple

from terrazzo.targets.cpu import relocate
from terrazzo.targets.cpu.elf import (
    ABSOLUTE,
    CANNOT,
    COMMON,
    EXECUTE,
    NOBITS,
    PROGBITS,
    UNDEFINED,
    WEAK,
    WRITE,
    Object,
    Section,
    check,
)  # fmt: skip
from terrazzo.targets.cpu.relocate import STUB

LARGEST = 1 << 30  # bytes of an image: code must reach its constants by an offset of 32 bits
_CODE = mmap.PROT_READ | mmap.PROT_EXEC
_CONSTANTS = mmap.PROT_READ
_DATA = mmap.PROT_READ | mmap.PROT_WRITE


class Span(NamedTuple):
    """Whole pages of an image: offset, bytes, and what they allow once linked (mmap.PROT_*)."""

    offset: int
    size: int
    protection: int


class Image:
    """An object laid out. `size`: bytes of memory it needs, whole pages; `spans` of it. `exports`:
    offset in it of each symbol that others may ask for. Raises RuntimeError if it cannot be laid
    out."""

    def __init__(self, of: Object) -> None:
        self._object = of
        self._placed: dict[int, int] = {}  # section -> its offset in the image
        self._commons: dict[int, int] = {}  # symbol -> its offset; so are these:
        self._stubs: dict[int, int] = {}
        self._slots: dict[int, int] = {}
        self._filled = 0  # bytes of the image that are not all zeros
        self.spans: list[Span] = []
        self.size = self._lay_out()
        self.exports = {
            s.name: offset
            for n, s in enumerate(of.symbols)
            if s.binding and (offset := self._offset(n)) is not None
        }

    def link(self, base: int, resolve: Callable[[str], int | None]) -> bytearray:
        """The image for address `base`, which is a multiple of the page size; zeros at its end are
        left out. `resolve` gives the address of a symbol that the object lacks, None if unknown.
        """
        image = bytearray(self._filled)
        for n, offset in self._placed.items():
            section = self._object.sections[n]
            if section.type == PROGBITS:
                image[offset : offset + section.size] = self._object.content(section)
        used = {use.symbol for use in self._object.uses}
        known = {n: self._address(n, base, resolve) for n in used}
        for n, slot in self._slots.items():
            image[slot : slot + 8] = known[n].to_bytes(8, "little")
        for n, stub in self._stubs.items():
            relocate.stub(self._object.machine, image, stub, base + stub, base + self._slots[n])
        for use in self._object.uses:
            meant = known[use.symbol]
            if use.how.target == "got":
                meant = base + self._slots[use.symbol]
            elif use.how.target == "call" and use.symbol in self._stubs:
                meant = base + self._stubs[use.symbol]
            at = self._placed[use.section] + use.at
            relocate.apply(use.how, image, at, base + at, meant + use.addend)
        return image

    def _offset(self, n: int) -> int | None:
        """Place of symbol number `n` in the image, if it is there."""
        symbol = self._object.symbols[n]
        if symbol.section in self._placed:
            return self._placed[symbol.section] + symbol.value
        return self._commons.get(n)

    def _address(self, n: int, base: int, resolve: Callable[[str], int | None]) -> int:
        symbol, offset = self._object.symbols[n], self._offset(n)
        if offset is not None:
            return base + offset
        if symbol.section == ABSOLUTE or n == 0:
            return symbol.value
        check(symbol.section == UNDEFINED, "a symbol is in a section that is not loaded")
        found = resolve(symbol.name)
        if found is None and symbol.binding != WEAK:
            raise RuntimeError(f"{CANNOT}: symbol `{symbol.name}` is not in this process")
        return found or 0

    def _lay_out(self) -> int:
        """Gives each section, stub and slot its place; returns the size of it all."""
        sections, symbols = self._object.sections, self._object.symbols
        for use in self._object.uses:
            far = use.how.target == "call" and symbols[use.symbol].section == UNDEFINED
            if far:
                self._stubs[use.symbol] = 0
            if far or use.how.target == "got":
                self._slots[use.symbol] = 0
        end = 0
        for protection in (_CODE, _CONSTANTS, _DATA):
            start = end
            mine = [(n, s) for n, s in sections.items() if _protection(s) == protection]
            for n, section in sorted(mine, key=lambda entry: entry[1].type == NOBITS):
                self._placed[n], end = _take(end, section.size, section.align)
                self._filled = self._filled if section.type == NOBITS else end
            if protection == _CODE:
                for n in self._stubs:
                    self._stubs[n], end = _take(end, STUB[self._object.machine], 16)
            elif protection == _CONSTANTS:
                for n in self._slots:
                    self._slots[n], end = _take(end, 8, 8)
            else:
                for n, s in enumerate(symbols):
                    if s.section == COMMON:
                        self._commons[n], end = _take(end, s.size, s.value)
            if protection != _DATA:  # whose end is left to be zeros
                self._filled = end
            end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
            if end > start:
                self.spans.append(Span(start, end - start, protection))
        return end


def _protection(section: Section) -> int:
    if section.flags & EXECUTE:
        return _CODE
    return _DATA if section.flags & WRITE else _CONSTANTS


def _take(end: int, size: int, align: int) -> tuple[int, int]:
    """The next multiple of `align` from `end`, and the end of `size` bytes there."""
    align = max(align, 1)
    check(mmap.PAGESIZE % align == 0, f"an alignment of {align} is not supported")
    start = -(-end // align) * align
    check(start + size <= LARGEST, "it is too large")
    return start, start + size
