"""A real server on the demo model, one for all tests of this folder that ask for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest
from openai import OpenAI
from soak.process import free_port


@dataclass
class Running:
    process: subprocess.Popen[str]
    port: int
    lines: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, strict: bool = True) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60,
                      _strict_response_validation=strict)  # fmt: skip


def start(*more: str, port: int | None = None) -> Running:
    """Waits until it is ready; raises AssertionError with what it wrote if it ends before."""
    port = port or free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "terrazzo", "serve", "smollm2", "--port", str(port),
         "--context", "1024", "--parallel", "8", *more],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("ready after"):
            return Running(process, port, lines)
    process.wait(5)
    raise AssertionError("".join(lines))


def stop(server: Running, seconds: float = 15) -> int:
    server.process.terminate()
    try:
        return server.process.wait(seconds)
    finally:
        server.process.kill()


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    running = start()
    yield running
    assert stop(running) == 0


@pytest.fixture(scope="session")
def client(server: Running) -> OpenAI:
    return server.client()


@pytest.fixture(scope="session")
def lenient(server: Running) -> OpenAI:
    """For the two places where OpenAI's own server sends null and its client's types have none:
    finish_reason in the middle of a streamed completion, and the first token of an echo."""
    return server.client(strict=False)


@pytest.fixture
def http(server: Running) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=60) as c:
        yield c
