"""One step of the model over scheduled sequences, as far as the tokens drawn. What the sequences
hold is only read, so that a step that failed can be run again in parts."""

from __future__ import annotations

import time
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

import numpy as np

from terrazzo.engine.logprobs import report
from terrazzo.engine.model import Model
from terrazzo.engine.options import Sampling
from terrazzo.engine.request import Logprob
from terrazzo.engine.sampler import Edit
from terrazzo.engine.sequence import Sequence
from terrazzo.engine.speculation import StepCost
from terrazzo.models.llama import Chunk

GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a step brought for one sequence: new tokens (none while its prompt goes on) and, if they
    are wanted, their log probabilities and those of prompt tokens."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[Logprob, ...] = ()
    prompt_logprobs: tuple[Logprob, ...] = ()


NOTHING = Drawn()


@dataclass(slots=True)
class _Part:
    """A sequence's share of a step: tokens start .. end, then the draft; logits from `first` on, of
    which those from `drawn` on are for tokens to draw."""

    seq: Sequence
    end: int
    draft: abc.Sequence[int]
    masks: abc.Sequence[np.ndarray]
    first: int
    drawn: int
    rows: int

    def after(self, row: int) -> abc.Sequence[int]:
        """The tokens before the one that logits row `row` is for."""
        drafted = row - self.drawn
        return After(self.seq.tokens, self.draft, drafted) if drafted else self.seq.tokens


class After(abc.Sequence[int]):
    """`tokens` and the first `count` of `draft`."""

    def __init__(self, tokens: abc.Sequence[int], draft: abc.Sequence[int], count: int) -> None:
        self._tokens, self._draft = tokens, draft[:count]

    def __len__(self) -> int:
        return len(self._tokens) + len(self._draft)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> abc.Sequence[int]: ...
    def __getitem__(self, at: int | slice) -> int | abc.Sequence[int]:
        return [*self._tokens, *self._draft][at]


class Stepper:
    def __init__(self, model: Model) -> None:
        self.model = model
        self._words = -(-model.config.vocab_size // 32)

    def run(
        self, work: Mapping[Sequence, int], drafts: Mapping[Sequence, abc.Sequence[int]]
    ) -> list[Drawn]:
        """`work`: how many missing tokens of each sequence are computed; one with a draft has all
        of them computed, and the draft's tokens looked at. One result for each sequence."""
        step, sampler = self.model.step, self.model.sampler
        parts: list[_Part] = []
        chunks: list[Chunk] = []
        rows, plain = 0, True
        for seq, n in work.items():
            part = self._part(seq, n, drafts.get(seq, ()), rows)
            tokens = seq.tokens[seq.computed : part.end]
            if part.draft:
                tokens += part.draft
            chunks.append(Chunk(seq.pages, tokens, seq.computed, part.rows))
            parts.append(part)
            rows += part.rows
            plain = plain and seq.job.plain
        options = [
            p.seq.sampling if r >= p.drawn else GREEDY
            for p in parts
            for r in range(p.first, p.first + p.rows)
        ]
        history = [p.after(r) for p in parts for r in range(p.first, p.first + p.rows)]
        if plain:
            step.run(chunks, sampler.choose(options, history) if rows else None)
            return self._results(parts, sampler.token[:rows].tolist(), {})
        logits = step.run(chunks)
        raw = {
            r: logits[r].copy()
            for p in parts
            if p.seq.job.request.logprobs is not None or p.drawn > p.first
            for r in range(p.first, p.first + p.rows)
        }
        if rows:
            sampler.draw(options, history, [e for p in parts for e in self._edits(p)])
        return self._results(parts, sampler.token[:rows].tolist(), raw)

    def measure(self, cost: StepCost) -> None:
        """What a step of one token and one of several take, before there is anything to do."""
        step, sampler = self.model.step, self.model.sampler
        page = np.zeros(1, np.int32)
        for n in (1, min(8, step.budget.tokens)):
            chunk = [Chunk(page, [0] * n, 0, n)]
            sampler.greedy.set("rows", n)
            times: list[float] = []
            for _ in range(4):
                start = time.perf_counter()
                step.run(chunk, sampler.greedy)
                times.append(time.perf_counter() - start)
            cost.note(n, min(times))
        step.cache.clear(0)

    def _part(self, seq: Sequence, n: int, draft: abc.Sequence[int], first: int) -> _Part:
        end = seq.computed + n
        last = end == len(seq.tokens)
        masks: abc.Sequence[np.ndarray] = ()
        if last and seq.matcher is not None:
            draft, masks = self._masks(seq, draft)
        prompt = n - last if seq.wants_prompt else 0
        rows = prompt + (1 + len(draft) if last else 0)
        return _Part(seq, end, draft, masks, first, first + prompt, rows)

    def _masks(
        self, seq: Sequence, draft: abc.Sequence[int]
    ) -> tuple[abc.Sequence[int], list[np.ndarray]]:
        """Which tokens the grammar allows at each place of the draft, up to the first token of it
        that it forbids."""
        matcher, masks, taken = seq.matcher, [], 0
        assert matcher is not None
        try:
            while True:
                masks.append(mask := np.zeros(self._words, np.uint32))
                matcher.mask(mask)
                if taken == len(draft) or not matcher.accept(draft[taken]):
                    return draft[:taken], masks
                taken += 1
        finally:
            matcher.rollback(taken)

    def _edits(self, p: _Part) -> abc.Sequence[Edit | None]:
        job = p.seq.job
        prompt = [None] * (p.drawn - p.first)
        if not job.edited:
            return prompt + [None] * (p.rows - len(prompt))
        start = len(job.request.prompt)
        return prompt + [
            Edit(
                p.after(r)[start:] if p.seq.sampling.counts else (),
                job.biased,
                job.bias,
                p.masks[r - p.drawn] if p.masks else None,
            )
            for r in range(p.drawn, p.first + p.rows)
        ]

    def _results(
        self, parts: abc.Sequence[_Part], tokens: abc.Sequence[int], raw: Mapping[int, np.ndarray]
    ) -> list[Drawn]:
        out: list[Drawn] = []
        for p in parts:
            if not p.rows:
                out.append(NOTHING)
                continue
            top = p.seq.job.request.logprobs
            row = p.drawn
            for token in p.draft:
                if tokens[row] != token:
                    break
                row += 1
            kept = tuple(tokens[p.drawn : row + 1]) if p.rows > p.drawn - p.first else ()
            logprobs = (
                tuple(report(raw[p.drawn + i], t, top) for i, t in enumerate(kept))
                if top is not None
                else ()
            )
            prompt = tuple(
                report(raw[r], p.seq.tokens[p.seq.computed + 1 + r - p.first], top or 0)
                for r in range(p.first, p.drawn)
            )
            out.append(Drawn(kept, logprobs, prompt))
        return out
