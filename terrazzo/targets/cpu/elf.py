"""Linking one relocatable object (ELF64, as LLVM emits it for us) for an address in this process.

Goals: small, quick (some 0.1 ms an object), and an error, never a crash, for bytes that are no
object. Non-goals: archives, several objects at once, thread-local data, constructors, unwinding
(our functions do not unwind, so .eh_frame is left out, as is whatever takes no memory).

The image is three spans of whole pages: code and stubs; constants and the global offset table;
data. The machine's C library may be further away than a call reaches: such calls go to a stub,
which jumps to where a slot of the table points. Format: "System V ABI", chapters 4 and 5.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from terrazzo.targets.cpu import relocate
from terrazzo.targets.cpu.relocate import RELOCATIONS, STUB, Relocation

LARGEST = 1 << 30  # bytes of an image: code must reach its constants by an offset of 32 bits
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _RELA_TYPE, _NOTE, _NOBITS, _REL_TYPE = 1, 2, 4, 7, 8, 9
_WRITE, _ALLOC, _EXECUTE, _TLS = 1, 2, 4, 0x400
_UNDEFINED, _RESERVED, _ABSOLUTE, _COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2  # for section numbers
_WEAK, _THREAD_LOCAL, _INDIRECT = 2, 6, 10
_CODE = mmap.PROT_READ | mmap.PROT_EXEC
_CONSTANTS = mmap.PROT_READ
_DATA = mmap.PROT_READ | mmap.PROT_WRITE


class Section(NamedTuple):
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


class Symbol(NamedTuple):
    """`section`: index or one of the reserved numbers; `value`: offset in it (for _COMMON, the
    alignment)."""

    name: str
    type: int
    binding: int
    section: int
    value: int
    size: int


class Span(NamedTuple):
    """Whole pages of an image: offset, bytes, and what they allow once linked (mmap.PROT_*)."""

    offset: int
    size: int
    protection: int


class Use(NamedTuple):
    """A relocation: `at` bytes into section `section`, of symbol number `symbol`."""

    section: int
    at: int
    how: Relocation
    symbol: int
    addend: int


class Object:
    """An object, parsed and laid out. `size`: bytes of memory it needs, whole pages; `spans` of it.

    `exports`: offset in the image of each symbol that others may ask for. Raises RuntimeError when
    `data` is no object for `machine` (relocate.X86_64 or AARCH64), or of a kind we do not link.
    """

    def __init__(self, data: bytes, machine: int) -> None:
        self.machine = machine
        self._data = data
        self._sections = self._read_sections()
        self._placed: dict[int, int] = {}  # section -> its offset in the image
        self._commons: dict[int, int] = {}  # symbol -> its offset
        self._stubs: dict[int, int] = {}
        self._slots: dict[int, int] = {}
        kept = {
            n: self._protection(s)
            for n, s in enumerate(self._sections)
            if n and s.flags & _ALLOC and s.type != _NOTE and s.name != ".eh_frame"
        }
        self._symbols = self._read_symbols()
        self._uses = [use for n in kept for use in self._read_relocations(n)]
        self.spans: list[Span] = []
        self._filled = 0  # bytes of the image that are not all zeros
        self.size = self._lay_out(kept)
        self.exports = {
            s.name: offset
            for n, s in enumerate(self._symbols)
            if s.binding and (offset := self._offset(n)) is not None
        }

    def link(self, base: int, resolve: Callable[[str], int | None]) -> bytearray:
        """The image for address `base`, which is a multiple of the page size; zeros at its end are
        left out. `resolve` gives the address of a symbol that the object lacks, None if unknown.
        """
        image = bytearray(self._filled)
        for n, offset in self._placed.items():
            section = self._sections[n]
            if section.type == _PROGBITS:
                image[offset : offset + section.size] = self._bytes(section.offset, section.size)
        known = {n: self._address(n, base, resolve) for n in {use.symbol for use in self._uses}}
        for n, slot in self._slots.items():
            image[slot : slot + 8] = known[n].to_bytes(8, "little")
        for n, stub in self._stubs.items():
            relocate.stub(self.machine, image, stub, base + stub, base + self._slots[n])
        for use in self._uses:
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
        symbol = self._symbols[n]
        if symbol.section in self._placed:
            return self._placed[symbol.section] + symbol.value
        return self._commons.get(n)

    def _address(self, n: int, base: int, resolve: Callable[[str], int | None]) -> int:
        symbol, offset = self._symbols[n], self._offset(n)
        if offset is not None:
            return base + offset
        if symbol.section == _ABSOLUTE or n == 0:
            return symbol.value
        _check(symbol.section == _UNDEFINED, "a symbol is in a section that is not loaded")
        found = resolve(symbol.name)
        if found is None and symbol.binding != _WEAK:
            raise RuntimeError(f"symbol `{symbol.name}` is missing: it is not in this process")
        return found or 0

    def _lay_out(self, kept: dict[int, int]) -> int:
        """Gives each section, stub and slot its place; returns the size of it all."""
        for use in self._uses:
            far = self._symbols[use.symbol].section == _UNDEFINED and use.how.target == "call"
            if far:
                self._stubs[use.symbol] = 0
            if far or use.how.target == "got":
                self._slots[use.symbol] = 0
        end = 0
        for protection in (_CODE, _CONSTANTS, _DATA):
            start = end
            mine = [n for n in kept if kept[n] == protection]
            for n in sorted(mine, key=lambda n: self._sections[n].type == _NOBITS):
                section = self._sections[n]
                self._placed[n], end = _take(end, section.size, section.align)
                self._filled = self._filled if section.type == _NOBITS else end
            if protection == _CODE:
                for n in self._stubs:
                    self._stubs[n], end = _take(end, STUB[self.machine], 16)
            elif protection == _CONSTANTS:
                for n in self._slots:
                    self._slots[n], end = _take(end, 8, 8)
            else:
                for n, s in enumerate(self._symbols):
                    if s.section == _COMMON:
                        self._commons[n], end = _take(end, s.size, s.value)
            if protection != _DATA:  # whose end is left to be zeros
                self._filled = end
            end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
            if end > start:
                self.spans.append(Span(start, end - start, protection))
        return end

    def _protection(self, section: Section) -> int:
        kind = section.flags & (_WRITE | _EXECUTE)
        protection = {_EXECUTE: _CODE, 0: _CONSTANTS, _WRITE: _DATA}.get(kind)
        known = section.type in (_PROGBITS, _NOBITS) and not section.flags & _TLS
        if protection is None or not known:
            what = f"section {section.name} of type {section.type:#x}, flags {section.flags:#x}"
            raise RuntimeError(f"the object cannot be linked: {what} is not supported")
        return protection

    def _bytes(self, offset: int, size: int) -> bytes:
        _check(offset + size <= len(self._data), "it is cut off")
        return self._data[offset : offset + size]

    def _records(self, record: struct.Struct, offset: int, size: int) -> Iterator[tuple[Any, ...]]:
        _check(size % record.size == 0, "a table ends within an entry")
        return record.iter_unpack(self._bytes(offset, size))

    def _name(self, table: Section, at: int) -> str:
        start = table.offset + at
        end = self._data.find(b"\0", start, table.offset + table.size)
        _check(end >= 0, "a name has no end")
        return self._data[start:end].decode(errors="replace")

    def _read_sections(self) -> list[Section]:
        ident, kind, machine, _, _, _, start, _, _, _, _, entry, count, names = _HEADER.unpack(
            self._bytes(0, _HEADER.size)
        )
        _check(ident[:6] == b"\x7fELF\x02\x01" and kind == 1, "it is no relocatable ELF64 object")
        _check(machine == self.machine, f"it is for machine {machine}, this is {self.machine}")
        usable = entry == _SECTION.size and names < count < _RESERVED
        _check(usable, "it has no usable table of sections")
        rows = list(self._records(_SECTION, start, count * entry))
        titles = Section("", *rows[names][1:3], *rows[names][4:9])
        return [Section(self._name(titles, row[0]), *row[1:3], *row[4:9]) for row in rows]

    def _read_symbols(self) -> list[Symbol]:
        found: list[Symbol] = []
        for table in (s for s in self._sections if s.type == _SYMTAB):
            _check(not found, "it has several tables of symbols")
            _check(table.link < len(self._sections), "its symbols have no names")
            names = self._sections[table.link]
            sizes = [s.size for s in self._sections]
            for at, info, _, section, value, size in self._records(
                _SYMBOL, table.offset, table.size
            ):
                symbol = Symbol(self._name(names, at), info & 15, info >> 4, section, value, size)
                if section < _RESERVED:
                    inside = section < len(sizes) and (not section or value <= sizes[section])
                    _check(inside, "a symbol is outside its section")
                found.append(symbol)
        return found

    def _read_relocations(self, target: int) -> Iterator[Use]:
        """Those of section number `target`."""
        for table in self._sections:
            if table.info != target or table.type not in (_RELA_TYPE, _REL_TYPE):
                continue
            _check(table.type == _RELA_TYPE, "its relocations have no addends")
            size = self._sections[target].size
            _check(self._sections[target].type == _PROGBITS, "zeros are relocated")
            for at, info, addend in self._records(_RELA, table.offset, table.size):
                n, kind = info >> 32, info & 0xFFFFFFFF
                how = RELOCATIONS[self.machine].get(kind)
                if how is None:
                    raise RuntimeError(f"the object cannot be linked: unknown relocation {kind}")
                _check(n < len(self._symbols), "a relocation has no symbol")
                _check(at + how.width <= size, "a relocation is outside its section")
                plain = self._symbols[n].type not in (_THREAD_LOCAL, _INDIRECT)
                _check(plain, "a symbol is thread-local or indirect")
                yield Use(target, at, how, n, addend)


def _take(end: int, size: int, align: int) -> tuple[int, int]:
    """The next multiple of `align` from `end`, and the end of `size` bytes there."""
    align = max(align, 1)
    _check(mmap.PAGESIZE % align == 0, f"an alignment of {align} is not supported")
    start = -(-end // align) * align
    _check(start + size <= LARGEST, "it is too large")
    return start, start + size


def _check(holds: bool, trouble: str) -> None:
    if not holds:
        raise RuntimeError(f"the object cannot be linked: {trouble}")
