"""A schema as a Lark grammar for llguidance."""

from __future__ import annotations

import json
from decimal import Decimal

from terrazzo.engine.schema.items import Items
from terrazzo.engine.schema.members import Members
from terrazzo.engine.schema.read import Reader
from terrazzo.engine.schema.rules import Rules
from terrazzo.engine.schema.sets import Array, Object
from terrazzo.engine.schema.terminals import number, strings
from terrazzo.errors import GrammarError

MOST_EXPONENT = 400  # of a number, whose digits all are written


def lark(text: str) -> str:
    """The grammar of the JSON values that the schema `text` holds. Raises ValueError if it is no
    JSON, GrammarError, with the reason, if the values cannot be told."""
    schema = json.loads(text, parse_float=_exact, parse_constant=_exact)
    rules = Rules()
    try:
        reader = Reader(schema)
        writer = Writer(reader, rules)
        start = writer.value(reader.expression(schema, ()))
        while writer.ahead:
            writer.write(writer.ahead.pop())
    except RecursionError:
        raise GrammarError("it is nested too deep") from None
    return rules.text(start)


def _exact(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite() or abs(number.adjusted()) > MOST_EXPONENT:
        raise GrammarError(f"the number {text[:40]} is too large or too small")
    return number


class Writer:
    """Writes one rule for each expression that is asked for."""

    def __init__(self, reader: Reader, rules: Rules) -> None:
        self.algebra, self.rules = reader.algebra, rules
        self.ahead: list[int] = []
        self._known: set[int] = set()

    def value(self, e: int) -> str:
        """The name of the rule for the values in e, which will be written."""
        if e not in self._known:
            self._known.add(e)
            self.ahead.append(e)
        return f"v{e}"

    def write(self, e: int) -> None:
        name = self.value(e)
        shape = self.algebra.shape(e)
        for kind in ("null", "false", "true"):
            if shape[kind]:
                self.rules.add(name, [f'"{kind}"'])
        for record in shape["number"]:
            term = number(record)  # type: ignore[arg-type]
            if term is not None:
                self.rules.add(name, [self.rules.terminal(term) if term[0] == "/" else term])
        if shape["string"]:
            self.rules.add(name, [self.rules.terminal(strings(shape["string"]))])
        for i, record in enumerate(shape["array"]):
            assert isinstance(record, Array)
            Items(self, record, f"{name}a{i}").write(name)
        for i, record in enumerate(shape["object"]):
            assert isinstance(record, Object)
            Members(self, record, f"{name}o{i}").write(name)
