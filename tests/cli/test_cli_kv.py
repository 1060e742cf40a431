"""`terrazzo kv`: the figures mean what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from terrazzo.cli.commands import run


def test_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kv", "smollm2", "--tokens", "24", "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    rows = {r["what"]: r for r in got["rows"]}
    assert got["tokens"] == 24
    assert list(rows) == ["f16", *map(str, range(30)), "int8", "auto"]
    assert rows["f16"]["worst"] == rows["f16"]["divergence"] == 0
    assert rows["f16"]["bytes"] / rows["int8"]["bytes"] >= 1.9
    assert rows["f16"]["bytes"] / rows["auto"]["bytes"] >= 1.7
    # Each layer moves something; all together stay within what 8 bits are good for.
    assert all(0 < r["divergence"] < 0.01 for what, r in rows.items() if what != "f16")


def test_a_text_that_is_too_short_or_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "short").write_text("three words only")
    assert run(["kv", "smollm2", "--text", str(tmp_path / "short")]) == 2
    assert "has 3 tokens" in capsys.readouterr().err
    assert run(["kv", "smollm2", "--text", str(tmp_path / "none")]) == 2
    assert "none: No such file" in capsys.readouterr().err
