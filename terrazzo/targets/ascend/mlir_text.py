"""Reads MLIR in its generic form: `%r = "dialect.op"(operands) <{properties}> ({regions}) {attrs} :
types loc(…)`. Every operation has this one shape, so nothing of a dialect is needed to read it.

Of attributes: numbers, booleans, strings, lists and arrays become Python values, `#d.kind<VALUE>`
and anything else stays text. Source of the grammar: the MLIR language reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

DYNAMIC = -(1 << 63)  # stands for an operand in lists of static sizes


class MlirError(ValueError):
    """Text that is not what this reader takes: says where."""


@dataclass(frozen=True)
class Place:
    """A file location: 1-based line and column. `name`: what a named location calls it."""

    file: str
    line: int
    col: int
    name: str = ""


@dataclass(frozen=True)
class Region:
    """One block: names and types of its arguments, its operations."""

    args: tuple[tuple[str, str], ...]
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Op:
    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    attrs: dict[str, object] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    operand_types: tuple[str, ...] = ()
    result_types: tuple[str, ...] = ()
    place: Place | None = None

    def segments(self) -> list[tuple[str, ...]]:
        """The operands by the groups that the operation's definition names."""
        sizes = self.attrs.get("operandSegmentSizes")
        if not isinstance(sizes, tuple):
            return [(x,) for x in self.operands]
        out, at = [], 0
        for n in sizes:
            out.append(self.operands[at : at + n])
            at += n
        return out


@dataclass(frozen=True)
class MemrefType:
    """`sizes`, `strides` and `offset`: None where dynamic. `element`: f32, i1 …; `space`: gm, ub,
    cbuf, cc or ""."""

    sizes: tuple[int | None, ...]
    element: str
    strides: tuple[int | None, ...]
    offset: int | None
    space: str


def memref_type(text: str) -> MemrefType:
    """Raises MlirError for what is not a memref."""
    found = re.fullmatch(
        r"memref<((?:(?:\d+|\?)x)*)(\w+)(?:, strided<\[([^]]*)\](?:, offset: ([^>]+))?>)?"
        r"(?:, #hivm\.address_space<(\w+)>)?>",
        text,
    )
    if found is None:
        raise MlirError(f"not a memref: {text}")
    sizes = tuple(None if n == "?" else int(n) for n in found[1].split("x")[:-1])
    if found[3] is None:
        strides: list[int | None] = []
        dense: int | None = 1
        for n in reversed(sizes):
            strides.insert(0, dense)
            dense = None if n is None or dense is None else dense * n
        return MemrefType(sizes, found[2], tuple(strides), 0, found[5] or "")
    steps = tuple(None if s.strip() == "?" else int(s) for s in found[3].split(",") if s.strip())
    offset = None if found[4] == "?" else int(found[4] or 0)
    return MemrefType(sizes, found[2], steps, offset, found[5] or "")


def parse(text: str) -> Op:
    """The module of a dump. Raises MlirError with a line for what cannot be read."""
    aliases: dict[str, str] = {}
    for found in re.finditer(r"^(#\w+) = (.*)$", text, re.MULTILINE):
        aliases[found[1]] = found[2]
    body = re.sub(r"^#\w+ = .*$", "", text, flags=re.MULTILINE)
    reader = _Reader(body, aliases)
    module = reader.op()
    reader.space()
    if reader.at < len(body):
        raise reader.error("text behind the module")
    return module


_NAME = re.compile(r"[\w.$-]+")
_VALUE = re.compile(r"%[\w$.#:-]+(?<!:)")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w.])")
_CLOSE = {"(": ")", "[": "]", "{": "}", "<": ">"}


