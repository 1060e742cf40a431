"""The values of a type that a record does not hold: those that break one of its statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from terrazzo.engine.schema.regex import literal
from terrazzo.engine.schema.sets import (
    NONE,
    Array,
    Contains,
    Keys,
    Number,
    Object,
    Record,
    String,
    Unit,
)
from terrazzo.errors import GrammarError

But = Callable[[int], int]  # the expression of all values that are not in another


def negated(record: Record, but: But) -> list[Record]:
    """Records that hold together what `record` does not. Raises GrammarError where that cannot be
    said."""
    match record:
        case Unit():
            return []
        case Number():
            return list(_number(record))
        case String():
            return list(_string(record))
        case Array():
            return list(_array(record, but))
    return list(_object(record, but))


def _number(n: Number) -> list[Number]:
    if n.multiples:
        raise GrammarError("numbers that are no multiples of another cannot be told")
    out = []
    if n.low is not None:
        out.append(Number(high=n.low, below=not n.above))
    if n.high is not None:
        out.append(Number(low=n.high, above=not n.below))
    if n.whole is not None:
        out.append(Number(whole=not n.whole))
    return out


def _string(s: String) -> list[String]:
    out = [String(avoid=(x,)) for x in s.match]
    out += [String(match=(x,)) for x in s.avoid]
    if s.least:
        out.append(String(most=s.least - 1))
    if s.most is not None:
        out.append(String(least=s.most + 1))
    if s.text is not None:
        out.append(String(avoid=(literal(s.text),)))
    return out


def _array(a: Array, but: But) -> list[Array]:
    if a.unique:
        raise GrammarError("arrays with two equal items cannot be told from the others")
    out = []
    for start, end, e in a.items:
        if end == start + 1:
            out.append(Array(((start, end, but(e)),), least=start + 1))
        else:
            assert end is None
            out.append(Array(contains=(Contains(start, but(e)),)))
    if a.least:
        out.append(Array(most=a.least - 1))
    if a.most is not None:
        out.append(Array(least=a.most + 1))
    for c in a.contains:
        if c.least:
            out.append(Array(contains=(replace(c, least=0, most=c.least - 1),)))
        if c.most is not None:
            out.append(Array(contains=(replace(c, least=c.most + 1, most=None),)))
    return out


def _object(o: Object, but: But) -> list[Object]:
    out = []
    for keys, e in o.rules:
        if keys.kind == "name":
            out.append(Object(((keys, but(e)),), required=(str(keys.of),)))
        else:
            out.append(Object(exists=((keys, but(e)),), least=1))
    out += [Object(((Keys("name", key), NONE),)) for key in o.required]
    if o.least:
        out.append(Object(most=o.least - 1))
    if o.most is not None:
        out.append(Object(least=o.most + 1))
    return out + [Object(((keys, but(e)),)) for keys, e in o.exists]
