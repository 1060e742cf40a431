"""Relocation arithmetic: against what GNU ld 2.40 made of the same bytes, and by following the
instructions of a linked object to the address that they form."""

from __future__ import annotations

import struct

import pytest
from test_loading import SWITCH, TEXT

from terrazzo.targets.cpu import codegen
from terrazzo.targets.cpu.elf import Object
from terrazzo.targets.cpu.link import Image
from terrazzo.targets.cpu.relocate import AARCH64, RELOCATIONS, X86_64, apply

# relocation type, place, symbol + addend, bytes before, bytes that ld made of them
AARCH64_CASES = [
    (275, 0x400000, 0x51234560, "01000090", "a1712890"),  # adrp x1, sym
    (277, 0x400004, 0x51234560, "21000091", "21801591"),  # add x1, x1, :lo12:sym
    (278, 0x400008, 0x51234560, "22004039", "22805539"),  # ldrb w2, [x1, :lo12:sym]
    (284, 0x40000C, 0x51234560, "22004079", "22c04a79"),  # ldrh w2
    (285, 0x400010, 0x51234560, "220040b9", "226045b9"),  # ldr w2
    (286, 0x400014, 0x51234560, "220040f9", "22b042f9"),  # ldr x2
    (299, 0x400018, 0x51234560, "2200c03d", "2258c13d"),  # ldr q2
    (279, 0x40001C, 0x401238, "030028b7", "e39028b7"),  # tbnz x3, #37, near
    (280, 0x400020, 0x401238, "01000054", "c1900054"),  # b.ne near
    (280, 0x400024, 0x401238, "090000b4", "a99000b4"),  # cbz x9, near
    (282, 0x400028, 0x401238, "00000014", "84040014"),  # b near
    (283, 0x40002C, 0x401238, "00000094", "83040094"),  # bl near
    (274, 0x400030, 0x40123B, "04000010", "44900070"),  # adr x4, near + 3
    (273, 0x400034, 0x401238, "05000058", "25900058"),  # ldr x5, near
    (275, 0x400038, 0x3FFF00, "06000090", "e6fffff0"),  # adrp x6, behind
    (283, 0x40003C, 0x3FFF00, "00000094", "b1ffff97"),  # bl behind
    (280, 0x400040, 0x3FFF00, "0b000054", "0bf6ff54"),  # b.lt behind
    (279, 0x400044, 0x3FFF00, "03000836", "e3f50f36"),  # tbz w3, #1, behind
    (274, 0x400048, 0x3FFF00, "07000010", "c7f5ff10"),  # adr x7, behind
    (257, 0x40004C, 0x51234565, "0000000000000000", "6545235100000000"),
    (261, 0x400054, 0x401238, "00000000", "e4110000"),
    (260, 0x400058, 0x3FFF00, "0000000000000000", "a8feffffffffffff"),
    (258, 0x400060, 0x51234560, "00000000", "60452351"),
]


@pytest.mark.parametrize(("kind", "place", "value", "before", "after"), AARCH64_CASES)
def test_like_ld(kind: int, place: int, value: int, before: str, after: str) -> None:
    image = bytearray(b"\x55" * 8 + bytes.fromhex(before) + b"\x55" * 8)
    apply(RELOCATIONS[AARCH64][kind], image, 8, place, value)
    assert image.hex() == "55" * 8 + after + "55" * 8


@pytest.mark.parametrize(
    ("machine", "kind", "place", "last"),
    [
        (X86_64, 2, 1 << 40, (1 << 40) + (1 << 31) - 1),  # PC32
        (X86_64, 4, 1 << 40, (1 << 40) + (1 << 31) - 1),  # PLT32
        (X86_64, 10, 1 << 40, (1 << 32) - 1),  # 32
        (X86_64, 11, 1 << 40, (1 << 31) - 1),  # 32S
        (AARCH64, 258, 1 << 40, (1 << 32) - 1),  # ABS32
        (AARCH64, 275, 1 << 40, (1 << 40) + (1 << 32) - 1),  # page
        (AARCH64, 279, 1 << 40, (1 << 40) + (1 << 15) - 4),  # test and branch
        (AARCH64, 280, 1 << 40, (1 << 40) + (1 << 20) - 4),  # conditional branch
        (AARCH64, 283, 1 << 40, (1 << 40) + (1 << 27) - 4),  # call
        (AARCH64, 274, 1 << 40, (1 << 40) + (1 << 20) - 1),  # adr
    ],
)
def test_the_last_address_in_reach(machine: int, kind: int, place: int, last: int) -> None:
    how = RELOCATIONS[machine][kind]
    apply(how, bytearray(8), 0, place, last)
    beyond = last + (4 if how.form == "branch" else 1)
    with pytest.raises(RuntimeError, match="does not fit"):
        apply(how, bytearray(8), 0, place, beyond)


def test_addresses_that_an_instruction_cannot_hold() -> None:
    with pytest.raises(RuntimeError, match="0x1004 is not a multiple of 8"):
        apply(RELOCATIONS[AARCH64][286], bytearray(4), 0, 0, 0x1004)
    with pytest.raises(RuntimeError, match="jump to 0x1002, which is no instruction"):
        apply(RELOCATIONS[AARCH64][283], bytearray(4), 0, 0, 0x1002)


class Generic:
    name, cpu, features = "generic", "generic", ""


FAR = {  # addresses no branch reaches from the image
    name: 0x5500_0000_0000 + 0x10_0010 * n
    for n, name in enumerate(("expf", "sin", "memcpy", "strlen", "PyLong_FromLongLong"))
}


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


