"""What a server meets outside: it answers each of these, goes on, and its memory stays where it
is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conftest import Running
from hostile_bodies import BODIES, CHAT, with_message

JSON = {"content-type": "application/json"}


def answers(http: httpx2.Client) -> None:
    got = http.post("/v1/chat/completions", json=CHAT)
    assert got.status_code == 200 and got.json()["choices"][0]["message"]["content"] is not None


@pytest.mark.parametrize("name", BODIES)
def test_a_body(http: httpx2.Client, name: str) -> None:
    body, status = BODIES[name]
    got = http.post("/v1/chat/completions", content=body, headers=JSON)
    assert got.status_code == status, got.text[:300]
    if status >= 400:
        error = got.json()["error"]
        assert error["message"] and error["type"] and len(error["message"]) < 2000
    answers(http)


def test_token_ids_that_are_none(http: httpx2.Client) -> None:
    for prompt in ([-1], [10**9], [49152], [2**70], [1.5], [True], [[]], []):
        got = http.post("/v1/completions", json={"model": "smollm2", "prompt": prompt})
        assert got.status_code == 400, (prompt, got.text)
    for tokens in ([-1], [10**9], [2**70]):
        assert http.post("/detokenize", json={"tokens": tokens}).status_code == 400
    answers(http)


def test_a_body_of_ten_megabytes(http: httpx2.Client) -> None:
    got = http.post("/v1/chat/completions", content=with_message("x" * 10_000_000), headers=JSON)
    assert got.status_code == 413 and "8,388,608" in got.json()["error"]["message"]

    def pieces():
        for _ in range(160):
            yield b"x" * 65_536

    # without a length declared; the server may close before it has all
    with contextlib.suppress(httpx2.TransportError):
        assert http.post("/v1/chat/completions", content=pieces()).status_code == 413
    answers(http)


def test_paths_and_methods(http: httpx2.Client) -> None:
    assert http.get("/v1/chat/completions").status_code == 405
    assert http.get("/nothing").json()["error"]["message"] == "there is nothing at /nothing"
    assert http.delete("/v1/models").status_code == 405
    assert http.get("/v1/models/../../etc/passwd").status_code == 404


def raw(server: Running, data: bytes) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    s.sendall(data)
    return s


def head(body: bytes, path: str = "/v1/chat/completions") -> bytes:
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body  # fmt: skip


def running(http: httpx2.Client) -> int:
    return http.get("/engine").json()["stats"]["running"]


def wait_for(condition: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_is_cancelled(
    server: Running, http: httpx2.Client, stream: bool
) -> None:
    body = json.dumps({**CHAT, "max_tokens": 900, "ignore_eos": True, "stream": stream}).encode()
    s = raw(server, head(body))
    wait_for(lambda: running(http) == 1)
    s.close()
    wait_for(lambda: running(http) == 0, 2)
    answers(http)


def test_half_a_request_does_not_hold_the_others_up(server: Running, http: httpx2.Client) -> None:
    slow = [raw(server, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n") for _ in range(50)]
    slow += [raw(server, head(b"x" * 100)[:-50]) for _ in range(50)]
    slow += [raw(server, b"\x16\x03\x01\x02\x00\x01\x00"), raw(server, b"\0" * 100)]
    answers(http)
    for s in slow:
        s.close()
    answers(http)


def rss(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_two_hundred_connections_at_once(server: Running, http: httpx2.Client) -> None:
    async def all_of_them() -> list[int]:
        limits = httpx2.Limits(max_connections=200)
        async with httpx2.AsyncClient(base_url=server.url, timeout=120, limits=limits) as c:
            found = await asyncio.gather(
                *(c.post("/v1/chat/completions", json={**CHAT, "seed": n}) for n in range(200))
            )
            return [r.status_code for r in found]

    assert asyncio.run(all_of_them()) == [200] * 200
    answers(http)


def test_more_than_may_wait_get_429() -> None:
    from conftest import start, stop

    server = start("--waiting", "2")
    try:
        codes: list[tuple[int, str | None]] = []

        def one() -> None:
            body = {**CHAT, "max_tokens": 200, "ignore_eos": True}
            got = httpx2.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
            codes.append((got.status_code, got.headers.get("retry-after")))

        threads = [threading.Thread(target=one) for _ in range(30)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        full = [wait for status, wait in codes if status == 429]
        assert {status for status, _ in codes} == {200, 429} and full
        assert all(wait is not None and int(wait) >= 1 for wait in full)
    finally:
        stop(server)


def test_memory_is_flat(server: Running, http: httpx2.Client) -> None:
    """Over many bad and some good requests, after the first have made what is kept."""
    engine = http.get("/engine").json()["facts"]["pid"]

    def some() -> None:
        for body, _ in BODIES.values():
            http.post("/v1/chat/completions", content=body, headers=JSON)

    for _ in range(10):
        some()
    before = rss(server.process.pid), rss(engine)
    for _ in range(5):
        some()
    after = rss(server.process.pid), rss(engine)
    assert after[0] < before[0] * 1.05 and after[1] < before[1] * 1.02, (before, after)
