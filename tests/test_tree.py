"""The tree itself: nothing in it names one machine, and every file is text that belongs here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BINARY = {".npz", ".gz", ".png"}
# Spelt in pieces, so that this file passes its own test.
HOSTS = "|".join(
    re.escape(".".join(parts))
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("huggingface", "co"), ("npmjs", "org"),
        ("download", "pytorch", "org"),
    )
)  # fmt: skip
PLACES = "|".join(f"/{top}/" for top in ("work", "root", "home", "opt", "Users"))
FORBIDDEN = re.compile(rf"(?:{HOSTS})|(?<![\w.}}$~])(?:{PLACES})\w", re.ASCII)


def tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in tracked():
        if path.suffix in BINARY:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if hit := FORBIDDEN.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {hit.group()}")
    assert not found, "\n".join(found)


def test_files_are_small() -> None:
    """Model files and build results do not belong in the repository."""
    big = [str(p.relative_to(ROOT)) for p in tracked() if p.stat().st_size > 3 << 20]
    assert not big
