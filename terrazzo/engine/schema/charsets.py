"""Sets of characters as ranges of code points."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

Ranges = tuple[tuple[int, int], ...]  # both ends in it, sorted, apart

MOST = 0x10FFFF
NAMES = {"Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Number": "N",
         "Decimal_Number": "Nd", "digit": "Nd", "Mark": "M", "Punctuation": "P", "Symbol": "S",
         "Separator": "Z"}  # fmt: skip


def union(ranges: list[tuple[int, int]]) -> Ranges:
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def complement(ranges: Ranges) -> Ranges:
    out, at = [], 0
    for low, high in ranges:
        if at < low:
            out.append((at, low - 1))
        at = high + 1
    return (*out, (at, MOST)) if at <= MOST else tuple(out)


def intersection(a: Ranges, b: Ranges) -> Ranges:
    return complement(union([*complement(a), *complement(b)]))


def spelled(text: str) -> Ranges:
    """The ranges of a class without escapes: "A-Za-z_"."""
    found = re.findall(r"(.)-(.)|(.)", text, re.S)
    return union([(ord(a or c), ord(b or c)) for a, b, c in found])


@cache
def category(name: str) -> Ranges:
    """The characters of a Unicode category, "Lu" or "Letter"; () if there is no such."""
    short = NAMES.get(name, name)
    out: list[tuple[int, int]] = []
    for n in range(MOST + 1):
        if unicodedata.category(chr(n)).startswith(short):
            if out and out[-1][1] == n - 1:
                out[-1] = (out[-1][0], n)
            else:
                out.append((n, n))
    return tuple(out)
