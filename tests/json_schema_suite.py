"""The JSON-Schema-Test-Suite against the matcher of structured answers.

    python tests/json_schema_suite.py FOLDER

FOLDER holds the suite's files of a draft (json/tests/draft2020-12 in the source distribution of
the package `jsonschema`). Every instance is written as compact JSON, with its keys in every order,
and given to the matcher byte by byte. A schema is refused, or right (every valid instance accepted
in some order of its keys, every other one rejected in all), or narrow (some valid spelling
rejected), or wrong (an instance that is not valid accepted). The exit code is 1 if one is wrong.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from schema_tools import Accepts

from terrazzo.errors import GrammarError


def judge(schema: Any, tests: list[dict[str, Any]]) -> tuple[str, str]:
    """What the schema is, and why."""
    try:
        accepts = Accepts(schema)
    except GrammarError as error:
        return "refused", str(error)
    missed = {True: "", False: ""}
    for test in tests:
        accepted = accepts(test["data"])
        if accepted != test["valid"]:
            missed[test["valid"]] = test["description"]
    if missed[False]:
        return "wrong", f"accepts {missed[False]!r}"
    return ("narrow", f"rejects {missed[True]!r}") if missed[True] else ("right", "")


def main() -> int:
    counts: Counter[str] = Counter()
    for path in sorted(Path(sys.argv[1]).glob("*.json")):
        for case in json.loads(path.read_text()):
            kind, why = judge(case["schema"], case["tests"])
            counts[kind] += 1
            if kind != "right":
                print(f"{kind:8}{path.stem}: {case['description']}: {why[:100]}")
    print(f"{counts.total()} schemas:", ", ".join(f"{n} {kind}" for kind, n in counts.items()))
    return int(counts["wrong"] > 0 or not counts)


if __name__ == "__main__":
    sys.exit(main())
