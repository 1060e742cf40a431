"""Terminals of strings and numbers in Lark, and what llguidance makes of them."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache, lru_cache
from math import ceil, floor, gcd, lcm
from typing import Any

from terrazzo.engine.schema.regex import STRING, length, literal
from terrazzo.engine.schema.sets import Number, String
from terrazzo.errors import GrammarError

MOST_STEP = 100_000  # each digit depends on the remainder so far: that many states, 25 MB


@cache
def _library() -> tuple[Any, Any]:
    import llguidance  # takes a while: only those who ask for a grammar wait

    return llguidance.LLMatcher, llguidance.LLTokenizer("byte")


@lru_cache(maxsize=256)
def _matcher(terminal: str) -> Any:
    matcher, tokenizer = _library()
    made = matcher(tokenizer, f"start: A\nA: {terminal}\n", log_level=0)
    if made.is_error():
        raise GrammarError(f"it has an expression too large: {made.get_error().splitlines()[0]}")
    return made


@lru_cache(maxsize=4096)
def matches(expression: str, text: str) -> bool:
    """Whether an expression over the JSON text of strings matches that of `text`."""
    found = _matcher(f"/{expression}/")
    found.reset()
    ids = list(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
    return found.try_consume_tokens(ids) == len(ids) and found.is_accepting()


@lru_cache(maxsize=4096)
def nothing(terminal: str) -> bool:
    """Whether a terminal matches no text."""
    found = _matcher(terminal)
    found.reset()
    return not found.is_accepting() and not any(found.compute_bitmask()[:32])


def string(record: String) -> str:
    """The terminal of these strings."""
    if record.text is not None:
        return f"/{literal(record.text)}/"
    parts = [f"/{x}/" for x in record.match]
    if record.least or record.most is not None:
        parts.append(f"/{length(record.least, record.most)}/")
    return " & ".join([*(parts or [f"/{STRING}/"]), *(f"~/{x}/" for x in record.avoid)])


def strings(records: tuple[Any, ...]) -> str:
    """The terminal of the strings of any of these records. There is one at least."""
    return " | ".join(dict.fromkeys(string(r) for r in records))


def number(record: Number) -> str | None:
    """What stands for these numbers in a rule; None if there is none."""
    low, high, multiples = record.low, record.high, record.multiples
    if low is not None and low == high:
        fits = all((low / m).denominator == 1 for m in multiples)
        if record.whole is not None and record.whole != (low.denominator == 1):
            fits = False
        return f"/{_decimal(low).replace('.', '[.]')}/" if fits else None
    if record.whole is False:
        if low is not None or high is not None or multiples:
            raise GrammarError("numbers between bounds that are no integers cannot be told")
        return r"/-?(0|[1-9][0-9]*)[.][0-9]*[1-9][0-9]*/"
    step = multiples[0] if multiples else None
    for m in multiples[1:]:
        assert step is not None
        step = Fraction(lcm(step.numerator, m.numerator), gcd(step.denominator, m.denominator))
    if record.whole and step is not None:
        step = Fraction(step.numerator)
    if step is not None or record.whole:
        size = step or Fraction(1)
        first = None if low is None else ceil(low / size) * size
        last = None if high is None else floor(high / size) * size
        if first is not None and record.above and first == low:
            first += size
        if last is not None and record.below and last == high:
            last -= size
        if first is not None and last is not None:
            if first > last:
                return None
            if first == last:
                return number(Number(low=first, high=first))
    schema: dict[str, Any] = {"type": "integer" if record.whole else "number"}
    if low is not None:
        schema["exclusiveMinimum" if record.above else "minimum"] = low
    if high is not None:
        schema["exclusiveMaximum" if record.below else "maximum"] = high
    if step is not None:
        schema["multipleOf"] = step
        if int(_decimal(step).replace(".", "")) > MOST_STEP:
            raise GrammarError(f"multipleOf {_decimal(step)} has too many digits")
    text = ", ".join(
        f'"{k}": {_decimal(v) if isinstance(v, Fraction) else json.dumps(v)}'
        for k, v in schema.items()
    )
    return f'%json {{{text}, "x-guidance": {{"whitespace_flexible": false}}}}'


def _decimal(x: Fraction) -> str:
    """The shortest decimal number. Every number of a schema is one, and so are their multiples."""
    places, scaled = 0, x
    while scaled.denominator != 1:
        places, scaled = places + 1, scaled * 10
    digits = str(abs(scaled.numerator)).rjust(places + 1, "0")
    text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"-{text}" if x < 0 else text
