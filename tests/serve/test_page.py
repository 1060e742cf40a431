"""The page at / in a real Chromium: it chats, stops, and shows what the engine does."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conftest import Running

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def page(browser: Any, server: Running) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1200, "height": 760})
    opened = context.new_page()
    problems: list[str] = []
    asked: list[str] = []
    opened.on("pageerror", lambda e: problems.append(str(e)))
    opened.on("request", lambda r: asked.append(r.url))
    opened.goto(server.url)
    opened.wait_for_function("document.querySelector('#model').textContent.includes('smollm2')")
    yield opened
    context.close()
    assert not problems, problems
    assert all(u.startswith((server.url, "data:")) for u in asked), asked  # nothing from elsewhere


def test_a_conversation(page: Any) -> None:
    page.fill("#temperature", "0")
    page.fill("#most", "30")
    page.fill("#text", "Write one sentence about the sea.")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "[...document.querySelectorAll('.figures')].some(f => f.textContent.includes('written'))"
    )
    assert len(page.text_content(".assistant")) > 10
    page.fill("#text", "And one about mountains.")
    page.click("#send")
    page.wait_for_function(
        "[...document.querySelectorAll('.figures')].filter(f => f.textContent).length === 2"
    )
    assert "of them known before" in page.text_content(".figures >> nth=1")
    assert page.locator(".error").count() == 0


def test_stop(page: Any, server: Running) -> None:
    page.fill("#temperature", "0")  # an answer that is drawn may end before it is stopped
    page.fill("#most", "900")
    page.fill("#text", "Count from one to ten thousand, in words.")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.assistant')?.textContent.length > 20")
    page.keyboard.press("Escape")
    page.wait_for_function("document.querySelector('.figures').textContent === 'stopped'")
    page.wait_for_function("fetch('/engine').then(r => r.json()).then(e => e.stats.running === 0)")
    assert page.is_enabled("#send") and page.is_disabled("#stop")


def test_the_engine_at_work(page: Any, server: Running) -> None:
    """The map has as many colours as there are owners; a picture goes to PAGE_PICTURE if set."""
    shared = "The quick brown fox jumps over the lazy dog. " * 20

    def ask(n: int) -> None:
        body = {"model": "smollm2", "prompt": f"{shared} {n}", "max_tokens": 600, "seed": n,
                "ignore_eos": True}  # fmt: skip
        httpx2.post(f"{server.url}/v1/completions", json=body, timeout=120)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    page.wait_for_function(
        "[...document.querySelectorAll('dt')].some(t => t.textContent === 'running'"
        " && +t.nextSibling.textContent === 6)"
    )
    page.wait_for_function("document.querySelectorAll('#legend span').length >= 9")
    colours = page.evaluate("""() => {
        const c = document.querySelector('#map'), d = c.getContext('2d')
            .getImageData(0, 0, c.width, c.height).data, seen = new Set();
        for (let i = 0; i < d.length; i += 4)
            if (d[i + 3] === 255) seen.add(d.slice(i, i + 3).join());
        return seen.size }""")
    assert colours >= 6
    if os.environ.get("PAGE_PICTURE"):
        page.fill("#text", "Tell me about the sea.")
        page.keyboard.press("Enter")
        page.wait_for_timeout(1200)
        page.screenshot(path=str(Path(os.environ["PAGE_PICTURE"])))
    for t in threads:
        t.join()


def test_dark(browser: Any, server: Running) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(server.url)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 24, 26)"
    context.close()
