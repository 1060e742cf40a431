"""The process that compiles grammars to see whether they can be enforced: a line [kind, text] in,
a line [Lark text, reason why not] out, either may be "". It ends with its input."""

from __future__ import annotations

import json
import resource
import sys

MEMORY = 1 << 30
MOST_TEXT = 1 << 20  # characters of a grammar
MOST_LARK = 1 << 21  # of one made from a schema: as JSON, with every second one escaped, it fits


def checked(lib: object, tokenizer: object, kind: str, text: str) -> tuple[str, str]:
    """(a schema as Lark, why the grammar cannot be enforced: "" if it can)."""
    from terrazzo.engine.grammar import compiled, lark_text
    from terrazzo.engine.request import Grammar
    from terrazzo.errors import GrammarError

    if len(text) > MOST_TEXT:
        size = f"{len(text):,} characters, at most {MOST_TEXT:,} are read"
        return "", f"the {kind} cannot be enforced: it has {size}"
    try:
        grammar = Grammar(kind, text)  # type: ignore[arg-type]
        if kind in ("json_schema", "json_object"):
            grammar = Grammar("lark", lark_text(grammar))
            if len(grammar.text) > MOST_LARK:
                return "", f"the {kind} cannot be enforced: it takes too large a grammar"
        compiled(lib, tokenizer, grammar)
        return (grammar.text if grammar.kind == "lark" else ""), ""
    except GrammarError as error:
        return "", str(error)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import llguidance

    tokenizer = llguidance.LLTokenizer("byte")
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        kind, text = json.loads(line)
        print(json.dumps(checked(llguidance, tokenizer, kind, text)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
