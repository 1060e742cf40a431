"""`terrazzo bench-serve`: what it sends is a matter of the seed, what it says is what happened."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from terrazzo.cli.commands import run
from terrazzo.serve.load import Traffic, bodies, percentiles

PIECE = {"choices": [{"delta": {"content": "x"}}]}


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Three pieces 20 ms apart, each request's own number of tokens."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = json.loads(await reader.readexactly(size))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    for _ in range(3):
        await asyncio.sleep(0.02)
        writer.write(b"data: " + json.dumps(PIECE).encode() + b"\n\n")
        await writer.drain()
    usage = {"completion_tokens": body["max_tokens"], "prompt_tokens": 7}
    writer.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
    writer.write(b"data: [DONE]\n\n")
    await writer.drain()
    writer.close()


@pytest.fixture
def url() -> Iterator[str]:
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.close()


def test_figures(url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plot = tmp_path / "load.svg"
    assert run(["bench-serve", url, "--streams", "1,4", "--requests", "8", "--json", "--plot",
                str(plot)]) == 0  # fmt: skip
    one, four = json.loads(capsys.readouterr().out)
    wanted = sum(b["max_tokens"] for b in bodies(Traffic(8), "smollm2"))
    assert one["tokens"] == four["tokens"] == wanted and one["failed"] == 0
    assert 0.02 <= one["first_s"][0] < 0.2 and 0.018 <= one["gap_s"][0] < 0.1
    assert one["wall_s"] > 8 * 0.06 and four["wall_s"] < one["wall_s"] / 2
    assert plot.read_text().count("<polyline") == 5
    assert run(["bench-serve", url, "--rates", "20", "--requests", "4"]) == 0
    assert capsys.readouterr().out.startswith("RATE")


def test_traffic_is_the_seeds() -> None:
    a, b, c = (bodies(Traffic(5, seed=s), "m") for s in (1, 1, 2))
    assert a == b and a != c
    system = {x["messages"][0]["content"] for x in a}
    assert len(system) == 1 and len(system.pop().split()) == 500
    assert all(32 <= x["max_tokens"] <= 256 for x in a)


def test_percentiles() -> None:
    assert percentiles([]) == (0, 0, 0)
    assert percentiles(range(100)) == (50, 90, 99)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["http://127.0.0.1:1"], "nothing answers at 127.0.0.1:1"),
        (["localhost"], "url is 'localhost'"),
        (["http://127.0.0.1:1", "--streams", "a"], "streams is 'a'"),
        (["http://127.0.0.1:1", "--rates", "-1"], "rates is '-1'"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], args: list[str], words: str) -> None:
    assert run(["bench-serve", *args, "--requests", "1"]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
