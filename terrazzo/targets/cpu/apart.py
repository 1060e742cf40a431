"""Compiling in a process of its own, for one that has to stay small: LLVM's 70 MB leave with it.

`python -m terrazzo.targets.cpu.apart` reads pickled calls from its input and writes (whether it
went well, result); it ends with its input, so it cannot outlive who started it.
"""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

Build = Callable[[], bytes]


class _Other:
    """The other process; it starts with the first call and takes one at a time."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()

    def run(self, build: Build) -> bytes | None:
        """What the call returns there; None if it did not go well."""
        with self._turn:
            return self._run(build)

    def _run(self, build: Build) -> bytes | None:
        if self.process is None:
            command = [sys.executable, "-m", "terrazzo.targets.cpu.apart"]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        try:
            pickle.dump(build, stdin)
            stdin.flush()
            well, built = pickle.load(stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
        return built if well else None

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


_other: _Other | None = None


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Within, other threads included, what is compiled is compiled in one other process."""
    global _other
    before, _other = _other, _Other()
    try:
        yield
    finally:
        _other.close()
        _other = before


def run(build: Build) -> bytes:
    """build(), a picklable call, in the other process if there is to be one. What fails there is
    done here: then the error is the caller's."""
    made = _other.run(build) if _other is not None else None
    return build() if made is None else made


def main() -> None:
    calls, results = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            build = pickle.load(calls)
        except EOFError:
            return
        try:
            answer = True, build()
        except Exception:  # not swallowed: who asked does it again, and meets it there
            answer = False, b""
        pickle.dump(answer, results)
        results.flush()


if __name__ == "__main__":
    main()
