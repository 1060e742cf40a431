"""Rules of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from terrazzo.engine.schema.sets import Array, Contains
from terrazzo.errors import GrammarError

if TYPE_CHECKING:
    from terrazzo.engine.schema.write import Writer

LISTED = 64  # places told apart
CHOICES = 8  # values of a list without repeats


class Items:
    """An array is read from left to right: a rule stands for all beginnings after which the same
    may follow. Those differ in how many items there are, and in how many of them lie in what the
    array has to contain."""

    def __init__(self, writer: Writer, record: Array, name: str) -> None:
        self.writer, self.algebra, self.name = writer, writer.algebra, name
        self.record = self._without_repeats(record) if record.unique else record
        self._known: set[tuple[int, ...]] = set()

    def write(self, rule: str) -> None:
        """Adds the ways to write the array to a rule."""
        r = self.record
        places = [j for _, j, _ in r.items if j is not None] + [i for i, _, _ in r.items]
        listed = max([0, *places, *(c.start for c in r.contains)])
        if r.contains:
            listed = max(listed, r.least, r.most or 0)
        if listed > LISTED:
            raise GrammarError(f"an array has more than {LISTED} places to tell apart")
        if r.contains:
            self._counted(rule, listed)
        else:
            self._plain(rule, listed)

    def _plain(self, rule: str, listed: int) -> None:
        """The first `listed` items one by one, then any number of the same."""
        add, r = self.writer.rules.add, self.record
        for n in range(listed + 1):
            if n:
                item = self.writer.value(self.algebra.item(r, n - 1))
                add(
                    f"{self.name}i{n}",
                    [*([f"{self.name}i{n - 1}", "COMMA"] if n > 1 else []), item],
                )
            if r.least <= n and (r.most is None or n <= r.most):
                begun = [f"{self.name}i{n}"] if n else []
                add(rule, ["LBRACKET", *begun, "RBRACKET"])
        low = max(r.least - listed, 1)
        high = None if r.most is None else r.most - listed
        if high is not None and high < low:
            return
        item = self.writer.value(self.algebra.item(r, listed))
        begun = [f"{self.name}i{listed}", "COMMA"] if listed else []
        last = "" if high is None else high - 1
        add(f"{self.name}m", ["COMMA", item])
        times = "*" if (low, high) == (1, None) else f"{{{low - 1},{last}}}"
        more = [] if high == 1 else [f"({self.name}m){times}"]
        # The piece may stand for no text, so that the rule is named once more.
        add(rule, ["LBRACKET", *begun, item, *more, "RBRACKET"])

    def _counted(self, rule: str, listed: int) -> None:
        first = (0, *(0 for _ in self.record.contains))
        self._follow(first, listed)
        for state in sorted(self._known):
            n, counts = state[0], state[1:]
            r = self.record
            enough = all(k >= c.least for k, c in zip(counts, r.contains, strict=True))
            if enough and r.least <= n and (r.most is None or n <= r.most):
                begun = [self._begun(state)] if n else []
                self.writer.rules.add(rule, ["LBRACKET", *begun, "RBRACKET"])

    def _follow(self, first: tuple[int, ...], listed: int) -> None:
        """Writes every state's rule: the states that come before it, and an item."""
        r = self.record
        ahead = [first]
        self._known.add(first)
        while ahead:
            state = ahead.pop()
            n, counts = state[0], state[1:]
            if r.most is not None and n >= r.most:
                continue
            for e, found in self._ways(n, counts):
                more = tuple(
                    min(k + f, max(c.least, c.most or 0))
                    for k, f, c in zip(counts, found, r.contains, strict=True)
                )
                to = (min(n + 1, listed + 1), *more)
                before = [self._begun(state), "COMMA"] if n else []
                self.writer.rules.add(self._begun(to), [*before, self.writer.value(e)])
                if to not in self._known:
                    self._known.add(to)
                    ahead.append(to)

    def _ways(self, n: int, counts: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(what an item at place n lies in, for each Contains whether it counts), as many as
        there are."""
        a = self.algebra
        ways = [(a.item(self.record, n), ())]
        for k, c in zip(counts, self.record.contains, strict=True):
            grown = []
            for e, found in ways:
                if n < c.start:
                    grown.append((e, (*found, 0)))
                    continue
                if c.most is None or k < c.most:
                    grown.append((a.all_of((e, c.inside)), (*found, 1)))
                outside = e if c.most is None else a.all_of((e, a.but(c.inside)))
                grown.append((outside, (*found, 0)))
            ways = [(e, found) for e, found in grown if not a.empty(e)]
        yield from ways

    def _begun(self, state: tuple[int, ...]) -> str:
        return f"{self.name}s{'x'.join(map(str, state))}"

    def _without_repeats(self, record: Array) -> Array:
        """No item twice: where there are few values, each of them at most once."""
        if record.most is not None and record.most < 2:
            return replace(record, unique=False)
        a = self.algebra
        values: dict[int, None] = {}
        places = {i for i, _, _ in record.items} | {j for _, j, _ in record.items if j is not None}
        for place in sorted(places | {0}):
            if record.most is not None and place >= record.most:
                continue
            choices = a.choices(a.item(record, place))
            if choices is None:
                raise GrammarError("uniqueItems needs items that are one of a few values")
            values |= dict.fromkeys(choices)
        if len(values) > CHOICES:
            raise GrammarError(f"uniqueItems is enforced up to {CHOICES} values, not {len(values)}")
        once = tuple(Contains(0, v, 0, 1) for v in values)
        return replace(record, unique=False, contains=(*record.contains, *once))
