"""Reading a relocatable object (ELF64, as LLVM emits it for us).

Goals: an error, never a crash, for bytes that are no object. Non-goals: archives, thread-local
data, constructors, unwinding (our functions do not unwind, so .eh_frame is left out, as is whatever
takes no memory). Format: "System V ABI", chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from terrazzo.targets.cpu.relocate import RELOCATIONS, Relocation

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
PROGBITS, _SYMTAB, _RELA_TYPE, _NOTE, NOBITS, _REL_TYPE = 1, 2, 4, 7, 8, 9
WRITE, ALLOC, EXECUTE, _TLS = 1, 2, 4, 0x400
UNDEFINED, _RESERVED, ABSOLUTE, COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2  # for section numbers
CANNOT = "the object cannot be linked"
WEAK, _THREAD_LOCAL, _INDIRECT = 2, 6, 10


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
    """`section`: index or one of the reserved numbers; `value`: offset in it (for COMMON, the
    alignment)."""

    name: str
    type: int
    binding: int
    section: int
    value: int
    size: int


class Use(NamedTuple):
    """A relocation: `at` bytes into section `section`, of symbol number `symbol`."""

    section: int
    at: int
    how: Relocation
    symbol: int
    addend: int


class Object:
    """An object as read. `sections` of those that take memory: number -> section; `symbols` by
    number; `uses` of them. Raises RuntimeError when `data` is no object for `machine`
    (relocate.X86_64 or AARCH64), or holds what we do not link.
    """

    def __init__(self, data: bytes, machine: int) -> None:
        self.machine = machine
        self._data = data
        self._sections = self._read_sections()
        self.sections = {
            n: s
            for n, s in enumerate(self._sections)
            if n and s.flags & ALLOC and s.type != _NOTE and s.name != ".eh_frame"
        }
        for section in self.sections.values():
            self._check_section(section)
        self.symbols = self._read_symbols()
        self.uses = [use for n in self.sections for use in self._read_relocations(n)]

    def content(self, section: Section) -> bytes:
        return self._bytes(section.offset, section.size)

    def _check_section(self, section: Section) -> None:
        unsafe = section.flags & WRITE and section.flags & EXECUTE
        if unsafe or section.type not in (PROGBITS, NOBITS) or section.flags & _TLS:
            what = f"section {section.name} of type {section.type:#x}, flags {section.flags:#x}"
            raise RuntimeError(f"{CANNOT}: {what} is not supported")
        if section.type == PROGBITS:
            self.content(section)

    def _bytes(self, offset: int, size: int) -> bytes:
        check(offset + size <= len(self._data), "it is cut off")
        return self._data[offset : offset + size]

    def _records(self, record: struct.Struct, offset: int, size: int) -> Iterator[tuple[Any, ...]]:
        check(size % record.size == 0, "a table ends within an entry")
        return record.iter_unpack(self._bytes(offset, size))

    def _name(self, table: Section, at: int) -> str:
        start = table.offset + at
        end = self._data.find(b"\0", start, table.offset + table.size)
        check(end >= 0, "a name has no end")
        return self._data[start:end].decode(errors="replace")

    def _read_sections(self) -> list[Section]:
        ident, kind, machine, _, _, _, start, _, _, _, _, entry, count, names = _HEADER.unpack(
            self._bytes(0, _HEADER.size)
        )
        check(ident[:6] == b"\x7fELF\x02\x01" and kind == 1, "it is no relocatable ELF64 object")
        check(machine == self.machine, f"it is for machine {machine}, this is {self.machine}")
        usable = entry == _SECTION.size and names < count < _RESERVED
        check(usable, "it has no usable table of sections")
        rows = list(self._records(_SECTION, start, count * entry))
        titles = Section("", *rows[names][1:3], *rows[names][4:9])
        return [Section(self._name(titles, row[0]), *row[1:3], *row[4:9]) for row in rows]

    def _read_symbols(self) -> list[Symbol]:
        found: list[Symbol] = []
        for table in (s for s in self._sections if s.type == _SYMTAB):
            check(not found, "it has several tables of symbols")
            check(table.link < len(self._sections), "its symbols have no names")
            names = self._sections[table.link]
            sizes = [s.size for s in self._sections]
            for at, info, _, section, value, size in self._records(
                _SYMBOL, table.offset, table.size
            ):
                symbol = Symbol(self._name(names, at), info & 15, info >> 4, section, value, size)
                if section < _RESERVED:
                    inside = section < len(sizes) and (not section or value <= sizes[section])
                    check(inside, "a symbol is outside its section")
                found.append(symbol)
        return found

    def _read_relocations(self, target: int) -> Iterator[Use]:
        """Those of section number `target`."""
        known, symbols = RELOCATIONS[self.machine], self.symbols
        for table in self._sections:
            if table.info != target or table.type not in (_RELA_TYPE, _REL_TYPE):
                continue
            check(table.type == _RELA_TYPE, "its relocations have no addends")
            check(self._sections[target].type == PROGBITS, "zeros are relocated")
            size = self._sections[target].size
            for at, info, addend in self._records(_RELA, table.offset, table.size):
                how, n = known.get(info & 0xFFFFFFFF), info >> 32
                if how is None:
                    raise RuntimeError(f"{CANNOT}: unknown relocation {info & 0xFFFFFFFF}")
                if n >= len(symbols) or at + how.width > size:
                    raise RuntimeError(f"{CANNOT}: a relocation is outside its section")
                if symbols[n].type in (_THREAD_LOCAL, _INDIRECT):
                    raise RuntimeError(f"{CANNOT}: `{symbols[n].name}` is thread-local")
                yield Use(target, at, how, n, addend)


def check(holds: bool, trouble: str) -> None:
    """Raises RuntimeError unless it `holds`."""
    if not holds:
        raise RuntimeError(f"{CANNOT}: {trouble}")
