"""Runs the command line: in this process where it answers at once, as a process of its own where
that matters."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_result import COMMAND, Result

from terrazzo.cli.main import app
from terrazzo.models import store


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The demo model: fetched once into the user's own models folder, verified by hash."""
    return store.pull("smollm2")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables that put the cache and the models into folders of the tests' own."""
    base = tmp_path_factory.mktemp("terrazzo")
    return {"TERRAZZO_CACHE": str(base / "cache"), "TERRAZZO_HOME": str(base / "home")}


@pytest.fixture
def run(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """`run("models", "--json")` in this process."""
    for name, value in folders.items():
        monkeypatch.setenv(name, value)

    def call(*args: object) -> Result:
        code = app([str(a) for a in args])
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return call


@pytest.fixture(scope="session")
def environment(folders: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **folders, "COLUMNS": "100"}


@pytest.fixture
def process(environment: dict[str, str]) -> Callable[..., Result]:
    """`process("generate", ..., input=b"...")` as a process of its own, ended after a minute."""

    def call(*args: object, input: bytes = b"", **more: str) -> Result:
        done = subprocess.run(
            [*COMMAND, *map(str, args)], input=input, capture_output=True, timeout=60,
            env={**environment, **more}, check=False,
        )  # fmt: skip
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call