class Linked:
    """TEXT for AArch64 at address `base`, and a reader of its instructions."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.object = Object(codegen.compile_object(TEXT, Generic(), "aarch64-linux-gnu"), AARCH64)
        self.parts = Image(self.object)
        image = self.parts.link(base, FAR.get)
        self.image = image + bytes(self.parts.size - len(image))

    def word(self, address: int, size: int = 4) -> int:
        at = address - self.base
        assert 0 <= at <= len(self.image) - size
        return int.from_bytes(self.image[at : at + size], "little")

    def page(self, address: int) -> tuple[int, int]:
        """Register and value of the adrp at `address`."""
        code = self.word(address)
        assert code & 0x9F000000 == 0x90000000
        field = (code >> 5 & 0x7FFFF) << 2 | code >> 29 & 3
        return code & 31, (address & -0x1000) + (signed(field, 21) << 12)

    def formed(self, start: int) -> list[int]:
        """Addresses that the function at `start` forms by adrp and a second instruction, up to its
        return."""
        pages: dict[int, int] = {}
        found: list[int] = []
        address = start
        while (code := self.word(address)) != 0xD65F03C0:  # ret
            register = code >> 5 & 31
            if code & 0x9F000000 == 0x90000000:
                to, value = self.page(address)
                pages[to] = value
            elif register in pages and code & 0x7F800000 == 0x11000000:  # add, immediate
                found.append(pages[register] + (code >> 10 & 0xFFF))
            elif register in pages and code & 0x3B000000 == 0x39000000:  # ldr, str
                vector = code >> 26 & 1 and code >> 23 & 1
                scale = 4 if vector else code >> 30
                found.append(pages[register] + ((code >> 10 & 0xFFF) << scale))
            address += 4
        return found

    def called(self, start: int) -> list[int]:
        """Where the calls of the function at `start` end up, through stubs."""
        found: list[int] = []
        address = start
        while (code := self.word(address)) != 0xD65F03C0:
            if code >> 26 == 0b100101:  # bl
                stub = address + 4 * signed(code & 0x3FFFFFF, 26)
                register, page = self.page(stub)
                load, jump = self.word(stub + 4), self.word(stub + 8)
                assert (register, load & 0xFFC003FF, jump) == (16, 0xF9400211, 0xD61F0220)
                found.append(self.word(page + 8 * (load >> 10 & 0xFFF), 8))
            address += 4
        return found


@pytest.mark.parametrize("base", [0x10000, 0x40_0000, 0x7F12_3456_7000])
def test_aarch64_instructions_form_the_right_addresses(base: int) -> None:
    linked = Linked(base)
    at = {name: base + offset for name, offset in linked.parts.exports.items()}
    (shared,) = {linked.word(slot, 8) for slot in linked.formed(at["bump_shared"])} & {at["shared"]}
    assert linked.word(shared) == 7
    (squares, *_) = linked.formed(at["squares"])
    assert squares % 64 == 0
    assert [linked.word(squares + 4 * n) for n in range(16)] == [n * n for n in range(16)]
    (table,) = linked.formed(at["pick"])
    assert [signed(linked.word(table + 4 * n), 32) for n in range(4)] == [10, -20, 30, -40]
    (functions,) = linked.formed(at["indirect"])
    pointers = [linked.word(functions + 8 * n, 8) for n in range(3)]
    assert pointers == [at["one"], at["two"], table + 8]
    near = linked.formed(at["through_offset"])[0]
    assert near + signed(linked.word(near), 32) == table
    assert {linked.word(place, 8) for place in linked.formed(at["count"])} == {40}
    (slot,) = linked.formed(at["address_of_strlen"])
    assert linked.word(slot, 8) == FAR["strlen"]
    (slot,) = linked.formed(at["has_weak"])
    assert linked.word(slot, 8) == 0


def test_aarch64_calls_reach_what_is_far_away() -> None:
    linked = Linked(0x40_0000)
    at = {name: linked.base + offset for name, offset in linked.parts.exports.items()}
    assert linked.called(at["exp_sum"]) == [FAR["expf"], FAR["sin"]]
    assert linked.called(at["length"]) == [FAR["memcpy"], FAR["strlen"]]
    assert linked.called(at["number"]) == [FAR["PyLong_FromLongLong"]]


def test_aarch64_jump_table() -> None:
    """Its entries are offsets within the code: nothing relocates them, so they come as they are."""
    obj = Object(codegen.compile_object(SWITCH, Generic(), "aarch64-linux-gnu"), AARCH64)
    parts = Image(obj)
    image = parts.link(0x40_0000, FAR.get)
    (table,) = (s for s in obj.sections.values() if s.name == ".rodata")
    at = parts.spans[1].offset
    assert table.size > 0 and image[at : at + table.size] == obj.content(table)


def test_x86_stub_jumps_through_its_slot() -> None:
    obj = Object(codegen.compile_object(TEXT, Generic(), "x86_64-linux-gnu"), X86_64)
    parts = Image(obj)
    base = 0x7F12_3456_7000
    image = parts.link(base, FAR.get)
    found = []
    for use in obj.uses:
        name = obj.symbols[use.symbol].name
        if use.how.target == "call" and name in FAR:
            (offset,) = struct.unpack_from("<i", image, use.at)
            stub = use.at + 4 + offset
            assert image[stub : stub + 2] == b"\xff\x25" and stub % 8 == 0
            (slot,) = struct.unpack_from("<i", image, stub + 2)
            (target,) = struct.unpack_from("<Q", image, stub + 6 + slot)
            assert target == FAR[name]
            found.append(name)
    assert set(found) == set(FAR)
