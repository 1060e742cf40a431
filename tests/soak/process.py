"""A server in a process of its own: its start, what it and its children hold, its end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


class NotStarted(Exception):
    """The server ended, or was not ready in time; with what it wrote."""


class Server:
    """`log`: the file that its stderr is added to."""

    def __init__(self, log: Path, *options: str, port: int | None = None) -> None:
        self.log, self.options = log, options
        self.port = port or free_port()
        self.ready_s = 0.0

    def start(self, patience_s: float = 60.0) -> Server:
        """Until /health says ok. Raises NotStarted."""
        began = time.perf_counter()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "terrazzo", "serve", "smollm2", "--port", str(self.port),
                 *self.options], stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        while self._health() != 200:
            if self.process.poll() is not None or time.perf_counter() - began > patience_s:
                self.kill()
                raise NotStarted(f"the server did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.01)
        self.ready_s = time.perf_counter() - began
        return self

    def _health(self) -> int:
        try:
            return self.get("/health")[0]
        except OSError:
            return 0

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body. Raises OSError."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as got:
                return got.status, got.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def engine(self) -> dict[str, Any]:
        """The engine's state with a check of its books."""
        return json.loads(self.get("/engine?check=1")[1])

    def metrics(self) -> dict[str, float]:
        found = re.findall(r"^terrazzo_(\w+) (\S+)$", self.get("/metrics")[1].decode(), re.M)
        return {name: float(value) for name, value in found}

    # -- processes ------------------------------------------------------------------------------
    def processes(self) -> dict[str, int]:
        """By what they do: the server's own, its engine's, the one that compiles schemas."""
        found = {"server": self.process.pid}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for pid in (task / "children").read_text().split():
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                found["schemas" if b"schema_worker" in words else "engine"] = int(pid)
        return found

    def rss(self) -> dict[str, int]:
        """Bytes resident, by process."""
        return {
            name: int(re.search(r"VmRSS:\s+(\d+)", _status(pid))[1]) << 10  # type: ignore[index]
            for name, pid in self.processes().items()
        }

    def open_files(self) -> int:
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.processes().values())

    def kill(self) -> None:
        """At once, as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As an operator does; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        finally:
            self.kill()


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()


def alive(pid: int) -> bool:
    """Whether there is such a process that is no zombie."""
    try:
        return "State:\tZ" not in _status(pid)
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
