"""Reads the text that `printer.format` writes. The grammar is in README.md."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Literal, TypeVar

from terrazzo.errors import KernelError
from terrazzo.ir.formats import FORMATS
from terrazzo.ir.ops import (
    Block,
    Carry,
    Expect,
    Index,
    Kernel,
    Load,
    Loop,
    LoopVar,
    Op,
    Param,
    Stmt,
    Store,
    Whole,
)  # fmt: skip
from terrazzo.ir.types import DTYPES, Axis, ElemType, Format, TileType, Value

T = TypeVar("T")
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<value>%\d+)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<number>-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+(?!\.\.)|inf\b|nan\b))
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>->|\.\.|[-\[\](){}:,=.])""",
    re.VERBOSE,
)


def parse(text: str) -> Kernel:
    """The kernel written in `text`. Raises KernelError with the line and what was expected."""
    return _Parser(text).kernel()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str, int]] = []  # kind, text, line
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise KernelError(f"IR text, line {line}: {text[at]!r} is not part of the grammar")
            kind, word = str(match.lastgroup), match.group()
            if kind != "space":
                self.tokens.append((kind, word, line))
            line += word.count("\n")
            at = match.end()
        self.tokens.append(("end", "end of text", line))
        self.at = 0
        self.values: dict[int, Value] = {}

    # -- tokens -------------------------------------------------------------------------------
    def peek(self) -> str:
        return self.tokens[self.at][1]

    def error(self, expected: str) -> KernelError:
        _, word, line = self.tokens[self.at]
        return KernelError(f"IR text, line {line}: expected {expected}, got {word!r}")

    def take(self, word: str) -> None:
        if self.peek() != word:
            raise self.error(repr(word))
        self.at += 1

    def accept(self, word: str) -> bool:
        if self.peek() == word:
            self.at += 1
            return True
        return False

    def kind(self, kind: str, expected: str) -> str:
        if self.tokens[self.at][0] != kind:
            raise self.error(expected)
        self.at += 1
        return self.tokens[self.at - 1][1]

    def name(self, expected: str = "a name") -> str:
        return self.kind("name", expected)

    def integer(self) -> int:
        return int(self.kind("number", "a whole number"))

    def attr(self) -> int | float | str | bool:
        kind, word, _ = self.tokens[self.at]
        self.at += 1
        if kind == "string":
            return json.loads(word)
        if kind == "number":
            if word == "nan":
                return math.nan
            return int(word) if re.fullmatch(r"-?\d+", word) else float(word)
        if kind == "name":
            return {"true": True, "false": False}.get(word, word)
        self.at -= 1
        raise self.error("a number, a name or a string")

    # -- types and values ---------------------------------------------------------------------
    def dtype(self) -> ElemType:
        name = self.name("an element type")
        if name in DTYPES:
            return DTYPES[name]
        if name not in FORMATS:
            self.at -= 1
            raise self.error("an element type")
        layout = self.name("a layout") if self.accept(".") else ""
        return Format(name, FORMATS[name].group, layout)

    def names(self) -> tuple[str, ...]:
        """[a, b, …] or nothing."""
        out: list[str] = []
        if self.accept("["):
            while not self.accept("]"):
                out.append(self.name())
                if self.peek() != "]":
                    self.take(",")
        return tuple(out)

    def type(self) -> TileType:
        self.take(":")
        return TileType(self.dtype(), self.names())

    def number(self) -> int:
        return int(self.kind("value", "a value like %1")[1:])

    def value(self) -> Value:
        number = self.number()
        if number not in self.values:
            self.at -= 1
            raise self.error("a value defined before")
        return self.values[number]

    def define(self, number: int, type: TileType) -> Value:
        if number in self.values:
            raise self.error(f"%{number} to be defined once")
        self.values[number] = Value(number, type)
        return self.values[number]

    # -- kernel -------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        self.take("kernel")
        name = self.name()
        params: list[Param] = []
        self.take("(")
        while not self.accept(")"):
            params.append(self.param())
            if self.peek() != ")":
                self.take(",")
        consts: list[tuple[str, int | float | str]] = []
        statics: list[tuple[str, int]] = []
        aliases: list[tuple[str, str]] = []
        axes: list[Axis] = []
        while not self.accept("{"):
            word = self.name("`{`, const, static, alias or axis")
            if word == "const":
                consts.append((self.name(), self._is(self.attr)))
            elif word == "static":
                statics.append((self.name(), int(self._is(self.integer))))
            elif word == "alias":
                aliases.append((self.name(), self.name()))
            elif word == "axis":
                axes.append(self.axis())
            else:
                self.at -= 1
                raise self.error("`{`, const, static, alias or axis")
        body = self.body()
        self.kind("end", "the end of the text")
        return Kernel(
            name, tuple(params), tuple(axes), body, tuple(consts), tuple(statics), tuple(aliases)
        )

    def _is(self, read: Callable[[], T]) -> T:
        self.take("=")
        return read()

    def param(self) -> Param:
        name = self.name("a parameter")
        self.take(":")
        if self.accept("gm"):
            return Param(name, self.dtype(), self.names(), True)
        return Param(name, self.dtype(), (), False)

    def axis(self) -> Axis:
        name = self.name()
        self.take("of")
        dim = self.name()
        block = self.accept("block")
        cap = self.integer() if self.accept("cap") else None
        return Axis(name, dim, cap, block)

    def body(self) -> tuple[Stmt, ...]:
        """Statements up to `}` or `next`."""
        out: list[Stmt] = []
        while self.peek() not in ("}", "next"):
            out.append(self.stmt())
        if self.peek() == "}":
            self.at += 1
        return tuple(out)

    def stmt(self) -> Stmt:
        if self.accept("store"):
            param, index = self.name("a parameter"), self.index()
            self.take("=")
            return Store(param, index, self.value())
        if self.accept("expect"):
            return Expect(self.value(), json.loads(self.kind("string", "a text in quotes")))
        if self.accept("grid"):
            return self.loop("grid")
        if self.accept("loop"):
            return self.loop("loop")
        number = self.number()
        self.take("=")
        op = self.name("an op")
        if op == "load":
            param, index = self.name("a parameter"), self.index()
            space = self.name("a memory space") if self.accept("in") else ""
            return Load(self.define(number, self.type()), param, index, space)
        args: list[Value] = []
        if self.accept("("):
            while not self.accept(")"):
                args.append(self.value())
                if self.peek() != ")":
                    self.take(",")
        attrs: list[tuple[str, object]] = []
        while self.peek() != ":":
            attrs.append((self.name("an attribute or `:`"), self._is(self.attr)))
        return Op(self.define(number, self.type()), op, tuple(args), tuple(attrs))

    def index(self) -> tuple[Index, ...]:
        out: list[Index] = []
        self.take("[")
        while not self.accept("]"):
            if self.accept(":"):
                out.append(Whole(self.name("an axis")))
            elif self.tokens[self.at][0] == "value":
                out.append(self.value())
            else:
                out.append(Block(self.name("an axis, :axis or a value")))
            if self.peek() != "]":
                self.take(",")
        return tuple(out)

    def loop(self, kind: Literal["grid", "loop"]) -> Loop:
        variables = [self.variable()]
        while self.accept(","):
            variables.append(self.variable())
        stages = self.integer() if self.accept("stages") else 1
        carried: list[tuple[Value, Value]] = []
        if self.accept("carry"):
            while True:
                number = self.number()
                self.take("=")
                init = self.value()
                carried.append((init, self.define(number, self.type())))
                if not self.accept(","):
                    break
        self.take("{")
        body = self.body()
        carries: list[Carry] = []
        if carried:
            self.take("next")
            nexts = self.list(self.value)
            self.take("}")
            self.take("->")
            results = self.list(self.number)
            if not len(nexts) == len(results) == len(carried):
                raise self.error(f"{len(carried)} carried values")
            for (init, var), next_, number in zip(carried, nexts, results, strict=True):
                carries.append(Carry(init, var, next_, self.define(number, var.type)))
        return Loop(kind, tuple(variables), body, tuple(carries), stages)

    def list(self, read: Callable[[], T]) -> list[T]:
        """One or more, separated by commas."""
        out = [read()]
        while self.accept(","):
            out.append(read())
        return out

    def variable(self) -> LoopVar:
        name = self.name("a loop variable")
        number = self.number() if self.tokens[self.at][0] == "value" else None
        self.take("in")
        lo = self.value()
        self.take("..")
        hi = self.value()
        step = self.integer() if self.accept("step") else None
        dim = self.name("a dim") if self.accept("of") else ""
        var = None if number is None else self.define(number, TileType(DTYPES["i32"]))
        return LoopVar(name, lo, hi, step, var, dim)
