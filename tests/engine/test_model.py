"""The loaded model as its users see it: turns taken, threads, forks, stops, seeds, limits."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import terrazzo
from terrazzo.engine.model import Model
from terrazzo.engine.options import Sampling, StopText
from terrazzo.errors import ContextOverflow, OptionError
from terrazzo.models import store
from terrazzo.models.llama import Chunk

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def model() -> Model:
    return terrazzo.load(store.pull("smollm2"), threads=2, context=256)


def text(model: Model, prompt: str = PROMPT, n: int = 12, **options: Any) -> str:
    return "".join(model.generate(prompt, n, **options))


def test_text_and_ids_agree(model: Model) -> None:
    ids = model.generate_ids(model.tokenizer.encode(PROMPT), 12)
    assert text(model) == model.tokenizer.decode(ids)
    assert "Paris" in text(model)


def test_generations_take_turns(model: Model) -> None:
    """Two half-read generators share one cache; neither sees the other."""
    alone = text(model), text(model, "2 + 2 =")
    a, b = model.generate(PROMPT, 12), model.generate("2 + 2 =", 12)
    mixed = ["", ""]
    for _ in range(12):
        mixed[0] += next(a, "")
        mixed[1] += next(b, "")
    assert (mixed[0] + "".join(a), mixed[1] + "".join(b)) == alone


def test_two_threads_at_once(model: Model) -> None:
    prompts = [PROMPT, "Once upon a time"]
    alone = [text(model, p) for p in prompts]
    got = ["", ""]

    def work(n: int) -> None:
        got[n] = text(model, prompts[n])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert got == alone


def test_fork_after_load(model: Model) -> None:
    """A child makes its own worker threads and gets the same text."""
    expected = text(model)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, text(model).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        got = pipe.read().decode()
    assert os.waitpid(pid, 0)[1] == 0
    assert got == expected
    assert text(model) == expected


def test_common_beginning_is_not_computed_again(model: Model) -> None:
    text(model, PROMPT, 4)
    text(model, PROMPT + " Paris", 1)
    assert model.stats.reused_tokens == len(model.tokenizer.encode(PROMPT))


def test_seed_decides(model: Model) -> None:
    def drawn(seed: int) -> str:
        return text(model, PROMPT, 16, temperature=1.0, top_k=50, seed=seed)

    assert drawn(1) == drawn(1)
    assert len({drawn(s) for s in range(4)}) > 1


def test_penalty_changes_the_text(model: Model) -> None:
    assert text(model, "a a a a a a", 8, repeat_penalty=2.0) != text(model, "a a a a a a", 8)


def test_logits_in_pieces_are_those_of_one_step(model: Model) -> None:
    ids = model.tokenizer.encode("A sentence that is longer than one piece of logits. " * 4)
    whole = model.logits(ids)
    assert whole.shape == (len(ids), model.config.vocab_size)
    assert (model.logits(ids[:7])[6] == whole[6]).all()


def test_stop_text_is_not_shown(model: Model) -> None:
    assert "Paris" not in "".join(model.generate(PROMPT, 12, stop=["Paris"]))
    assert model.stats.stop == "stop"


def test_stop_text_over_piece_borders() -> None:
    cut = StopText(("END", "ENOUGH"))
    shown = [cut.push(p) for p in ("a", "E", "N", "O", "x", "EN", "D more")]
    assert "".join(shown) == "aENOx"
    assert cut.hit
    assert cut.flush() == ""


def test_context_is_a_limit_with_both_numbers(model: Model) -> None:
    ids = [5] * 300
    with pytest.raises(ContextOverflow, match=r"300 tokens, the context holds 256"):
        model.generate_ids(ids)
    assert len(model.generate_ids([5] * 250, 100)) <= 6
    assert model.stats.stop in ("context", "eos")


@pytest.mark.parametrize(
    "bad",
    [{"temperature": -1.0}, {"top_p": 1.5}, {"top_k": -1}, {"repeat_penalty": 0.0}, {"seed": -1}],
)
def test_options_have_ranges(bad: dict[str, float]) -> None:
    with pytest.raises(OptionError, match=next(iter(bad))):
        Sampling(**bad)  # type: ignore[arg-type]


def test_wrong_requests(model: Model, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="prompt is empty"):
        model.generate_ids([])
    with pytest.raises(OptionError, match="outside the vocabulary"):
        model.generate_ids([10**6])
    with pytest.raises(OptionError, match="unknown option 'heat'"):
        text(model, heat=1.0)
    with pytest.raises(OptionError, match="activations"):
        terrazzo.load(model.path, activations="int3")
    with pytest.raises(OptionError, match="context"):
        terrazzo.load(model.path, context=10**9)


def test_too_little_memory_says_both_numbers(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from terrazzo.errors import MemoryShortage
    from terrazzo.runtime import arena

    monkeypatch.setattr(arena, "available_memory", lambda: 10_000_000)
    with pytest.raises(
        MemoryShortage, match=r"KV cache of 256 tokens needs [\d,]+ B .* 10,000,000 B"
    ):
        terrazzo.load(model.path, context=256)


def test_sequences_together_are_as_alone(model: Model) -> None:
    """A step of several sequences gives each the logits, bit by bit, that it gets alone."""
    several = terrazzo.load(model.path, threads=2, context=64, sequences=3)
    pages = np.arange(several.step.cache.pages, dtype=np.int32).reshape(3, -1)
    prompts = [[5, 9, 200], [17], [30, 31, 32, 33, 34]]
    got = several.step.run([Chunk(p, ids, 0) for p, ids in zip(pages, prompts, strict=True)]).copy()
    alone = terrazzo.load(model.path, threads=1, context=64)
    for row, ids in zip(got, prompts, strict=True):
        own = np.arange(alone.step.cache.pages, dtype=np.int32)
        assert np.array_equal(row, alone.step.run([Chunk(own, ids, 0)])[0])
    with pytest.raises(OptionError, match="sequences is 0"):
        terrazzo.load(model.path, sequences=0)
