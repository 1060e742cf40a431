"""Sets of JSON values: for each type a list of records, each the values that fulfil all it says.

A value of a record's parts (an item, a property) lies in an expression: an int that `Algebra`
gives to a schema's place, a constant, or to "not", "and", "or" of expressions. What an expression
holds is worked out when it is asked for, so that schemas may refer to themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

ANY, NONE = 0, 1  # the expressions of all values and of none


T = TypeVar("T")
N = TypeVar("N", int, Fraction)


def both(a: tuple[T, ...], b: tuple[T, ...]) -> tuple[T, ...]:
    """What is in either, once, in order."""
    return tuple(dict.fromkeys((*a, *b)))


def least(a: N | None, b: N | None) -> N | None:
    return b if a is None else a if b is None else min(a, b)


@dataclass(frozen=True)
class Unit:
    """null, true or false: there is no more to say."""


@dataclass(frozen=True)
class Number:
    low: Fraction | None = None
    above: bool = False  # low itself is not in it
    high: Fraction | None = None
    below: bool = False
    whole: bool | None = None
    multiples: tuple[Fraction, ...] = ()

    def meet(self, o: Number) -> Number | None:
        if None not in (self.whole, o.whole) and self.whole != o.whole:
            return None
        made = self.met(o)
        return None if made.empty else made

    def met(self, o: Number) -> Number:
        """As `meet`, of two that agree on `whole`; it may be empty."""
        low, above = max(
            ((x.low, x.above) for x in (self, o) if x.low is not None), default=(None, False)
        )
        high, not_below = min(
            ((x.high, not x.below) for x in (self, o) if x.high is not None), default=(None, True)
        )
        whole = o.whole if self.whole is None else self.whole
        multiples = both(self.multiples, o.multiples)
        return Number(low, above, high, not not_below, whole, multiples)

    @property
    def empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.above or self.below))


@dataclass(frozen=True)
class String:
    """Strings whose JSON text matches every expression of `match` and none of `avoid`; lengths in
    characters. `text`: the only one."""

    match: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None
    text: str | None = None

    def meet(self, o: String) -> String | None:
        if self.text is not None and o.text is not None and self.text != o.text:
            return None
        text = o.text if self.text is None else self.text
        made = String(both(self.match, o.match), both(self.avoid, o.avoid),
                      max(self.least, o.least), least(self.most, o.most), text)  # fmt: skip
        if made.most is not None and made.least > made.most:
            return None
        return None if set(made.match) & set(made.avoid) else made


@dataclass(frozen=True)
class Contains:
    """Of the items from place `start` on, `least` to `most` lie in `inside`."""

    start: int
    inside: int
    least: int = 1
    most: int | None = None


@dataclass(frozen=True)
class Array:
    """`items`: (i, j, e), the items at places i to j (None: to the end) lie in e. Of what applied
    in place, the first `seen` items are evaluated (None: all), and those in `seen_in`."""

    items: tuple[tuple[int, int | None, int], ...] = ()
    least: int = 0
    most: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False
    seen: int | None = 0
    seen_in: tuple[int, ...] = ()

    def meet(self, o: Array) -> Array | None:
        seen = None if None in (self.seen, o.seen) else max(self.seen or 0, o.seen or 0)
        made = Array(both(self.items, o.items), max(self.least, o.least), least(self.most, o.most),
                     both(self.contains, o.contains), self.unique or o.unique,
                     seen, both(self.seen_in, o.seen_in))  # fmt: skip
        return None if made.most is not None and made.least > made.most else made

    def plain(self) -> Array:
        return replace(self, seen=0, seen_in=())


@dataclass(frozen=True)
class Keys:
    """A set of keys: "name" (one), "match" (an expression over its text), "in" (an expression of
    values), "any" of some sets, "not" in a set."""

    kind: str
    of: object

    def holds(self, key: str | None, atoms: frozenset[Keys]) -> bool:
        """Whether it has `key` (None: one that no schema names), which lies in `atoms` and in no
        other set of kind "match" or "in"."""
        match self.kind:
            case "name":
                return key == self.of
            case "any":
                return any(k.holds(key, atoms) for k in self.of)  # type: ignore[attr-defined]
            case "not":
                return not self.of.holds(key, atoms)  # type: ignore[attr-defined]
        return self in atoms

    def parts(self) -> tuple[Keys, ...]:
        """The sets of kind "name", "match" and "in" it is made of."""
        if self.kind == "any":
            return tuple(p for k in self.of for p in k.parts())  # type: ignore[attr-defined]
        return self.of.parts() if self.kind == "not" else (self,)  # type: ignore[attr-defined]


NO_KEYS = Keys("any", ())
ALL_KEYS = Keys("not", NO_KEYS)


def any_of(*sets: Keys) -> Keys:
    return ALL_KEYS if ALL_KEYS in sets else Keys("any", tuple(dict.fromkeys(sets)))


@dataclass(frozen=True)
class Object:
    """`rules`: the values of these keys lie in these expressions. `exists`: some key of the set
    has a value there. `seen`: the keys evaluated by what applied in place."""

    rules: tuple[tuple[Keys, int], ...] = ()
    required: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None
    exists: tuple[tuple[Keys, int], ...] = ()
    seen: Keys = NO_KEYS

    def meet(self, o: Object) -> Object | None:
        seen = self.seen if self.seen == o.seen else any_of(self.seen, o.seen)
        made = Object(both(self.rules, o.rules), both(self.required, o.required),
                      max(self.least, o.least), least(self.most, o.most),
                      both(self.exists, o.exists), seen)  # fmt: skip
        return None if made.most is not None and made.least > made.most else made

    def plain(self) -> Object:
        return replace(self, seen=NO_KEYS)


Record = Unit | Number | String | Array | Object
Shape = dict[str, tuple[Record, ...]]  # of each type
WHOLE: dict[str, Record] = {
    "null": Unit(), "false": Unit(), "true": Unit(), "number": Number(), "string": String(),
    "array": Array(), "object": Object(),
}  # fmt: skip
TOP: Shape = {kind: (record,) for kind, record in WHOLE.items()}
BOTTOM: Shape = dict.fromkeys(WHOLE, ())
