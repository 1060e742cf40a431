"""What /metrics says of the KV cache and of steps, while requests run and after."""

from __future__ import annotations

import threading

import httpx2


def figures(http: httpx2.Client) -> dict[str, float]:
    lines = http.get("/metrics").text.splitlines()
    return {x.split()[0].removeprefix("terrazzo_"): float(x.split()[1]) for x in lines
            if x.startswith("terrazzo_") and "{" not in x}  # fmt: skip


def test_places_of_the_cache(http: httpx2.Client) -> None:
    """Two requests with a common beginning: its places count once, its tokens for each."""
    shared = "The quick brown fox jumps over the lazy dog. " * 20

    def ask(n: int) -> None:
        body = {"model": "smollm2", "prompt": f"{shared} {n}", "max_tokens": 300,
                "ignore_eos": True}  # fmt: skip
        httpx2.post(f"{http.base_url}/v1/completions", json=body, timeout=120)

    def both() -> dict[str, float] | None:
        """What the server says when both have run for a while; None if they ended unseen."""
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(2)]
        for t in threads:
            t.start()
        seen = None
        while seen is None and any(t.is_alive() for t in threads):
            found = figures(http)
            if found["kv_tokens_held"] > found["kv_slots_used"] + 150:
                seen = found
        for t in threads:
            t.join()
        return seen

    found = next(f for f in (both() for _ in range(4)) if f is not None)
    assert found["running_sequences"] == 2
    assert found["kv_slots_used"] <= found["kv_slots_allocated"] == 16 * found["kv_blocks_used"]
    found = figures(http)
    assert found["kv_slots_allocated"] == found["kv_slots_used"] == found["kv_tokens_held"] == 0
    assert found["mixed_step_prompt_tokens"] <= 128
    assert found["longest_mixed_step_seconds"] < 60
