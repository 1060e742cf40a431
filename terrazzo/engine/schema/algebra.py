"""Expressions of sets of JSON values, and what each holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from terrazzo.engine.schema.negate import negated
from terrazzo.engine.schema.sets import (
    ANY,
    BOTTOM,
    NONE,
    TOP,
    WHOLE,
    Array,
    Keys,
    Number,
    Object,
    Record,
    Shape,
    String,
    Unit,
)
from terrazzo.engine.schema.terminals import matches
from terrazzo.errors import GrammarError

WORK = 20_000  # meetings of records: about half a second
TYPES = tuple(WHOLE)
Records = tuple[Record, ...]


class UnfinishedError(GrammarError):
    """What a place holds is asked for while it is worked out."""


class Algebra:
    """Numbers expressions and works out what they hold. `read` gives the shape of a place."""

    def __init__(self, read: Callable[[Any], Shape]) -> None:
        self._read = read
        self._keys: list[tuple[Any, ...]] = [("and", ()), ("or", ())]
        self._numbers = {key: n for n, key in enumerate(self._keys)}
        self._shapes: dict[int, Shape] = {ANY: TOP, NONE: BOTTOM}
        self._empty: dict[int, bool] = {ANY: False, NONE: True}
        self._work = 0

    # -- expressions

    def _number(self, *key: Any) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return self._numbers[key]

    def place(self, key: Any) -> int:
        """All that the schema at a place holds; `key` is what `read` is given."""
        return self._number("place", key)

    def constant(self, value: Any) -> int:
        """One value, as json.loads gives it (numbers exact), or as `frozen` does."""
        return self._number("constant", frozen(value))

    def all_of(self, parts: Iterable[int]) -> int:
        return self._join("and", parts, ANY, NONE)

    def any_of(self, parts: Iterable[int]) -> int:
        return self._join("or", parts, NONE, ANY)

    def _join(self, kind: str, parts: Iterable[int], nothing: int, all_: int) -> int:
        flat: set[int] = set()
        for p in parts:
            flat |= set(self._keys[p][1]) if self._keys[p][0] == kind else {p}
        if all_ in flat or any(self.but(p) in flat for p in flat):
            return all_
        flat.discard(nothing)
        return flat.pop() if len(flat) == 1 else self._number(kind, tuple(sorted(flat)))

    def but(self, e: int) -> int:
        """All values that are not in e."""
        if e in (ANY, NONE):
            return NONE if e == ANY else ANY
        key = self._keys[e]
        return key[1] if key[0] == "not" else self._number("not", e)

    # -- what they hold

    def shape(self, e: int) -> Shape:
        if e not in self._shapes:
            kind, of = self._keys[e]
            if kind == "place":
                made = {t: tuple(_plain(r) for r in rs) for t, rs in self._read(of).items()}
            elif kind == "constant":
                made = self._constant_shape(*of)
            elif kind == "not":
                made = self.negate(self.shape(of))
            else:
                made = TOP if kind == "and" else BOTTOM
                for p in of:
                    made = (self.meet if kind == "and" else self.join)(made, self.shape(p))
            self._shapes[e] = made
        return self._shapes[e]

    def _constant_shape(self, kind: str, value: Any) -> Shape:
        record: Record = Unit()
        if kind == "number":
            record = Number(low=value, high=value)
        elif kind == "string":
            record = String(text=value)
        elif kind == "array":
            items = tuple((i, i + 1, self._number("constant", v)) for i, v in enumerate(value))
            record = Array(items, least=len(value), most=len(value))
        elif kind == "object":
            rules = [(Keys("name", k), self._number("constant", v)) for k, v in value]
            others = Keys("not", Keys("any", tuple(k for k, _ in rules)))
            record = Object((*rules, (others, NONE)), required=tuple(k for k, _ in value))
        return BOTTOM | {kind: (record,)}

    def join(self, a: Shape, b: Shape) -> Shape:
        return {t: tuple(dict.fromkeys((*a[t], *b[t]))) for t in TYPES}

    def meet(self, a: Shape, b: Shape) -> Shape:
        return {t: self._meet(a[t], b[t], WHOLE[t]) for t in TYPES}

    def _meet(self, a: Records, b: Records, top: Record) -> Records:
        if a == (top,):
            return b
        if b == (top,):
            return a
        self._work += len(a) * len(b)
        if self._work > WORK:
            raise GrammarError("it takes too many cases", "say less with not, oneOf and if")
        made = (x if x == y else x.meet(y) for x in a for y in b)  # type: ignore[union-attr]
        kept = dict.fromkeys(r for r in made if r is not None and not self.barren(r))
        return (top,) if top in kept else tuple(kept)

    def negate(self, shape: Shape) -> Shape:
        out: dict[str, tuple[Record, ...]] = {}
        for kind in TYPES:
            left: tuple[Record, ...] = (WHOLE[kind],)
            for record in shape[kind]:
                rest = tuple(r for r in negated(record, self.but) if not self.barren(r))
                left = self._meet(left, rest, WHOLE[kind])
            out[kind] = left
        return out

    # -- whether there is a value at all: False where that is not known

    def empty(self, e: int) -> bool:
        """Whether no value is in e, as far as its own words tell."""
        if e not in self._empty:
            self._empty[e] = False  # what holds itself
            try:
                self._empty[e] = not any(self.shape(e).values())
            except UnfinishedError:
                del self._empty[e]
                return False
        return self._empty[e]

    def barren(self, record: Record) -> bool:
        """Whether the record holds no value, as far as its own words tell."""
        if isinstance(record, Number):
            return record.empty
        if isinstance(record, Unit):
            return False
        if record.most is not None and record.least > record.most:
            return True
        if isinstance(record, Array):
            return any(self.empty(self.item(record, i)) for i in range(min(record.least, 8)))
        if isinstance(record, Object):
            return any(self.empty(self.value(record, key)) for key in record.required)
        if record.text is None:
            return False
        size, text = len(record.text), record.text
        if size < record.least or (record.most is not None and size > record.most):
            return True
        return any(not matches(x, text) for x in record.match) or any(
            matches(x, text) for x in record.avoid
        )

    def choices(self, e: int) -> list[int] | None:
        """The constants in e, if there are no other values."""
        found: list[int] = []
        for kind, records in self.shape(e).items():
            for r in records:
                if isinstance(r, Unit):
                    found.append(self._number("constant", (kind, None)))
                elif isinstance(r, Number) and r.low is not None and r.low == r.high:
                    found.append(self._number("constant", (kind, r.low)))
                elif isinstance(r, String) and r.text is not None:
                    found.append(self._number("constant", (kind, r.text)))
                else:
                    return None
        return found

    def item(self, a: Array, place: int) -> int:
        """What an item at a place lies in."""
        return self.all_of(e for i, j, e in a.items if i <= place and (j is None or place < j))

    def value(self, o: Object, key: str) -> int:
        """What the value of a key lies in."""
        atoms = frozenset(a for k, _ in o.rules for a in k.parts() if self.in_atom(key, a))
        return self.all_of(e for keys, e in o.rules if keys.holds(key, atoms))

    def in_atom(self, key: str, atom: Keys) -> bool:
        """Whether a key lies in a set of kind "match" or "in"."""
        if atom.kind == "name":
            return False
        named = self.constant(key)
        if atom.kind == "in":
            return not self.empty(self.all_of((named, int(str(atom.of)))))
        return matches(str(atom.of), key)


def _plain(record: Record) -> Record:
    return record.plain() if isinstance(record, Array | Object) else record


def frozen(value: Any) -> tuple[str, Any]:
    """A JSON value as (type, value) whose parts are so too: equal if the values are."""
    if value is None:
        return "null", None
    if isinstance(value, bool):
        return str(value).lower(), None
    if isinstance(value, str):
        return "string", value
    if isinstance(value, list):
        return "array", tuple(frozen(v) for v in value)
    if isinstance(value, dict):
        return "object", tuple((k, frozen(v)) for k, v in value.items())
    return "number", Fraction(value)
