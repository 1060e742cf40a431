"""The process that compiles grammars to see whether they can be enforced: a line [kind, text] in,
a line with the reason why not, or "", out. It ends with its input."""

from __future__ import annotations

import json
import resource
import sys

MEMORY = 1 << 30
MOST_TEXT = 1 << 20  # characters of a grammar


def reason(lib: object, tokenizer: object, kind: str, text: str) -> str:
    """Why the grammar cannot be enforced; "" if it can."""
    from terrazzo.engine.grammar import compiled
    from terrazzo.engine.request import Grammar
    from terrazzo.errors import GrammarError

    if len(text) > MOST_TEXT:
        size = f"{len(text):,} characters, at most {MOST_TEXT:,} are read"
        return f"the {kind} cannot be enforced: it has {size}"
    try:
        compiled(lib, tokenizer, Grammar(kind, text))  # type: ignore[arg-type]
    except GrammarError as error:
        return str(error)
    return ""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    import llguidance

    tokenizer = llguidance.LLTokenizer("byte")
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        kind, text = json.loads(line)
        print(json.dumps(reason(llguidance, tokenizer, kind, text)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
