"""Drafts by a smaller model with the same vocabulary."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from terrazzo.engine.model import Model, load
from terrazzo.engine.options import CATCH_UP, draft_tokens
from terrazzo.engine.sequence import Sequence
from terrazzo.errors import OptionError
from terrazzo.models.llama import Chunk


class DraftModel:
    """Proposals by decoding with another model, all sequences together. Its cache has as many
    blocks as the engine's, and a sequence's are the same in both. It draws as the request says,
    with the request's random numbers, so that two models that think alike draw alike.

    What it computed of a sequence it knows only from its own steps: a beginning that the engine
    shares is computed once more, to the same bytes.
    """

    def __init__(self, path: str, model: Model, prompt_tokens: int) -> None:
        """`prompt_tokens`: of prompts that a step catches up with at most.
        Raises OptionError if the vocabulary is not the model's, and what `load` does."""
        self._prompt_tokens = prompt_tokens
        cache = model.step.cache
        sequences = model.step.budget.seqs
        self.model = load(path, threads=model.threads, sequences=sequences, pages=cache.pages,
                          tokens=draft_tokens(prompt_tokens, sequences),
                          rows=sequences)  # fmt: skip
        ours, its = model.tokenizer, self.model.tokenizer
        if ours.vocab_size != its.vocab_size or any(
            ours.piece(i) != its.piece(i) for i in range(ours.vocab_size)
        ):
            raise OptionError(
                f"the vocabulary of draft model {path} is not that of {model.path}",
                "choose a smaller model of the same family",
            )
        self.place_s = 0.0
        self._computed: dict[Sequence, tuple[int, int]] = {}

    def forget(self, seq: Sequence) -> None:
        """The sequence has ended."""
        self._computed.pop(seq, None)

    def propose(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, list[int]]:
        ready = self._caught_up(wanted)
        drafts: dict[Sequence, list[int]] = {seq: [] for seq in ready}
        while ready:
            start = time.perf_counter()
            for seq, token in zip(ready, self._draw(ready, drafts), strict=True):
                drafts[seq].append(token)
            took = time.perf_counter() - start
            self.place_s += (took - self.place_s) * (0.1 if self.place_s else 1.0)
            ready = [s for s in ready if len(drafts[s]) < wanted[s]
                     and drafts[s][-1] not in s.job.request.ends]  # fmt: skip
        for seq in drafts:
            # guesses that turn out right are computed again with what follows them
            self._computed[seq] = len(seq.tokens), seq.job.preemptions
        return drafts

    def _start(self, seq: Sequence) -> int:
        """Tokens computed of a sequence; none once it has lost its blocks."""
        computed, preemptions = self._computed.get(seq, (0, 0))
        return computed if preemptions == seq.job.preemptions else 0

    def _caught_up(self, seqs: Iterable[Sequence]) -> list[Sequence]:
        """Compute what is missing of prompts, as far as a step goes; those of which a few tokens
        are missing then."""
        chunks: list[Chunk] = []
        left = self._prompt_tokens
        for seq in seqs:
            start = self._start(seq)
            n = min(len(seq.tokens) - start - CATCH_UP, left)
            if n > 0:
                chunks.append(Chunk(seq.pages, seq.tokens[start : start + n], start, 0))
                self._computed[seq] = start + n, seq.job.preemptions
                left -= n
        if chunks:
            self.model.step.run(chunks)
        return [s for s in seqs if len(s.tokens) - self._start(s) <= CATCH_UP]

    def _draw(self, seqs: list[Sequence], drafts: Mapping[Sequence, list[int]]) -> list[int]:
        """One more token of each."""
        chunks: list[Chunk] = []
        texts: list[list[int]] = []
        for seq in seqs:
            texts.append(text := [*seq.tokens, *drafts[seq]])
            start = len(text) - 1 if drafts[seq] else self._start(seq)
            start = min(start, len(text) - 1)
            chunks.append(Chunk(seq.pages, text[start:], start))
        choose = self.model.sampler.choose([s.sampling for s in seqs], texts)
        self.model.step.run(chunks, choose)
        return self.model.sampler.token[: len(seqs)].tolist()
