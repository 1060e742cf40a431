"""Regular expressions of JSON Schema (ECMA-262) as expressions over the text of JSON strings.

A string's characters are written as json.dumps(ensure_ascii=False) does: as they are, but for
quotes, backslashes and control characters, which have one spelling each.
"""

from __future__ import annotations

import re
from functools import cache

from terrazzo.engine.schema.charsets import (
    MOST,
    Ranges,
    category,
    complement,
    intersection,
    spelled,
    union,
)
from terrazzo.errors import GrammarError

SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\\\"}
PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_ ")
NOTHING = r"[^\x{0}-\x{10ffff}]"  # no character
ESCAPED = tuple(sorted({*range(32), 34, 92}))
SPACE = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": SPACE}
CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
TWO = re.compile(r"[0-9a-fA-F]{2}")
FOUR = re.compile(r"\{[0-9a-fA-F]{1,6}\}|[0-9a-fA-F]{4}")
TIMES = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}")


RAW = complement(union([(0, 31), (34, 34), (92, 92), (0xD800, 0xDFFF)]))


@cache
def characters(wanted: Ranges) -> str:
    """An expression for one character of `wanted`, in a JSON string. "" if there is none."""
    raw = intersection(wanted, RAW)
    ways = []
    if raw:
        ways.append("[" + "".join(f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in raw) + "]")
    for c in ESCAPED:
        if any(a <= c <= b for a, b in wanted):
            ways.append(r"\\" + SHORT.get(c, f"u{c:04x}"))
    return f"(?:{'|'.join(ways)})" if len(ways) > 1 else "".join(ways)


ALL: Ranges = ((0, MOST),)
CHARACTER = characters(ALL)
STRING = f'"{CHARACTER}*"'


@cache
def literal(text: str) -> str:
    """The expression for a string with just this text. Raises GrammarError if none can have it."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise GrammarError(f"half of a surrogate pair, in {text[:40]!r}, cannot be written")
    return '"' + "".join(c if c in PLAIN else characters(((ord(c), ord(c)),)) for c in text) + '"'


def length(least: int, most: int | None) -> str:
    return f'"{CHARACTER}{{{least},{"" if most is None else most}}}"'


@cache
def pattern(text: str) -> str:
    """The expression for the strings in which the ECMA-262 expression `text` is found. Raises
    GrammarError for what cannot be told without looking around: \\b, (?=...), \\1."""
    return '"' + _Pattern(text).read() + '"'


class _Pattern:
    """Reads an expression from left to right. An alternative may begin with ^ and end with $."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def read(self) -> str:
        ways = []
        while True:
            starts = self.take("^")
            body = self.sequence(anchored=True)
            ends = self.take("$")
            if self.at < len(self.text) and self.peek() not in "|":
                raise self.wrong(f"{self.peek()!r}")
            before, after = ("" if starts else f"{CHARACTER}*"), ("" if ends else f"{CHARACTER}*")
            ways.append(f"{before}{body}{after}")
            if not self.take("|"):
                return f"(?:{'|'.join(ways)})"

    def group(self) -> str:
        ways = [self.sequence()]
        while self.take("|"):
            ways.append(self.sequence())
        if not self.take(")"):
            raise self.wrong("a group that does not end")
        return f"(?:{'|'.join(ways)})"

    def sequence(self, anchored: bool = False) -> str:
        out = []
        while self.at < len(self.text) and self.peek() not in ("|", ")"):
            if anchored and self.peek() == "$":
                break
            out.append(self.times(self.one()))
        return "".join(out)

    def times(self, one: str) -> str:
        found = TIMES.match(self.text, self.at)
        if found is None:
            return one
        self.at = found.end()
        self.take("?")  # as few as may be: the same strings
        if found[1] and found[3] and int(found[3]) < int(found[1]):
            raise self.wrong(f"the counts {found[0]}")
        return f"(?:{one}){found[0]}"

    def one(self) -> str:
        c = self.peek()
        self.at += 1
        if c == "(":
            if self.take("?"):
                name = re.compile(r":|<\w+>").match(self.text, self.at)
                if name is None:
                    raise self.wrong("(?...)")
                self.at = name.end()
            return self.group()
        if c == "[":
            return self.some(self.set())
        if c == ".":
            return self.some(complement(spelled("\n\r\u2028\u2029")))
        if c == "\\":
            return self.some(self.escape(inside=False))
        if c in "*+?^$":
            raise self.wrong(f"{c!r} at this place")
        return self.some(((ord(c), ord(c)),))

    def some(self, wanted: Ranges) -> str:
        return characters(wanted) or NOTHING

    def set(self) -> Ranges:
        negated = self.take("^")
        parts: list[tuple[int, int]] = []
        while not self.take("]"):
            low = self.member()
            if self.text[self.at : self.at + 1] == "-" and self.text[self.at + 1 :][:1] != "]":
                self.at += 1
                high = self.member()
                single = len(low) == len(high) == 1 and low[0][0] == low[0][1]
                if not single or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                    raise self.wrong("a range")
                low = ((low[0][0], high[0][0]),)
            parts += low
        found = union(parts)
        return complement(found) if negated else found

    def member(self) -> Ranges:
        c = self.peek()
        self.at += 1
        return self.escape(inside=True) if c == "\\" else ((ord(c), ord(c)),)

    def escape(self, inside: bool) -> Ranges:
        c = self.peek()
        self.at += 1
        if c.lower() in CLASSES:
            found = spelled(CLASSES[c.lower()])
            return found if c.islower() else complement(found)
        if c in "pP":
            return self.category(c == "P")
        if c in "ux":
            code = (FOUR if c == "u" else TWO).match(self.text, self.at)
            if code is None:
                raise self.wrong(f"\\{c}")
            self.at = code.end()
            n = int(code[0].strip("{}"), 16)
            return ((n, n),)
        if c == "c":
            n = ord(self.peek()) % 32
            self.at += 1
            return ((n, n),)
        if c == "b" and inside:
            return ((8, 8),)
        if c in CONTROLS:
            return ((CONTROLS[c], CONTROLS[c]),)
        if c.isalnum():
            raise self.wrong(f"\\{c}")
        return ((ord(c), ord(c)),)

    def category(self, negated: bool) -> Ranges:
        found = re.compile(r"\{(?:gc=|General_Category=)?(\w+)\}").match(self.text, self.at)
        if found is None:
            raise self.wrong("\\p")
        self.at = found.end()
        ranges = category(found[1])
        if not ranges:
            raise self.wrong(f"\\p{{{found[1]}}}")
        return complement(ranges) if negated else ranges

    def take(self, c: str) -> bool:
        if self.text[self.at : self.at + 1] != c:
            return False
        self.at += 1
        return True

    def peek(self) -> str:
        if self.at >= len(self.text):
            raise self.wrong("its end")
        return self.text[self.at]

    def wrong(self, what: str) -> GrammarError:
        return GrammarError(
            f"the pattern {self.text!r} cannot be enforced: {what}, near character {self.at}",
            "write it with classes, groups, alternatives and counts",
        )