class _Reader:
    def __init__(self, text: str, aliases: dict[str, str]) -> None:
        self.text = text
        self.aliases = aliases
        self.at = 0

    def error(self, what: str) -> MlirError:
        line = self.text.count("\n", 0, self.at) + 1
        return MlirError(f"{what} at line {line}: {self.text[self.at : self.at + 60]!r}")

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def has(self, token: str) -> bool:
        self.space()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def need(self, token: str) -> None:
        if not self.has(token):
            raise self.error(f"{token!r} expected")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.space()
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def word(self, pattern: re.Pattern[str], what: str) -> str:
        found = self.match(pattern)
        if not found:
            raise self.error(f"{what} expected")
        return found[found.lastindex or 0]

    def items(self, close: str, one: Callable[[], object]) -> Iterator[object]:
        """Items between commas up to `close`, whose opening has been read."""
        if self.has(close):
            return
        while True:
            yield one()
            if self.has(close):
                return
            self.need(",")

    # -- operations ----------------------------------------------------------------------------

    def op(self) -> Op:
        results: list[str] = []
        while found := self.match(_VALUE):
            results.append(found[0])
            if not self.has(","):
                self.need("=")
                break
        results = [r for x in results for r in _numbered(x)]
        name = self.word(_STRING, "an operation's name")
        self.need("(")
        operands = [str(x) for x in self.items(")", lambda: self.word(_VALUE, "a value"))]
        attrs: dict[str, object] = {}
        if self.has("<{"):
            self.entries(attrs)
            self.need(">")
        regions: list[Region] = []
        if self.has("("):
            regions = [r for r in self.items(")", self.region) if isinstance(r, Region)]
        if self.has("{"):
            self.entries(attrs)
        self.need(":")
        self.need("(")
        taken = [str(x) for x in self.items(")", self.type)]
        self.need("->")
        given = [str(x) for x in self.items(")", self.type)] if self.has("(") else [self.type()]
        place = self.location()
        return Op(name, tuple(operands), tuple(results), attrs, tuple(regions), tuple(taken),
                  tuple(given), place)  # fmt: skip

    def region(self) -> Region:
        self.need("{")
        args: list[tuple[str, str]] = []
        if self.has("^"):
            self.word(_NAME, "a block's name")
            if self.has("("):
                args = [a for a in self.items(")", self.argument) if isinstance(a, tuple)]
            self.need(":")
        ops: list[Op] = []
        while not self.has("}"):
            if self.has("^"):
                raise self.error("a region of one block expected")
            ops.append(self.op())
        return Region(tuple(args), tuple(ops))

    def argument(self) -> tuple[str, str]:
        name = self.word(_VALUE, "a value")
        self.need(":")
        kind = self.type()
        self.location()
        return name, kind

    def type(self) -> str:
        """A type's text, spaces as they are."""
        self.space()
        start = self.at
        if self.text.startswith("(", self.at):
            self.balanced()
            if self.has("->"):
                self.type()
            return self.text[start : self.at]
        if not self.match(re.compile(r"[!\w.]+")):
            raise self.error("a type expected")
        if self.text.startswith("<", self.at):
            self.balanced()
        return self.text[start : self.at]

    def balanced(self) -> str:
        """The bracket at the cursor with all it holds."""
        start, open_ = self.at, [_CLOSE[self.text[self.at]]]
        self.at += 1
        while open_:
            if self.at >= len(self.text):
                raise self.error("a bracket that is not closed")
            c = self.text[self.at]
            if c == '"':
                self.word(_STRING, "a string")
                continue
            if c == "-" and self.text.startswith("->", self.at):
                self.at += 2
                continue
            if c in _CLOSE:
                open_.append(_CLOSE[c])
            elif c == open_[-1]:
                open_.pop()
            self.at += 1
        return self.text[start : self.at]

    # -- attributes and places -----------------------------------------------------------------

    def entries(self, into: dict[str, object]) -> None:
        """A dictionary's entries, up to and with the closing brace."""

        def one() -> object:
            found = self.match(_STRING) or self.match(_NAME)
            if not found:
                raise self.error("an attribute's name expected")
            into[found[found.lastindex or 0]] = self.attribute() if self.has("=") else True
            return None

        for _ in self.items("}", one):
            pass

    def attribute(self) -> object:
        self.space()
        if found := self.match(_STRING):
            return found[1]
        if found := self.match(_NUMBER):
            number = _number(found[0], self.type() if self.has(":") else "i64")
            return number
        if found := self.match(re.compile(r"(true|false)\b")):
            return found[1] == "true"
        if self.has("["):
            return tuple(self.items("]", self.attribute))
        if found := self.match(re.compile(r"@[\w.$-]+")):
            return found[0]
        if self.has("{"):
            inner: dict[str, object] = {}
            self.entries(inner)
            return inner
        if self.has("array<"):
            self.word(_NAME, "an element type")
            if self.has(">"):
                return ()
            self.need(":")
            return tuple(self.items(">", self.attribute))
        if found := self.match(re.compile(r"#[\w.]+")):
            if found[0] in self.aliases:
                return self.aliases[found[0]]
            return found[0] + (self.balanced() if self.text.startswith("<", self.at) else "")
        return self.type()

    def location(self) -> Place | None:
        if not self.has("loc("):
            return None
        place = self.inner_location()
        self.need(")")
        return place

    def inner_location(self) -> Place | None:
        """Of a fused location the first one with a file, of a call the callee."""
        if found := self.match(re.compile(r"#\w+")):
            text = self.aliases.get(found[0])
            return _Reader(text, self.aliases).location() if text is not None else None
        if self.has("unknown"):
            return None
        if self.has("callsite("):
            callee = self.inner_location()
            self.need("at")
            self.inner_location()
            self.need(")")
            return callee
        if self.has("fused"):
            self.space()
            if self.text.startswith("<", self.at):
                self.balanced()
            self.need("[")
            parts = [p for p in self.items("]", self.inner_location) if isinstance(p, Place)]
            return parts[0] if parts else None
        text = self.word(_STRING, "a location")
        if self.has("("):
            inner = self.inner_location()
            self.need(")")
            return Place(inner.file, inner.line, inner.col, text) if inner else None
        if self.has(":"):
            line = int(self.word(re.compile(r"\d+"), "a line"))
            self.need(":")
            return Place(text, line, int(self.word(re.compile(r"\d+"), "a column")))
        return None


def _numbered(result: str) -> list[str]:
    """`%0:2` stands for `%0#0` and `%0#1`."""
    name, _, count = result.partition(":")
    return [f"{name}#{i}" for i in range(int(count))] if count else [name]


def _number(text: str, kind: str) -> object:
    if kind in ("f32", "f16", "bf16"):
        if text.startswith("0x"):
            return _float_of_bits(int(text, 16), kind)
        return float(text)
    if text.startswith("0x"):
        return int(text, 16)
    return int(text) if text.removeprefix("-").isdigit() else float(text)


def _float_of_bits(bits: int, kind: str) -> float:
    """IEEE bits of infinities and NaNs; bf16 is the upper half of f32."""
    exponent, fraction = {"f32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}[kind]
    sign = -1.0 if bits >> (exponent + fraction) else 1.0
    e = bits >> fraction & ((1 << exponent) - 1)
    f = bits & ((1 << fraction) - 1)
    if e == (1 << exponent) - 1:
        return float("nan") if f else sign * float("inf")
    bias = (1 << exponent - 1) - 1
    if e == 0:
        return sign * f * 2.0 ** (1 - bias - fraction)
    return sign * (1 + f / (1 << fraction)) * 2.0 ** (e - bias)
