"""Servers to be measured, in turns: one answers, the others are stopped (SIGSTOP) until they are
asked again, so that nothing of theirs runs meanwhile."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import peers

from terrazzo.serve import load

START_S = 60.0
PR_SET_PDEATHSIG = 1  # of sys/prctl.h
TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """`command` with `--port` and a port that is free, in a process group of its own; waits until
    /health says 200 and then stops it. SystemExit, with its last words, if it does not come. It
    ends with this process, however that ends."""

    def __init__(self, name: str, command: Sequence[object]) -> None:
        self.name = name
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._words = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*map(str, command), "--port", str(port)], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=self._words, stderr=self._words,
            preexec_fn=_end_with_parent,
        )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.close()
            raise
        os.killpg(self.process.pid, signal.SIGSTOP)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """It runs inside only."""
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            yield
        finally:
            if self.process.poll() is not None:
                raise self._gone()
            os.killpg(self.process.pid, signal.SIGSTOP)

    def cpu_s(self) -> float:
        """CPU seconds of all its processes that live."""
        ticks = 0
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[2]) == self.process.pid:  # its group
                ticks += int(fields[11]) + int(fields[12])
        return ticks / TICK

    def figures(self) -> dict[str, float]:
        """What /metrics says, without labelled ones."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        pairs = [x.split() for x in lines if not x.startswith("#") and "{" not in x]
        return {name: float(value) for name, value in pairs}

    def close(self) -> None:
        """Ends it; no process is left."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self._words.close()

    def _wait(self) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:  # not there yet, or loading (503)
                time.sleep(0.1)
        raise self._gone()

    def _gone(self) -> SystemExit:
        self._words.seek(0)
        return SystemExit(f"{self.name} does not answer: {self._words.read()[-1500:]}")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def terrazzo(model: Path, threads: int, *options: object, name: str = "terrazzo") -> Server:
    command = [sys.executable, "-m", "terrazzo", "serve", model, "--threads", threads, *options]
    return Server(name, command)


def llama_server(peer: peers.Peers, model: Path, threads: int, parallel: int, kv: int) -> Server:
    """With `kv` tokens of keys and values for all `parallel` slots. Continuous batching, flash
    attention and the reuse of a slot's last prompt are on: its defaults."""
    command = [peer.llama_server, "-m", model, "-t", threads, "-tb", threads, "-c", kv,
               "--parallel", parallel, "--host", "127.0.0.1"]  # fmt: skip
    return Server("llama-server", command)


def good(server: Server, traffic: load.Traffic) -> load.Run:
    """Raises SystemExit if a request failed."""
    run = load.run(server.url, "smollm2", traffic)
    if run.failed:
        raise SystemExit(f"{server.name}: {run.failed} requests failed: {run.errors}")
    return run
