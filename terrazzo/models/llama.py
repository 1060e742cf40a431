"""A step of the Llama decoder: token ids in, logits out.

A step takes any mix of sequences and lengths up to its budgets (prompts in pieces, single tokens):
which tokens, positions, pages and rows is data in the step's index arrays, never a new recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from terrazzo.errors import OptionError
from terrazzo.kernels.attention_parts import PART
from terrazzo.models.config import LlamaConfig
from terrazzo.models.kv_cache import PAGE, KVCache
from terrazzo.models.llama_layers import SPAN, SPLIT, Layers, StepIndices
from terrazzo.models.loading import LlamaWeights
from terrazzo.runtime.recorder import Recorder
from terrazzo.runtime.recording import Recording
from terrazzo.targets.cpu.pool import private_memory

LOGIT_ROWS = 32
UNITS = 4  # of attention for each thread: with fewer, long contexts are split


@dataclass(frozen=True)
class Chunk:
    """Consecutive tokens of one sequence. `pages`: the sequence's page numbers, from its first
    token on; `start`: position of the first token; `logits`: of how many last tokens logits are
    wanted."""

    pages: np.ndarray
    tokens: Sequence[int]
    start: int
    logits: int = 1

    @property
    def parts(self) -> int:
        """Parts of the context that its last token sees."""
        return -(-(self.start + len(self.tokens)) // PART)


def whole_spans(c: Chunk, seq: int, at: int) -> list[tuple[int, ...]]:
    """Spans of SPAN tokens, which lie at row `at` of the step, over the whole context each; as
    StepIndices has them."""
    out: list[tuple[int, ...]] = []
    for i in range(0, len(c.tokens), SPAN):
        size = min(SPAN, len(c.tokens) - i)
        parts = -(-(c.start + i + size) // PART)
        out.append((seq, at + i, size, c.start + i, 0, parts, at + i))
    return out


def part_spans(c: Chunk, seq: int, at: int, to: int) -> list[tuple[int, ...]]:
    """A span for each part of the context, with results from row `to` on."""
    count = len(c.tokens)
    return [(seq, at, count, c.start, i, i + 1, to + i * count) for i in range(c.parts)]


@dataclass(frozen=True)
class Budget:
    """What one step can hold at most. `pages` is the size of the whole KV cache."""

    tokens: int
    seqs: int
    pages: int
    rows: int = LOGIT_ROWS

    @property
    def spans(self) -> int:
        return self.seqs + self.tokens // SPAN + SPLIT


class LlamaStep:
    """The recorded step. `int8`: activations are quantised, 16 to a scale, before each product."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: LlamaWeights,
        cache: KVCache,
        budget: Budget,
        *,
        int8: bool,
        threads: int,
    ) -> None:
        self.config, self.weights, self.cache, self.budget = config, weights, cache, budget
        self.indices = StepIndices.empty(
            budget.tokens, budget.seqs, -(-config.context_length // PAGE), budget.spans, budget.rows
        )
        size = 4 * budget.rows * config.vocab_size
        self.logits = private_memory(size).view(np.float32).reshape(budget.rows, -1)
        recorder = Recorder("step", threads)
        Layers(config, weights, cache, self.indices, self.logits, recorder, int8=int8)
        self.recording, self.plan = recorder.finish(), recorder.plan

    def run(self, chunks: Sequence[Chunk], then: Recording | None = None) -> np.ndarray:
        """Run one step, and `then` in the same call; returns f32 [rows, vocab], the chunks' wanted
        logits in order: a view that the next step overwrites. Raises OptionError if the chunks
        exceed the budget."""
        tokens = sum(len(c.tokens) for c in chunks)
        rows = sum(c.logits for c in chunks)
        spans = sum(-(-len(c.tokens) // SPAN) for c in chunks)
        b = self.budget
        if tokens > b.tokens or len(chunks) > b.seqs or rows > b.rows or spans + SPLIT > b.spans:
            raise OptionError(
                f"a step of {tokens} tokens, {len(chunks)} sequences, {rows} rows exceeds {b}"
            )
        ix, at, row = self.indices, 0, 0
        threads = self.recording.threads
        idle = threads > 1 and spans * self.config.kv_heads < UNITS * threads
        left = SPLIT if idle else 0  # rows for parts' results
        found: list[tuple[int, ...]] = []
        ix.joined[0, :tokens], ix.joined[1:, :tokens] = np.arange(tokens), 1
        for n, c in enumerate(chunks):
            count = len(c.tokens)
            self.weights.rope.cover(c.start + count)
            where = np.arange(c.start, c.start + count, dtype=np.int32)
            ix.ids[at : at + count] = c.tokens
            ix.position[at : at + count] = where
            ix.slot[at : at + count] = c.pages[where // PAGE] * PAGE + where % PAGE
            used = -(-(c.start + count) // PAGE)
            ix.table[n, :used] = c.pages[:used]
            parts = c.parts
            if count <= SPAN and parts > 1 and parts * count <= left:
                left -= parts * count
                to = tokens + left
                ix.joined[0, at : at + count] = np.arange(to, to + count)
                ix.joined[1:, at : at + count] = [[parts], [count]]
                found += part_spans(c, n, at, to)
            else:
                found += whole_spans(c, n, at)
            ix.rows[row : row + c.logits] = np.arange(at + count - c.logits, at + count)
            at, row = at + count, row + c.logits
        ix.span[:, : len(found)] = np.array(found, np.int32).T
        self.recording.set("tokens", tokens)
        self.recording.set("spans", len(found))
        self.recording.set("rows", rows)
        self.recording.then(then)
        self.recording.replay()
        return self.logits[:rows]
