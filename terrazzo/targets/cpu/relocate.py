"""Relocations of the two machines we generate for: which address is meant, and how it is encoded.

Numbers and arithmetic are those of the psABI documents ("System V ABI, AMD64 supplement", section
4.4; "ELF for the Arm 64-bit Architecture", section 5.7): S + A for words, S + A - P for offsets,
where S is the symbol's address (or its GOT slot's, or its stub's), A the addend, P the place.
"""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple

X86_64, AARCH64 = 62, 183  # e_machine

Target = Literal["symbol", "call", "got"]
Form = Literal["none", "word", "signed", "offset", "page", "low", "branch", "near"]


class Relocation(NamedTuple):
    """`target`: the address meant is the symbol's, a function's that may be far away (so a stub's
    will do), or that of a slot of the global offset table which holds the symbol's.

    `form`: "word" (unsigned), "signed", "offset" (signed, from the place): `size` bytes. The rest
    are fields of an AArch64 instruction: "page" (distance in pages of 4 KiB, adrp), "low" (the low
    12 bits, for a load of 1 << `size` bytes), "branch" (offset in instructions of `size` bits, at
    bit `at`), "near" (offset in bytes, adr).
    """

    target: Target
    form: Form
    size: int = 0
    at: int = 0

    @property
    def width(self) -> int:
        """Bytes that it touches."""
        if self.form == "none":
            return 0
        return self.size if self.form in ("word", "signed", "offset") else 4


RELOCATIONS: dict[int, dict[int, Relocation]] = {
    X86_64: {
        0: Relocation("symbol", "none"),
        1: Relocation("symbol", "word", 8),  # R_X86_64_64
        2: Relocation("symbol", "offset", 4),  # PC32
        4: Relocation("call", "offset", 4),  # PLT32
        9: Relocation("got", "offset", 4),  # GOTPCREL
        10: Relocation("symbol", "word", 4),  # 32
        11: Relocation("symbol", "signed", 4),  # 32S
        24: Relocation("symbol", "offset", 8),  # PC64
        41: Relocation("got", "offset", 4),  # GOTPCRELX
        42: Relocation("got", "offset", 4),  # REX_GOTPCRELX
    },
    AARCH64: {
        0: Relocation("symbol", "none"),
        257: Relocation("symbol", "word", 8),  # R_AARCH64_ABS64
        258: Relocation("symbol", "word", 4),  # ABS32
        260: Relocation("symbol", "offset", 8),  # PREL64
        261: Relocation("symbol", "offset", 4),  # PREL32
        273: Relocation("symbol", "branch", 19, 5),  # LD_PREL_LO19
        274: Relocation("symbol", "near"),  # ADR_PREL_LO21
        275: Relocation("symbol", "page"),  # ADR_PREL_PG_HI21
        277: Relocation("symbol", "low", 0),  # ADD_ABS_LO12_NC
        278: Relocation("symbol", "low", 0),  # LDST8_ABS_LO12_NC
        279: Relocation("symbol", "branch", 14, 5),  # TSTBR14
        280: Relocation("symbol", "branch", 19, 5),  # CONDBR19
        282: Relocation("call", "branch", 26, 0),  # JUMP26
        283: Relocation("call", "branch", 26, 0),  # CALL26
        284: Relocation("symbol", "low", 1),  # LDST16_ABS_LO12_NC
        285: Relocation("symbol", "low", 2),  # LDST32_ABS_LO12_NC
        286: Relocation("symbol", "low", 3),  # LDST64_ABS_LO12_NC
        299: Relocation("symbol", "low", 4),  # LDST128_ABS_LO12_NC
        311: Relocation("got", "page"),  # ADR_GOT_PAGE
        312: Relocation("got", "low", 3),  # LD64_GOT_LO12_NC
        314: Relocation("call", "offset", 4),  # PLT32
    },
}
STUB = {X86_64: 8, AARCH64: 16}  # bytes


def apply(how: Relocation, image: bytearray, at: int, place: int, value: int) -> None:
    """Writes `value`, which is S + A, into `image` at offset `at`, whose address is `place`.

    Raises RuntimeError if it does not fit the field.
    """
    form, size = how.form, how.size
    if form in ("word", "signed", "offset"):
        number = value - place if form == "offset" else value
        field = _fitting(number, 8 * size, signed=form != "word")
        image[at : at + size] = field.to_bytes(size, "little")
    elif form == "low":
        low = value & 0xFFF
        if low % (1 << size):
            raise RuntimeError(
                f"the object cannot be linked: address {value:#x} is not a multiple of {1 << size}"
            )
        _put(image, at, low >> size, 12, 10)
    elif form == "branch":
        offset = value - place
        if offset % 4:
            raise RuntimeError(
                f"the object cannot be linked: jump to {value:#x}, which is no instruction"
            )
        _put(image, at, _fitting(offset >> 2, size), size, how.at)
    elif form in ("page", "near"):
        offset = (value >> 12) - (place >> 12) if form == "page" else value - place
        field = _fitting(offset, 21)
        _put(image, at, field & 3, 2, 29)
        _put(image, at, field >> 2, 19, 5)


def stub(machine: int, image: bytearray, at: int, place: int, slot: int) -> None:
    """Writes a jump to where the word at address `slot` points: a function that is too far away."""
    if machine == X86_64:
        image[at : at + 8] = b"\xff\x25\0\0\0\0\xcc\xcc"  # jmp [rip + offset]
        apply(RELOCATIONS[X86_64][2], image, at + 2, place + 2, slot - 4)
        return
    # adrp x16, slot; ldr x17, [x16, slot]; br x17: registers that a call may change on its way
    struct.pack_into("<4I", image, at, 0x90000010, 0xF9400211, 0xD61F0220, 0xD503201F)
    apply(RELOCATIONS[AARCH64][311], image, at, place, slot)
    apply(RELOCATIONS[AARCH64][312], image, at + 4, place + 4, slot)


def _fitting(number: int, bits: int, signed: bool = True) -> int:
    """`number` as a field of so many bits."""
    least = -1 << bits - 1 if signed else 0
    if not least <= number < least + (1 << bits):
        raise RuntimeError(
            f"the object cannot be linked: {number:#x} does not fit a field of {bits} bits"
        )
    return number % (1 << bits)


def _put(image: bytearray, at: int, field: int, bits: int, lowest: int) -> None:
    (word,) = struct.unpack_from("<I", image, at)
    mask = ((1 << bits) - 1) << lowest
    struct.pack_into("<I", image, at, word & ~mask | field << lowest)
