"""What a step may take, and what blocks may stand empty, in tokens: on these rest the bounds on how
long a stream stalls and on how much of the KV cache is wasted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from terrazzo.engine.blocks import BLOCK
from terrazzo.engine.engine import Engine
from terrazzo.engine.options import EngineOptions
from terrazzo.engine.request import Request
from terrazzo.engine.sequence import Sequence
from terrazzo.models import store

STEP, MIXED, PARALLEL = 64, 24, 6


@pytest.fixture(params=[None, "lookup"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(EngineOptions(str(store.pull("smollm2")), context=512, parallel=PARALLEL,
                                threads=2, step_tokens=STEP, mixed_tokens=MIXED,
                                draft=request.param))  # fmt: skip


def steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[Sequence, int]]:
    """Short requests decode while long prompts come in; the work of each step, after it."""
    rng = np.random.default_rng(5)
    schedule, done = engine.scheduler.schedule, {}

    def noted() -> dict[Sequence, int]:
        nonlocal done
        done = schedule()
        return dict(done)

    monkeypatch.setattr(engine.scheduler, "schedule", noted)
    for n in range(3):
        engine.add(
            Request(f"short{n}", tuple(rng.integers(1000, 40_000, 9).tolist()), max_tokens=60)
        )
    for n in range(8):
        prompt = rng.integers(1000, 40_000, rng.integers(200, 400)).tolist()
        engine.add(Request(f"long{n}", tuple(prompt), max_tokens=5))
    while engine.busy:
        engine.step()
        engine.check()
        yield done


def test_prompts_leave_decoding_sequences_their_turn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While sequences decode, a step takes at most MIXED tokens of prompts and a token of every
    one of them, STEP at most with drafts; so a stream waits for one such step."""
    decoding: set[Sequence] = set()
    most = alone = 0
    for work in steps(engine, monkeypatch):
        still = {s for s in decoding if s.job.request.id in engine._jobs and s.blocks}
        assert still <= work.keys(), "one that decodes was passed over"
        prompts = sum(n for s, n in work.items() if s not in decoding)
        if decoding & work.keys():
            most = max(most, prompts)
            assert prompts <= MIXED and sum(work.values()) + engine.scheduler.left <= STEP
        else:
            alone = max(alone, prompts)
        decoding = {s for s in engine.scheduler.running if s.missing == 1}
    assert engine.scheduler.preemptions == 0
    assert most == MIXED == engine.stats().mixed_step_prompt and alone == STEP


def test_empty_places_are_bounded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sequence's places only those of its last block and of tokens that are about to be
    computed have none; a shared block counts once."""
    shares: list[float] = []
    for _ in steps(engine, monkeypatch):
        stats, running = engine.stats(), engine.scheduler.running
        assert stats.slots == BLOCK * stats.blocks_used
        assert stats.held_tokens == sum(s.computed for s in running)
        assert stats.used_slots <= min(stats.slots, stats.held_tokens)
        if engine.speculation is None:
            about = sum(s.missing + BLOCK - 1 for s in running)
            assert stats.slots - stats.used_slots <= about
        shares.append(stats.used_slots / stats.slots if stats.slots else 1.0)
    assert np.median(shares) > 0.5


def test_shared_places_count_once(engine: Engine) -> None:
    prompt = tuple(range(2000, 2000 + 4 * BLOCK + 3))
    engine.add(Request("n", prompt, max_tokens=8, choices=3))
    seen = []
    while engine.busy:
        engine.step()
        if len(engine.scheduler.running) == 3:
            seen.append(engine.stats())
    for stats in seen:
        assert stats.held_tokens - stats.used_slots >= 2 * 4 * BLOCK
        assert stats.used_slots <= stats.slots <= 7 * BLOCK
    assert seen
