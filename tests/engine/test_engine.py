"""The engine as its users see it: batches, shared beginnings, preemption, ends, limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_runs import run, tokens

import terrazzo
from terrazzo.engine.engine import Engine
from terrazzo.engine.model import Model
from terrazzo.engine.options import EngineOptions, Sampling
from terrazzo.engine.request import Request
from terrazzo.errors import ContextOverflow, OptionError, QueueFull
from terrazzo.models import store

TEXTS = ["The capital of France is", "Once upon a time", "2 + 2 =", "def add(a, b):\n"]
LONG = list(range(1000, 1100))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(EngineOptions(str(store.pull("smollm2")), context=256, parallel=4, blocks=40,
                                threads=2, step_tokens=64, mixed_tokens=32, waiting=8))  # fmt: skip


@pytest.fixture(autouse=True)
def books(engine: Engine) -> Iterator[None]:
    """Whatever a test did: the books agree, and nothing is left."""
    yield
    engine.check()
    assert not engine.busy


@pytest.fixture(scope="module")
def alone() -> Model:
    return terrazzo.load(store.pull("smollm2"), threads=2, context=256)


def prompts(engine: Engine) -> list[tuple[int, ...]]:
    return [tuple(engine.tokenizer.encode(t)) for t in TEXTS]


def test_a_batch_gives_what_each_gives_alone(engine: Engine, alone: Model) -> None:
    ways = [Sampling(), Sampling(temperature=0.8, seed=7), Sampling(temperature=1.0, top_p=0.9),
            Sampling(repeat_penalty=1.2)]  # fmt: skip
    requests = [Request(str(n), p, s, max_tokens=20)
                for n, (p, s) in enumerate(zip(prompts(engine), ways, strict=True))]  # fmt: skip
    found = run(engine, requests)
    for r in requests:
        want = alone.generate_ids(r.prompt, 20, sampling=r.sampling, ignore_eos=True)
        assert tokens(found[r.id]) == want
        last = found[r.id][-1]
        assert last.finish == "length" and last.usage is not None
        assert last.usage.completion_tokens == 20 and last.usage.prompt_tokens == len(r.prompt)
        assert all(e.usage is None and not e.finish for e in found[r.id][:-1])


def test_a_known_beginning_is_not_computed_again(engine: Engine, alone: Model) -> None:
    first = run(engine, [Request("a", tuple(LONG), max_tokens=8)])["a"]
    again = run(engine, [Request("b", tuple(LONG), max_tokens=8)])["b"]
    other = run(engine, [Request("c", (*LONG[:70], 5, 6), max_tokens=8)])["c"]
    assert first[-1].usage and again[-1].usage and other[-1].usage
    assert first[-1].usage.cached_tokens == 0
    assert again[-1].usage.cached_tokens == 96 and tokens(again) == tokens(first)
    assert other[-1].usage.cached_tokens == 64
    assert tokens(other) == alone.generate_ids([*LONG[:70], 5, 6], 8, ignore_eos=True)


@pytest.mark.parametrize("length", [90, 96, 15, 16])
def test_choices_share_the_prompt(engine: Engine, alone: Model, length: int) -> None:
    prompt = [2000 + length, *LONG[: length - 1]]
    way = Sampling(temperature=1.0, seed=40)
    found = run(engine, [Request("n", tuple(prompt), way, max_tokens=20, choices=6)])["n"]
    for choice in range(6):
        own = Sampling(temperature=1.0, seed=40 + choice)
        assert tokens(found, choice) == alone.generate_ids(prompt, 20, sampling=own,
                                                           ignore_eos=True)  # fmt: skip
    (usage,) = [e.usage for e in found if e.usage]
    assert usage.prompt_tokens == length and usage.completion_tokens == 120


def test_preempted_ones_end_the_same(engine: Engine, alone: Model) -> None:
    """Four sequences that want 15 blocks each, of 40; drawn, so that no draft ends one early."""
    before = engine.stats().preemptions
    ways = [Sampling(temperature=1.0, seed=n) for n in range(4)]
    requests = [Request(str(n), (n + 1, *LONG), w, max_tokens=130) for n, w in enumerate(ways)]
    found = run(engine, requests)
    assert engine.stats().preemptions > before
    for r, w in zip(requests, ways, strict=True):
        want = alone.generate_ids(r.prompt, 130, sampling=w, ignore_eos=True)
        assert tokens(found[r.id]) == want
    assert sum(e.usage.preemptions for f in found.values() for e in f if e.usage) > 0


def test_ends(engine: Engine, alone: Model) -> None:
    (prompt, *_) = prompts(engine)
    made = alone.generate_ids(prompt, 12, ignore_eos=True)
    found = run(engine, [Request("s", prompt, max_tokens=12, ends=frozenset({made[5]})),
                         Request("c", tuple(LONG * 2 + LONG[:50]), max_tokens=50)])  # fmt: skip
    cut = made.index(made[5])
    assert tokens(found["s"]) == made[:cut] and found["s"][-1].finish == "stop"
    assert len(tokens(found["c"])) == 6 and found["c"][-1].finish == "length"


def test_abort(engine: Engine) -> None:
    engine.add(Request("a", tuple(LONG), max_tokens=100, choices=2))
    engine.add(Request("b", tuple(LONG), max_tokens=5))
    for _ in range(6):
        engine.step()
    engine.abort("a", choice=1)
    engine.abort("unknown")
    (end,) = [e for e in engine.step() if e.finish]
    assert end.choice == 1 and end.finish == "cancelled" and end.usage is None
    engine.abort("a")
    found = run(engine)
    assert found["a"][-1].finish == "cancelled" and found["a"][-1].usage
    assert engine.stats().blocks_used == 0


def test_what_is_refused(engine: Engine) -> None:
    with pytest.raises(OptionError, match="prompt is empty"):
        engine.add(Request("x", ()))
    with pytest.raises(OptionError, match="token id -1"):
        engine.add(Request("x", (5, -1)))
    with pytest.raises(ContextOverflow, match="256 tokens, the context holds 256"):
        engine.add(Request("x", (5,) * 256))
    for n in range(12):
        engine.add(Request(str(n), (5,), max_tokens=2))
    with pytest.raises(OptionError, match="already"):
        engine.add(Request("0", (5,)))
    with pytest.raises(QueueFull, match="12 answers wait") as full:
        engine.add(Request("x", (5,)))
    assert full.value.retry_after_s >= 1
    run(engine)


def test_deadline(engine: Engine) -> None:
    found = run(engine, [Request("t", (5,), max_tokens=200, timeout_s=0.03),
                         Request("u", (6,), max_tokens=30)])  # fmt: skip
    assert found["t"][-1].failure is not None
    assert found["t"][-1].failure.kind == "DeadlineExceeded"
    assert 0 < len(tokens(found["t"])) < 200 and len(tokens(found["u"])) == 30


def test_first_come_first_served(engine: Engine) -> None:
    """Requests begin in the order they came, also where a long prompt is in front."""
    lengths = [150, 3, 40, 3, 80, 3]
    found = run(engine, [Request(str(n), tuple(range(50 + n, 50 + n + k)), max_tokens=4)
                         for n, k in enumerate(lengths)])  # fmt: skip
    assert list(found) == [str(n) for n in range(len(lengths))]
