"""`terrazzo chat` in a terminal of its own, and fed from a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from cli_result import COMMAND, Result

Run = Callable[..., Result]
START = 90  # s: a cold cache on a busy machine


@pytest.fixture
def terminal(environment: dict[str, str], model_path: Path) -> Iterator[pexpect.spawn]:
    command, *rest = COMMAND
    child = pexpect.spawn(
        command, [*rest, "chat", str(model_path), "--temperature", "0", "--max-tokens", "2000"],
        env={**environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}, encoding="utf-8",
        timeout=30, dimensions=(24, 100),
    )  # fmt: skip
    child.expect("Ctrl-D leaves", timeout=START)
    _prompt(child)
    yield child
    child.close(force=True)


def _prompt(child: pexpect.spawn) -> None:
    """The editor is ready: it asks the terminal to mark what is pasted."""
    child.expect(r"\x1b\[\?2004h")


def test_commands_and_leaving(terminal: pexpect.spawn) -> None:
    terminal.send("/help\r")
    terminal.expect("Ctrl-C stops an answer")
    _prompt(terminal)
    terminal.send("/sing\r")
    terminal.expect("there is no command /sing; /help lists")
    _prompt(terminal)
    terminal.send("/reset\r")
    terminal.expect("the conversation is forgotten")
    _prompt(terminal)
    terminal.send("half a li")
    terminal.sendintr()  # at the prompt: only the line goes
    _prompt(terminal)
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(terminal: pexpect.spawn) -> None:
    """Within 100 ms, seen at the terminal; the best of some tries, as the machine may be busy."""
    waits = []
    for _ in range(4):
        terminal.send("Write a long story about a fox.\r")
        terminal.expect(
            r"\w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+ \w+"
        )  # its question and some of the answer
        time.sleep(0.5)
        start = time.perf_counter()
        terminal.sendintr()
        _prompt(terminal)
        waits.append(time.perf_counter() - start)
    assert min(waits) < 0.1, waits
    terminal.send("/exit\r")
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0


def test_history_is_kept_and_private(terminal: pexpect.spawn, folders: dict[str, str]) -> None:
    terminal.send("/help remember this\r")
    _prompt(terminal)
    terminal.send("\x1b[A")
    terminal.expect("remember this")
    path = Path(folders["TERRAZZO_HOME"]) / "chat_history"
    assert "remember this" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


def test_from_a_pipe(process: Run, model_path: Path) -> None:
    """A turn a line. The same question meets another answer once the conversation is forgotten."""
    lines = b"My name is Ada.\n\nWhat is my name?\n/reset\nWhat is my name?\n"
    done = process("chat", model_path, "--temperature", 0, "--max-tokens", 8, input=lines)
    assert (done.code, done.err) == (0, "the conversation is forgotten\n")
    first, told, untold = done.out.splitlines()
    assert first and told != untold


def test_from_a_pipe_too_long(process: Run, model_path: Path) -> None:
    lines = ("word " * 100 + "\n/exit\n").encode()
    done = process("chat", model_path, "--context", 64, input=lines)
    assert done.code == 0
    assert "error: the prompt has" in done.err and "/reset" in done.err
