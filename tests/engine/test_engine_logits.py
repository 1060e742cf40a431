"""What requests may do to logits, and what they are told of them, against NumPy on the model's own
logits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from engine_runs import run, tokens

import terrazzo
from terrazzo.engine.engine import Engine
from terrazzo.engine.logprobs import likeliest
from terrazzo.engine.model import Model
from terrazzo.engine.options import EngineOptions, Sampling
from terrazzo.engine.request import Logprob, Request
from terrazzo.errors import OptionError
from terrazzo.models import store

PROMPT = tuple(range(3000, 3045))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(EngineOptions(str(store.pull("smollm2")), context=256, parallel=4, blocks=40,
                                threads=2, step_tokens=64, mixed_tokens=32))  # fmt: skip


@pytest.fixture(scope="module")
def alone() -> Model:
    return terrazzo.load(store.pull("smollm2"), threads=2, context=256)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    return (
        x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1))[:, None]
    )


def greedy(alone: Model, prompt: tuple[int, ...], count: int, way: Sampling,
           bias: dict[int, float]) -> list[int]:  # fmt: skip
    """By the rules as they are written down: repeat penalty, then presence and frequency, bias."""
    ids = list(prompt)
    for _ in range(count):
        x = alone.logits(ids)[-1].copy()
        for t in set(ids[-way.repeat_last :]):
            x[t] = (
                x[t] / np.float32(way.repeat_penalty)
                if x[t] > 0
                else x[t] * np.float32(way.repeat_penalty)
            )
        for t, n in Counter(ids[len(prompt) :]).items():
            x[t] -= np.float32(n * way.frequency_penalty + way.presence_penalty)
        for t, b in bias.items():
            x[t] += np.float32(b)
        ids.append(int(x.argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("way", [
    Sampling(presence_penalty=1.5), Sampling(frequency_penalty=1.9),
    Sampling(presence_penalty=-0.5, frequency_penalty=2.0, repeat_penalty=1.3, repeat_last=20),
])  # fmt: skip
def test_penalties(engine: Engine, alone: Model, way: Sampling) -> None:
    bias = {284: -100.0, 4052: 3.5} if way.frequency_penalty == 2.0 else {}
    prompt = tuple(alone.tokenizer.encode("Once upon a time"))
    request = Request("p", prompt, way, max_tokens=40, bias=bias)
    found = run(engine, [request, Request("other", prompt, max_tokens=40)])
    assert tokens(found["p"]) == greedy(alone, prompt, 40, way, bias)
    assert tokens(found["p"]) != tokens(found["other"])
    if not bias:
        assert tokens(found["p"]) == alone.generate_ids(prompt, 40, sampling=way, ignore_eos=True)


def test_bias_forbids_and_forces(engine: Engine) -> None:
    usual = tokens(run(engine, [Request("a", PROMPT, max_tokens=6)])["a"])
    without = tokens(
        run(engine, [Request("b", PROMPT, max_tokens=6, bias={usual[0]: -100.0})])["b"]
    )
    always = tokens(run(engine, [Request("c", PROMPT, max_tokens=6, bias={77: 100.0})])["c"])
    assert usual[0] not in without and always == [77] * 6
    for bias in ({-1: 1.0}, {10**6: 1.0}, {5: float("nan")}):
        with pytest.raises(OptionError, match="bias"):
            engine.add(Request("d", PROMPT, bias=bias))


def close(found: Logprob, token: int, row: np.ndarray, top: int) -> None:
    assert found.token == token and abs(found.value - row[token]) < 1e-5
    best = np.argsort(-row, kind="stable")[:top]
    assert [t for t, _ in found.top] == best.tolist()
    assert np.allclose([v for _, v in found.top], row[best], atol=1e-5)


@pytest.mark.parametrize("top", [0, 5, 20])
def test_logprobs(engine: Engine, alone: Model, top: int) -> None:
    """Those of the model's logits, whatever else is done to them."""
    way = Sampling(temperature=1.3, seed=5, repeat_penalty=1.1, presence_penalty=0.3)
    request = Request("l", PROMPT, way, max_tokens=12, bias={300: 2.0}, logprobs=top, choices=2)
    found = run(engine, [request, Request("other", PROMPT, max_tokens=3)])
    for choice in range(2):
        made = tokens(found["l"], choice)
        rows = log_softmax(alone.logits([*PROMPT, *made]))[len(PROMPT) - 1 :]
        told = [x for e in found["l"] if e.choice == choice for x in e.logprobs]
        assert len(told) == 12
        for one, token, row in zip(told, made, rows, strict=False):
            close(one, token, row, top)
    assert all(not e.logprobs for e in found["other"])


def test_prompt_logprobs(engine: Engine, alone: Model) -> None:
    """Of all the prompt's tokens but the first, also where its beginning is known already, and
    where rows of logits are few beside long prompts."""
    prompts = [PROMPT * 2, PROMPT, PROMPT * 3, (7, 8)]
    requests = [Request(str(n), p, max_tokens=3, logprobs=2, prompt_logprobs=True)
                for n, p in enumerate(prompts)]  # fmt: skip
    found = run(engine, [Request("first", PROMPT * 2, max_tokens=3)])
    found |= run(engine, [*requests, Request("beside", (9,) * 50, max_tokens=20)])
    for n, p in enumerate(prompts):
        rows = log_softmax(alone.logits(p))
        told = found[str(n)][0].prompt_logprobs
        assert len(told) == len(p) - 1
        for one, token, row in zip(told, p[1:], rows, strict=False):
            close(one, token, row, 2)
        assert all(not e.prompt_logprobs for e in found[str(n)][1:])
    assert tokens(found["0"]) == tokens(found["first"])


def test_prompt_logprobs_survive_preemption(engine: Engine, alone: Model) -> None:
    requests = [Request(str(n), (n + 1, *PROMPT * 3), max_tokens=100, prompt_logprobs=True)
                for n in range(4)]  # fmt: skip
    before = engine.stats().preemptions
    found = run(engine, requests)
    assert engine.stats().preemptions > before
    for r in requests:
        rows = log_softmax(alone.logits(r.prompt))
        assert len(found[r.id][0].prompt_logprobs) == len(r.prompt) - 1
        for one, token, row in zip(
            found[r.id][0].prompt_logprobs, r.prompt[1:], rows, strict=False
        ):
            close(one, token, row, 0)


@pytest.mark.parametrize("size", [5, 128, 300, 5000])
def test_likeliest(size: int) -> None:
    x = np.random.default_rng(size).integers(0, size // 4 + 1, size).astype(np.float32)
    for count in (0, 1, 7, 20):
        assert likeliest(x, count) == np.argsort(-x, kind="stable")[:count].tolist()
