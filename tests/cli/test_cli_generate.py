"""`terrazzo generate`: what goes where, and what Ctrl-C leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_result import COMMAND, Result

Run = Callable[..., Result]
PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def warm(environment: dict[str, str], model_path: Path) -> None:
    """The tests' own cache holds what the model needs."""
    command = [*COMMAND, "generate", str(model_path), PROMPT, "--max-tokens", "1"]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)


def test_text_to_stdout_figures_to_stderr(process: Run, model_path: Path, warm: None) -> None:
    done = process("generate", model_path, PROMPT, "--max-tokens", 8)
    assert done.code == 0
    assert done.out.startswith(" Paris.")
    (line,) = done.err.splitlines()
    for part in ("8 tokens at", "tokens/s", "first token after", "memory"):
        assert part in line


def test_a_warm_start_imports_no_compiler(
    environment: dict[str, str], model_path: Path, warm: None
) -> None:
    """LLVM would take 40 MiB, and longer to import than all of ours."""
    told = subprocess.run(
        [COMMAND[0], "-X", "importtime", *COMMAND[1:], "generate", model_path, PROMPT,
         "--max-tokens", "1"],
        env=environment, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    loaded = {line.rpartition("|")[2].strip() for line in told.stderr.decode().splitlines()}
    assert "terrazzo.engine.model" in loaded and told.stdout
    unwanted = {"llvmlite", "terrazzo.targets.cpu.codegen", "terrazzo.targets.cpu.lower"}
    assert not loaded & unwanted


def test_json_and_stdin(process: Run, model_path: Path, warm: None) -> None:
    told = process("generate", model_path, "-", "--max-tokens", 8, "--json", input=PROMPT.encode())
    said = json.loads(told.out)
    assert told.err == ""
    assert said["text"].startswith(" Paris.")
    assert (said["tokens"], said["prompt_tokens"], said["stop"]) == (8, 5, "length")
    for key in (
        "decode_tokens_per_s",
        "first_token_s",
        "process_to_first_token_s",
        "peak_rss_bytes",
    ):
        assert said[key] > 0


def test_stop_text_and_seed(run: Run, model_path: Path, warm: None) -> None:
    args = ("generate", model_path, PROMPT, "--max-tokens", 16, "--json")
    said = json.loads(run(*args, "--stop", "answer", "--stop", "Paris").out)
    assert (said["text"], said["stop"]) == (" ", "stop")
    drawn = [
        json.loads(run(*args, "--temperature", 1.5, "--seed", seed).out)["text"]
        for seed in (7, 7, 8)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_output_closed_early(environment: dict[str, str], model_path: Path, warm: None) -> None:
    """`terrazzo generate … | head -c 1` ends without a complaint."""
    with _started(environment, "generate", model_path, PROMPT, "--max-tokens", "200") as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.read(1)
        running.stdout.close()
        assert running.wait(30) == 1
        assert running.stderr.read() == b""


@contextmanager
def _started(environment: dict[str, str], *args: object) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(
        [*COMMAND, *map(str, args)], env=environment, stdin=subprocess.DEVNULL, bufsize=0,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def _interrupt(running: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Exit code and stderr after Ctrl-C; its session must be empty then."""
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    with pytest.raises(ProcessLookupError):
        os.killpg(running.pid, 0)
    return running.returncode, err


def test_ctrl_c_while_it_writes(environment: dict[str, str], model_path: Path, warm: None) -> None:
    with _started(environment, "generate", model_path, PROMPT, "--max-tokens", "4000") as running:
        assert running.stdout is not None
        running.stdout.read(1)
        assert _interrupt(running) == (130, b"")


def test_ctrl_c_in_a_long_prompt(environment: dict[str, str], model_path: Path, warm: None) -> None:
    with _started(environment, "generate", model_path, "word " * 6000) as running:
        time.sleep(3)
        assert _interrupt(running) == (130, b"")


def test_ctrl_c_in_a_text_that_is_executed(tmp_path: Path) -> None:
    """As dataclasses make their methods: `python -m` would end by the signal, though we caught
    it."""
    (tmp_path / "started.py").write_text(
        "import sys; from terrazzo.cli import commands, main;"
        "commands.run = lambda args: exec('raise KeyboardInterrupt'); sys.exit(main.app([]))"
    )
    command = [sys.executable, "-m", "started"]
    assert subprocess.run(command, cwd=tmp_path).returncode == 130


@pytest.mark.parametrize("after_s", [0.15, 0.5, 1.0, 2.0])
def test_ctrl_c_while_it_starts(
    environment: dict[str, str], model_path: Path, tmp_path: Path, after_s: float
) -> None:
    """From the imports to the compiler and a prompt that takes seconds, with nothing cached: no
    traceback, no half-written file."""
    cold = {**environment, "TERRAZZO_CACHE": str(tmp_path)}
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", "pass"], env=cold, check=True)
    interpreter_s = time.monotonic() - begin  # a bare start: long on a busy machine
    with _started(cold, "generate", model_path, "word " * 6000) as running:
        time.sleep(max(after_s, 2 * interpreter_s))
        code, err = _interrupt(running)
    # Before our first line runs, the interpreter's own handling applies.
    assert code == 130 or (after_s < 0.5 and code in (1, -signal.SIGINT))
    assert code != 130 or err == b""
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix not in (".o", ".bin")]
