"""`terrazzo models`, `cache`, `--version`, `--help`: what is here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_result import Result

import terrazzo

Run = Callable[..., Result]


def test_version_and_help(run: Run) -> None:
    assert run("--version").out == f"terrazzo {terrazzo.__version__}\n"
    for args in ((), ("--help",)):
        out = run(*args).out
        for name in ("generate", "chat", "pull", "models", "bench", "kernel", "doctor", "cache"):
            assert f" {name} " in out


def test_models(
    run: Run, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERRAZZO_HOME", str(tmp_path))
    empty = run("models")
    assert (empty.code, empty.out) == (0, "")
    assert "not here: smollm2 (`terrazzo pull smollm2` fetches it)" in empty.err
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / model_path.name).symlink_to(model_path)
    (folder / "broken.gguf").write_bytes(b"GGUF")
    listed = run("models")
    assert "smollm2" in listed.out and "134,515,008" in listed.out and "Q4_1" in listed.out
    assert "98,362,432" in listed.out and "8,192" in listed.out
    assert "broken: " in listed.err
    whole, part = (
        next(e for e in json.loads(run("models", "--json").out) if e["name"] == name)
        for name in ("smollm2", "broken")
    )
    assert (whole["architecture"], whole["context"], whole["problem"]) == ("llama", 8192, None)
    assert part["architecture"] is None and part["problem"]


def test_cache(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERRAZZO_CACHE", str(tmp_path))
    assert "the cache is empty" in run("cache", "list").err
    objects = tmp_path / "objects"
    objects.mkdir()
    (objects / "a.o").write_bytes(bytes(2048))
    assert "objects" in run("cache", "list").out
    assert json.loads(run("cache", "list", "--json").out)["entries"][0]["bytes"] == 2048
    assert json.loads(run("cache", "clear", "--json").out) == {"files": 1, "bytes": 2048}
    assert not list(objects.iterdir())
    assert "removed 0 files" in run("cache", "clear").err


def test_unwritable_cache_warns_and_goes_on(process: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of the folder")
    args = ("kernel", "run", "add", "--shape", "n=64", "--json")
    done = process(*args, TERRAZZO_CACHE=str(tmp_path / "file"))
    assert done.code == 0 and json.loads(done.out)["outputs"]["out"]["max_error"] == 0
    assert "going on without" in done.err and "Traceback" not in done.err
