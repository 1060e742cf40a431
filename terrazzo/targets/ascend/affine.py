"""Affine maps as scalars of a core program: `affine_map<(d0)[s0] -> (d0 * 2 + s0 floordiv 4)>`."""

from __future__ import annotations

import re

from terrazzo.targets.ascend.mlir_text import MlirError
from terrazzo.targets.davinci.expr import Scalar, add, make, mul, sub

_TOKEN = re.compile(r"\s*(floordiv|ceildiv|mod|[ds]\d+|\d+|[-+*()])")


def apply_map(text: str, operands: list[Scalar]) -> list[Scalar]:
    """The map's results for dimensions and symbols in that order. Raises MlirError."""
    found = re.fullmatch(r"affine_map<\(([^)]*)\)(?:\[([^]]*)\])? -> \((.*)\)>", text.strip())
    if found is None:
        raise MlirError(f"not an affine map: {text}")
    names = [n.strip() for part in (found[1], found[2] or "") for n in part.split(",") if n.strip()]
    values = dict(zip(names, operands, strict=True))
    return [_Parser(piece, values).whole() for piece in _pieces(found[3])]


def _pieces(text: str) -> list[str]:
    """Between the commas outside brackets."""
    out, depth = [""], 0
    for c in text:
        depth += {"(": 1, ")": -1}.get(c, 0)
        if c == "," and depth == 0:
            out.append("")
        else:
            out[-1] += c
    return out


class _Parser:
    def __init__(self, text: str, values: dict[str, Scalar]) -> None:
        self.tokens = _TOKEN.findall(text)
        self.values = values
        self.at = 0
        self.text = text

    def whole(self) -> Scalar:
        value = self.sum()
        if self.at < len(self.tokens):
            raise MlirError(f"not an affine expression: {self.text}")
        return value

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1] if self.at <= len(self.tokens) else ""

    def sum(self) -> Scalar:
        value = self.product()
        while self.peek() in ("+", "-"):
            sign, right = self.take(), self.product()
            value = add(value, right) if sign == "+" else sub(value, right)
        return value

    def product(self) -> Scalar:
        value = self.atom()
        while self.peek() in ("*", "floordiv", "ceildiv", "mod"):
            op, right = self.take(), self.atom()
            if op == "*":
                value = mul(value, right)
            elif op == "ceildiv":
                value = make("div", add(value, sub(right, 1)), right)
            else:
                value = make("div" if op == "floordiv" else "mod", value, right)
        return value

    def atom(self) -> Scalar:
        token = self.take()
        if token == "(":
            value = self.sum()
            if self.take() != ")":
                raise MlirError(f"not an affine expression: {self.text}")
            return value
        if token == "-":
            return mul(self.atom(), -1)
        if token.isdigit():
            return int(token)
        if token not in self.values:
            raise MlirError(f"not an affine expression: {self.text}")
        return self.values[token]
