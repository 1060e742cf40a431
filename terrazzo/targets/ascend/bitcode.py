"""Which functions an LLVM bitcode file defines, read from its symbol table.

Source of the format: LLVM's BitCodeFormat document and `llvm/Object/IRSymtab.h`. A file is a
bitstream of blocks; behind the module lie a SYMTAB block and a STRTAB block, each one blob. Reading
those two takes milliseconds, parsing a library of 15 MB takes seconds.
"""

from __future__ import annotations

import struct
from pathlib import Path

_STRTAB, _SYMTAB = 23, 25  # block ids
_UNDEFINED = 1 << 3  # flag bits: FB_visibility (two), FB_has_uncommon, FB_undefined
_SYMBOL = struct.Struct("<6I")  # name (offset, size), IR name (offset, size), comdat, flags


def defined_functions(path: Path) -> frozenset[str]:
    """Names that the bitcode file at `path` defines (functions and variables). Raises ValueError
    when the file is not bitcode or has no symbol table."""
    data = path.read_bytes()
    if data[:4] != b"BC\xc0\xde":
        raise ValueError(f"{path} is not LLVM bitcode")
    blobs = _blobs(data)
    if not {_STRTAB, _SYMTAB} <= blobs.keys():
        raise ValueError(f"{path} has no symbol table")
    names, table = blobs[_STRTAB], blobs[_SYMTAB]
    # Header: version, producer (2 words), modules, comdats, symbols (2 words each), …
    at, count = struct.unpack_from("<2I", table, 4 * 7)
    found = set()
    for i in range(count):
        _, _, start, size, _, flags = _SYMBOL.unpack_from(table, at + i * _SYMBOL.size)
        if not flags & _UNDEFINED:
            found.add(names[start : start + size].decode())
    return frozenset(found)


def _blobs(data: bytes) -> dict[int, bytes]:
    """The blob of each top-level STRTAB and SYMTAB block. At the top level abbreviation ids have
    two bits and every block is preceded by ENTER_SUBBLOCK: [1, vbr8 id, vbr4 width, align, words].
    """
    found: dict[int, bytes] = {}
    at = 4
    while at + 8 <= len(data):
        bits = _Bits(data, at * 8)
        if bits.fixed(2) != 1:
            break
        block, width = bits.vbr(8), bits.vbr(4)
        start = bits.align() + 4
        words = int.from_bytes(data[start - 4 : start], "little")
        if block in (_STRTAB, _SYMTAB):
            found[block] = _blob(data, start, width)
        at = start + 4 * words
    return found


def _blob(data: bytes, start: int, width: int) -> bytes:
    """Of a block that holds DEFINE_ABBREV [literal code, blob] and one record of it."""
    bits = _Bits(data, start * 8)
    if bits.fixed(width) != 2:
        raise ValueError("the block does not start with its abbreviation")
    for _ in range(bits.vbr(5)):
        if bits.fixed(1):
            bits.vbr(8)  # a literal's value
        else:
            bits.fixed(3)  # an encoding; a blob's has no data
    bits.fixed(width)
    size = bits.vbr(6)
    at = bits.align()
    return data[at : at + size]


class _Bits:
    """A cursor of bits, least significant first."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def fixed(self, width: int) -> int:
        byte = self.at // 8
        word = int.from_bytes(self.data[byte : byte + 16], "little")
        value = (word >> self.at % 8) & ((1 << width) - 1)
        self.at += width
        return value

    def vbr(self, width: int) -> int:
        value, shift, more = 0, 0, 1 << width - 1
        while True:
            piece = self.fixed(width)
            value |= (piece & (more - 1)) << shift
            if not piece & more:
                return value
            shift += width - 1

    def align(self) -> int:
        """Moves on to the next 32-bit word; its byte."""
        self.at = -(-self.at // 32) * 32
        return self.at // 8
