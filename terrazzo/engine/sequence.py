"""The state of a request while the engine has it: a Job, and a Sequence for each of its choices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from terrazzo.engine.blocks import BLOCK, Key, key
from terrazzo.engine.grammar import Matcher
from terrazzo.engine.request import Logprob, Request, Usage


class Sequence:
    """One choice. `tokens` are the prompt and what came after; keys and values of the first
    `computed` are in `blocks`, whose names, as far as they are full, are `keys`."""

    __slots__ = (
        "blocks", "choice", "computed", "job", "keys", "matcher", "most_tokens", "named", "pages",
        "sampling", "tokens", "_ids", "_ids_known",
    )  # fmt: skip

    def __init__(
        self, job: Job, choice: int, keys: list[Key], context: int, matcher: Matcher | None
    ) -> None:
        given = job.request.sampling
        seed = (given.seed + choice) & 0xFFFF_FFFF_FFFF_FFFF
        self.job, self.choice, self.matcher = job, choice, matcher
        self.sampling = given if not choice else replace(given, seed=seed)
        self.tokens: list[int] = list(job.request.prompt)
        self.computed = 0
        self.keys = list(keys)
        self.named = 0  # of how many keys the block has been given its name
        self.blocks: list[int] = []
        self.most_tokens = min(len(self.tokens) + job.request.max_tokens, context)
        self.pages = np.zeros(
            -(-self.most_tokens // BLOCK), np.int32
        )  # `blocks`, as a step takes them
        self._ids, self._ids_known = np.zeros(0, np.int32), 0

    @property
    def missing(self) -> int:
        """Tokens whose keys and values are to be computed before the next one is drawn."""
        return len(self.tokens) - self.computed

    @property
    def most_drafted(self) -> int:
        """How long a draft may be: one more token is drawn after it."""
        return self.most_tokens - len(self.tokens) - 1

    @property
    def wants_prompt(self) -> bool:
        """Whether log probabilities of the prompt's tokens are still to be found with this one."""
        job = self.job
        return (
            job.request.prompt_logprobs
            and self.choice == 0
            and job.prompt_found < len(job.request.prompt) - 1
        )

    def text(self) -> np.ndarray:
        """`tokens` as an array."""
        if not len(self._ids):
            self._ids = np.zeros(len(self.pages) * BLOCK, np.int32)
        new = self.tokens[self._ids_known :]
        self._ids[self._ids_known : len(self.tokens)] = new
        self._ids_known = len(self.tokens)
        return self._ids[: self._ids_known]

    def add_block(self, block: int) -> None:
        self.pages[len(self.blocks)] = block
        self.blocks.append(block)

    def put_block(self, index: int, block: int) -> None:
        self.pages[index] = self.blocks[index] = block

    def full_keys(self) -> list[Key]:
        """`keys`, brought up to the tokens there are now."""
        while len(self.keys) < len(self.tokens) // BLOCK:
            at = len(self.keys) * BLOCK
            before = self.keys[-1] if self.keys else b""
            self.keys.append(key(before, self.tokens[at : at + BLOCK]))
        return self.keys


class Job:
    """A request, its figures, and what its choices have in common. Times are those of
    `time.perf_counter`. `edited`: more is done to its logits than repeat penalties; `plain`: not
    even looked at; `prompt_found`: the prompt's log probabilities found so far, of which the first
    event takes those in `prompt_logprobs`."""

    def __init__(self, request: Request, arrived: float) -> None:
        self.request = request
        self.biased = np.array(list(request.bias), np.int32) if request.bias else None
        self.bias = np.array(list(request.bias.values()), np.float32) if request.bias else None
        self.edited = bool(request.bias or request.grammar or request.sampling.counts)
        self.plain = not (self.edited or request.prompt_logprobs or request.logprobs is not None)
        self.prompt_found = 0
        self.prompt_logprobs: tuple[Logprob, ...] = ()
        self.arrived = arrived
        self.deadline = None if request.timeout_s is None else arrived + request.timeout_s
        self.admitted = self.first_token = 0.0
        self.active: dict[int, Sequence] = {}
        self.cached_tokens = self.completion_tokens = self.preemptions = 0
        self.drafted_tokens = self.accepted_tokens = 0

    def usage(self, now: float) -> Usage:
        admitted = self.admitted or now
        first = self.first_token or now
        return Usage(
            prompt_tokens=len(self.request.prompt),
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            queue_s=admitted - self.arrived,
            prefill_s=max(first - admitted, 0.0),
            decode_s=max(now - first, 0.0),
            preemptions=self.preemptions,
        )
