"""The state of a request while the engine has it: a Job, and a Sequence for each of its choices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from terrazzo.engine.blocks import BLOCK, Key, key
from terrazzo.engine.request import Request, Usage


class Sequence:
    """One choice. `tokens` are the prompt and what came after; keys and values of the first
    `computed` are in `blocks`, whose names, as far as they are full, are `keys`."""

    __slots__ = (
        "blocks", "choice", "computed", "job", "keys", "named", "pages", "sampling", "tokens",
    )  # fmt: skip

    def __init__(self, job: Job, choice: int, keys: list[Key], most_blocks: int) -> None:
        given = job.request.sampling
        seed = (given.seed + choice) & 0xFFFF_FFFF_FFFF_FFFF
        self.job, self.choice = job, choice
        self.sampling = given if not choice else replace(given, seed=seed)
        self.tokens: list[int] = list(job.request.prompt)
        self.computed = 0
        self.keys = list(keys)
        self.named = 0  # of how many keys the block has been given its name
        self.blocks: list[int] = []
        self.pages = np.zeros(most_blocks, np.int32)  # `blocks`, as a step takes them

    @property
    def missing(self) -> int:
        """Tokens whose keys and values are to be computed before the next one is drawn."""
        return len(self.tokens) - self.computed

    @property
    def made(self) -> int:
        return len(self.tokens) - len(self.job.request.prompt)

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
    """A request and its figures; times are those of `time.perf_counter`."""

    def __init__(self, request: Request, arrived: float) -> None:
        self.request = request
        self.arrived = arrived
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
