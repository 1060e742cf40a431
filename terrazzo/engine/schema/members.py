"""Rules of objects."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from terrazzo.engine.schema.regex import STRING, literal
from terrazzo.engine.schema.sets import Keys, Object
from terrazzo.engine.schema.terminals import strings
from terrazzo.errors import GrammarError

if TYPE_CHECKING:
    from terrazzo.engine.schema.write import Writer

ATOMS = 6  # patterns and sets of keys, each of which a key may match or not
COUNTED = 64

State = tuple[int, int, int]  # named keys passed, members counted, bits of `exists` found


class Members:
    """The keys with names come first, in their order, then others. A rule stands for all
    beginnings after which the same may follow."""

    def __init__(self, writer: Writer, record: Object, name: str) -> None:
        self.writer, self.algebra, self.record, self.name = writer, writer.algebra, record, name
        every = [k for k, _ in (*record.rules, *record.exists)]
        parts = dict.fromkeys(p for k in every for p in k.parts())
        self.names = list(dict.fromkeys(
            [str(p.of) for p in parts if p.kind == "name"] + list(record.required)
        ))  # fmt: skip
        self.atoms = [p for p in parts if p.kind != "name"]
        if len(self.atoms) > ATOMS:
            raise GrammarError(
                f"the keys of an object match or do not match more than {ATOMS} sets"
            )
        most = record.most
        self.cap = max(1, record.least, 0 if most is None else most)
        if self.cap > COUNTED:
            raise GrammarError(f"an object's members are counted up to {COUNTED}")
        self.full = (1 << len(record.exists)) - 1

    def write(self, rule: str) -> None:
        """Adds the ways to write the object to a rule."""
        states = {(0, 0, 0)}
        for i, key in enumerate(self.names):
            states = self._named(i, key, states)
        states = self._others(states)
        for _, count, bits in sorted(states):
            if count >= self.record.least and bits == self.full:
                begun = [self._begun((len(self.names) + 1, count, bits))] if count else []
                self.writer.rules.add(rule, ["LBRACE", *begun, "RBRACE"])

    def _named(self, i: int, key: str, states: set[State]) -> set[State]:
        """The states after a key with a name, with or without it, from those before."""
        atoms = frozenset(a for a in self.atoms if self.algebra.in_atom(key, a))
        e = self._value(key, atoms)
        ways = self._found(key, atoms, e)
        out: set[State] = set()
        for state in sorted(states):
            if key not in self.record.required:
                self._pass(state, i + 1, out)
            for inside, bits in ways:
                pair = [self.writer.rules.terminal(f"/{literal(key)}/"), "COLON",
                        self.writer.value(inside)]  # fmt: skip
                self._add(state, i + 1, bits, pair, out)
        return out

    def _others(self, states: set[State]) -> set[State]:
        """The states after any number of other keys."""
        last = len(self.names) + 1
        out: set[State] = set()
        for state in sorted(states):
            self._pass(state, last, out)
        pairs = []
        for atoms in self._subsets():
            e = self._value(None, atoms)
            for inside, bits in self._found(None, atoms, e):
                key = self._key(atoms)
                if key is not None:
                    pairs.append((bits, [self.writer.rules.terminal(key), "COLON",
                                         self.writer.value(inside)]))  # fmt: skip
        ahead = sorted(out)
        while ahead:
            state = ahead.pop()
            for bits, pair in pairs:
                found: set[State] = set()
                self._add(state, last, bits, pair, found)
                ahead += found - out
                out |= found
        return out

    def _subsets(self) -> list[frozenset[Keys]]:
        sizes = range(len(self.atoms) + 1)
        return [frozenset(c) for n in sizes for c in combinations(self.atoms, n)]

    def _value(self, key: str | None, atoms: frozenset[Keys]) -> int:
        return self.algebra.all_of(e for k, e in self.record.rules if k.holds(key, atoms))

    def _found(self, key: str | None, atoms: frozenset[Keys], e: int) -> list[tuple[int, int]]:
        """(what the value lies in, which of `exists` it is)."""
        ways = [(e, 0)]
        for n, (keys, inside) in enumerate(self.record.exists):
            if keys.holds(key, atoms):
                ways += [(self.algebra.all_of((x, inside)), bits | 1 << n) for x, bits in ways]
        return [(x, bits) for x, bits in dict.fromkeys(ways) if not self.algebra.empty(x)]

    def _key(self, atoms: frozenset[Keys]) -> str | None:
        """The terminal of the keys without a name that lie in `atoms` and in no other."""
        parts = []
        for atom in self.atoms:
            if atom.kind == "match":
                text = f"/{atom.of}/"
            else:
                records = self.algebra.shape(int(str(atom.of)))["string"]
                text = f"({strings(records)})" if records else ""
            if atom in atoms:
                if not text:
                    return None
                parts.append(text)
            elif text:
                parts.append(f"~{text}")
        named = [f"~/{literal(key)}/" for key in self.names]
        return " & ".join([f"/{STRING}/", *parts, *named])

    def _pass(self, state: State, i: int, out: set[State]) -> None:
        to = (i, *state[1:])
        if state[1]:
            self.writer.rules.add(self._begun(to), [self._begun(state)])
        out.add(to)

    def _add(self, state: State, i: int, bits: int, pair: list[str], out: set[State]) -> None:
        _, count, found = state
        most = self.record.most
        if most is not None and count >= most:
            return
        to = (i, min(count + 1, self.cap), found | bits)
        before = [self._begun(state), "COMMA"] if count else []
        self.writer.rules.add(self._begun(to), [*before, *pair])
        out.add(to)

    def _begun(self, state: State) -> str:
        return f"{self.name}s{'x'.join(map(str, state))}"
