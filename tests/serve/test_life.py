"""From start to end: what is logged, who has the port, what a signal does, how fast it is back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2
import pytest
from conftest import Running, free_port, start, stop
from serve_tools import alive

CHAT = {"model": "smollm2", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


def engine_pid(server: Running) -> int:
    return httpx2.get(f"{server.url}/engine").json()["facts"]["pid"]


def test_phases_of_the_start_are_logged_with_their_times(server: Running) -> None:
    text = "".join(server.lines)
    for what in (
        "server: imports, tokenizer, template",
        "engine: imports",
        "engine: model, cache and kernels",
        "engine: ready after",
        "\nready after",
    ):
        assert what in text, text


def test_a_second_server_says_who_has_the_port(server: Running) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "terrazzo", "serve", "smollm2", "--port", str(server.port)],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert (
        f"port {server.port} of 127.0.0.1 is taken by process {server.process.pid}" in done.stderr
    )
    assert "terrazzo serve" in done.stderr and "--port" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_answers_end_and_leaves_no_process(number: signal.Signals) -> None:
    server = start()
    engine = engine_pid(server)
    found: list[httpx2.Response] = []
    body = {**CHAT, "max_tokens": 300, "ignore_eos": True}
    ask = threading.Thread(
        target=lambda: found.append(
            httpx2.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
        )
    )
    ask.start()
    while httpx2.get(f"{server.url}/engine").json()["stats"]["running"] == 0:
        time.sleep(0.01)
    server.process.send_signal(number)
    time.sleep(0.1)
    if server.process.poll() is None:
        late = httpx2.post(f"{server.url}/v1/chat/completions", json=CHAT)
        assert late.status_code == 503 and late.headers["retry-after"]
    ask.join(20)
    assert found[0].status_code == 200 and found[0].json()["usage"]["completion_tokens"] == 300
    assert server.process.wait(10) == 0 and not alive(engine)


def test_killed_it_is_back_within_two_seconds() -> None:
    server = start()
    engine = engine_pid(server)
    server.process.kill()
    server.process.wait()
    end = time.monotonic() + 2
    while alive(engine) and time.monotonic() < end:
        time.sleep(0.01)
    assert not alive(engine), "the engine has outlived its server"
    began = time.monotonic()
    again = start(port=server.port)
    took = time.monotonic() - began
    try:
        assert httpx2.post(f"{again.url}/v1/chat/completions", json=CHAT).status_code == 200
        assert took < 2, f"{took:.2f} s"
    finally:
        assert stop(again) == 0


def test_the_engine_that_dies_is_replaced_and_its_requests_told() -> None:
    server = start()
    try:
        body = {**CHAT, "max_tokens": 900, "ignore_eos": True, "stream": True}
        with httpx2.stream("POST", f"{server.url}/v1/chat/completions", json=body) as got:
            lines = got.iter_lines()
            next(lines)
            os.kill(engine_pid(server), signal.SIGKILL)
            rest = [x.removeprefix("data: ") for x in lines if x.startswith("data: ")]
        assert rest[-1] == "[DONE]"
        error = json.loads(rest[-2])["error"]
        assert error["code"] == "engine_restarting" and "SIGKILL" in error["message"]
        end = time.monotonic() + 10
        while httpx2.get(f"{server.url}/health").status_code != 200:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert httpx2.post(f"{server.url}/v1/chat/completions", json=CHAT).status_code == 200
    finally:
        assert stop(server) == 0


def test_a_key_is_asked_for() -> None:
    server = start("--api-key", "secret", "--cors", "https://a.example")
    try:
        url = f"{server.url}/v1/models"
        assert httpx2.get(url).json()["error"]["code"] == "invalid_api_key"
        assert httpx2.get(url, headers={"Authorization": "Bearer wrong"}).status_code == 401
        got = httpx2.get(url, headers={"Authorization": "Bearer secret"})
        assert got.status_code == 200
        assert got.headers["access-control-allow-origin"] == "https://a.example"
        assert httpx2.get(f"{server.url}/health").status_code == 200
        assert httpx2.options(url).status_code == 204
    finally:
        assert stop(server) == 0


def test_options_that_are_wrong_are_one_line() -> None:
    for args, words in (
        (["nothing-here"], "nothing-here"),
        (["smollm2", "--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["smollm2", "--kv", "f8"], "f8"),
        (["smollm2", "--context", "99999999"], "99,999,999"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "terrazzo", "serve", *args, "--port", str(free_port())],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 2, (args, done.stderr)
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("error:") and words in last and "Traceback" not in done.stderr, done


def test_memory_is_a_bound_that_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All processes together stay within it: while they start, though everything has to be
    compiled, while every block is in use, and once a schema has been enforced. The server's peak
    is at its start, when the engine has not taken its blocks yet."""
    monkeypatch.setenv("TERRAZZO_CACHE", str(tmp_path))
    bound = 382
    server = start("--memory", f"{bound}MiB", "--kv", "int8")
    own = server.process.pid

    def peaks() -> list[int]:
        """MiB that each process had at most since the last time."""
        out: list[int] = []
        for pid in (own, *Path(f"/proc/{own}/task/{own}/children").read_text().split()):
            status = Path(f"/proc/{pid}/status").read_text()
            Path(f"/proc/{pid}/clear_refs").write_text("5")
            out.append(int(status.split("VmHWM:")[1].split()[0]) >> 10)
        return out

    try:
        plan = next(x for x in server.lines if "KV blocks" in x)
        assert bound - 1 <= float(plan.split("blocks, ")[1].split()[0]) <= bound, plan
        assert sum(found := peaks()) < bound, found
        body = {**CHAT, "max_tokens": 400, "ignore_eos": True, "n": 8}
        for word in ("one", "two", "three"):
            asked = {**body, "messages": [{"role": "user", "content": f"{word} " * 500}]}
            got = httpx2.post(f"{server.url}/v1/chat/completions", json=asked, timeout=120)
            assert got.status_code == 200, got.text
        assert len(found := peaks()) == 2 and sum(found) < bound, found
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        asked = {**body, "ignore_eos": False, "response_format": form}
        got = httpx2.post(f"{server.url}/v1/chat/completions", json=asked, timeout=120)
        assert got.status_code == 200, got.text
        assert len(found := peaks()) == 3 and sum(found) < bound, found
    finally:
        stop(server)
    done = subprocess.run(
        [sys.executable, "-m", "terrazzo", "serve", "smollm2", "--memory", "150MiB", "--port",
         str(free_port())], capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2 and "for one request of 8,192 tokens" in done.stderr
