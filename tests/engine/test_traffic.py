"""Random traffic: every answer is the one its request gets alone, whatever the company, the hits in
the cache, preemptions and cancellations."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from engine_runs import tokens

import terrazzo
from terrazzo.engine.engine import Engine
from terrazzo.engine.model import Model
from terrazzo.engine.options import EngineOptions, Sampling
from terrazzo.engine.request import Event, Request
from terrazzo.models import store

WAYS = [
    Sampling(),
    Sampling(repeat_penalty=1.2, repeat_last=30),
    Sampling(presence_penalty=0.8, frequency_penalty=0.4),
    Sampling(temperature=0.7, seed=11),
    Sampling(temperature=1.2, top_p=0.9, min_p=0.02, seed=2**63 + 5),
    Sampling(temperature=1.0, top_k=40, repeat_penalty=1.1, seed=2**64 - 2),
]


@pytest.fixture(scope="module")
def alone() -> Model:
    return terrazzo.load(store.pull("smollm2"), threads=2, context=256)


def requests(rng: np.random.Generator, count: int) -> list[Request]:
    """Prompts that often begin alike, of all lengths."""
    beginnings = [rng.integers(1000, 40_000, 90).tolist() for _ in range(3)]
    out: list[Request] = []
    for n in range(count):
        own = rng.integers(1000, 40_000, rng.integers(1, 30)).tolist()
        prompt = beginnings[rng.integers(3)][: rng.integers(0, 90)] + own
        out.append(
            Request(
                str(n),
                tuple(prompt),
                WAYS[rng.integers(len(WAYS))],
                max_tokens=int(rng.integers(1, 80)),
                choices=int(rng.choice([1, 1, 1, 3])),
                logprobs=None if rng.random() < 0.8 else 2,
                prompt_logprobs=bool(rng.random() < 0.1),
            )
        )
    return out


def traffic(
    engine: Engine, rng: np.random.Generator, todo: list[Request]
) -> dict[str, list[Event]]:
    """The requests arrive a few at a time; some are cancelled on the way."""
    found: dict[str, list[Event]] = defaultdict(list)
    todo = list(todo)
    while todo or engine.busy:
        for _ in range(rng.integers(0, 3) if rng.random() < 0.3 else 0):
            if todo:
                engine.add(todo.pop(0))
        if rng.random() < 0.03 and engine.scheduler.running:
            victim = engine.scheduler.running[rng.integers(len(engine.scheduler.running))]
            engine.abort(victim.job.request.id, None if rng.random() < 0.5 else victim.choice)
        for event in engine.step():
            found[event.request].append(event)
        engine.check()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_answer_is_its_own(alone: Model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    engine = Engine(EngineOptions(str(store.pull("smollm2")), context=192, parallel=6, blocks=20,
                                  threads=2, step_tokens=48, mixed_tokens=24))  # fmt: skip
    todo = requests(rng, 30)
    found = traffic(engine, rng, todo)
    cancelled = 0
    for r in todo:
        for choice in range(r.choices):
            (end,) = [e for e in found[r.id] if e.choice == choice and e.finish]
            made = tokens(found[r.id], choice)
            cancelled += end.finish == "cancelled"
            assert end.finish == "cancelled" or len(made) == min(
                r.max_tokens, engine.context - len(r.prompt)
            )
            if not made:
                continue
            given = {**r.sampling.__dict__, "seed": (r.sampling.seed + choice) % 2**64}
            want = alone.generate_ids(r.prompt, len(made), sampling=Sampling(**given),
                                      ignore_eos=True)  # fmt: skip
            assert made == want, (r.id, choice)
            if r.logprobs is not None:
                assert [
                    x.token for e in found[r.id] if e.choice == choice for x in e.logprobs
                ] == made
    stats = engine.stats()
    assert cancelled and stats.preemptions and stats.hit_tokens > 500
    assert stats.blocks_used == 0 and stats.failed == 0
