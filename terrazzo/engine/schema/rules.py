"""Rules of a Lark grammar under way, and what of them can be completed."""

from __future__ import annotations

from terrazzo.engine.schema.regex import NOTHING
from terrazzo.engine.schema.terminals import nothing
from terrazzo.errors import GrammarError

MOST = 20_000  # ways of all rules
# Between the parts of JSON: at most a line break with an indent. A grammar that allows any number
# of spaces lets a model write spaces for ever.
BREAK = r"(\n[ ]{0,16}|[ ]?)"
PUNCTUATION = {
    "LBRACE": rf"/\{{{BREAK}/", "RBRACE": rf"/{BREAK}\}}/", "LBRACKET": rf"/\[{BREAK}/",
    "RBRACKET": rf"/{BREAK}\]/", "COMMA": rf"/,{BREAK}/", "COLON": "/:[ ]?/",
}  # fmt: skip


class Rules:
    """A way of a rule is a list of names of rules, names of terminals and literal pieces."""

    def __init__(self) -> None:
        self._ways: dict[str, list[list[str]]] = {}
        self._terminals: dict[str, str] = {}
        self._count = 0

    def add(self, name: str, way: list[str]) -> None:
        """One more way to write a rule. Raises GrammarError if there are too many."""
        self._ways.setdefault(name, []).append(way)
        self._count += 1
        if self._count > MOST:
            raise GrammarError(f"it takes more than {MOST:,} rules")

    def terminal(self, text: str) -> str:
        """The name of a terminal."""
        return self._terminals.setdefault(text, f"T{len(self._terminals)}")

    def text(self, start: str) -> str:
        """The grammar, without what no text completes: a model that began it could not go on.
        Raises GrammarError if nothing can be completed."""
        doubtful = [t for t in self._terminals if "&" in t or NOTHING in t]
        empty = {self._terminals[t] for t in doubtful if nothing(t)}
        lasting = self._lasting(empty)
        if start not in lasting:
            raise GrammarError("no value fulfils it")
        reached, ahead = {start}, [start]
        lines = [f"start: {start}"]
        used: set[str] = set()
        while ahead:
            name = ahead.pop()
            ways = [w for w in self._ways[name] if self._whole(w, lasting, empty)]
            lines += [f"{name}: " + "\n  | ".join(" ".join(way) for way in ways)]
            for symbol in (_symbol(s) for way in ways for s in way):
                used.add(symbol)
                if symbol in self._ways and symbol not in reached:
                    reached.add(symbol)
                    ahead.append(symbol)
        lines += [f"{name}: {text}" for text, name in self._terminals.items() if name in used]
        lines += [f"{name}: {text}" for name, text in PUNCTUATION.items() if name in used]
        return "\n".join(lines) + "\n"

    def _lasting(self, empty: set[str]) -> set[str]:
        """The rules that some text completes."""
        users: dict[str, list[str]] = {}
        for name, ways in self._ways.items():
            for way in ways:
                for s in way:
                    users.setdefault(_symbol(s), []).append(name)
        lasting: set[str] = set()
        ahead = list(self._ways)
        while ahead:
            name = ahead.pop()
            if name in lasting or not any(
                self._whole(way, lasting, empty) for way in self._ways[name]
            ):
                continue
            lasting.add(name)
            ahead += users.get(name, [])
        return lasting

    def _whole(self, way: list[str], lasting: set[str], empty: set[str]) -> bool:
        return all(
            s in lasting or (s[0] != "v" and s not in empty) for s in (_symbol(p) for p in way)
        )


def _symbol(piece: str) -> str:
    """The rule or terminal that a piece of a way names."""
    return piece[1 : piece.index(")")] if piece[0] == "(" else piece
