"""What the engine says of itself: plain values that cross a process boundary."""

from __future__ import annotations

from dataclasses import dataclass

FREE, IDLE = -1, -2


@dataclass(frozen=True)
class EngineStats:
    """A moment's state, and sums since the start. Tokens, blocks, seconds.

    `owners` are the ids of requests that hold blocks. `block_owner` has a number for each block:
    of its first holder in `owners`, FREE, or IDLE (held by nobody, kept because a prompt may begin
    with it); `block_refs` the number of sequences that hold it. `used_slots` are the tokens whose
    keys and values are in held blocks (of shared blocks once), `slots` the places these have;
    `held_tokens` are the running sequences' computed tokens, shared ones once for each: what they
    would fill if none shared. While sequences decode, no step took more than `mixed_step_prompt`
    tokens of prompts nor longer than `longest_mixed_step_s`.
    """

    running: int
    waiting: int
    block_refs: tuple[int, ...]
    block_owner: tuple[int, ...]
    owners: tuple[str, ...]
    used_slots: int
    slots: int
    held_tokens: int
    steps: int
    step_s: float
    longest_mixed_step_s: float
    mixed_step_prompt: int
    requests: int
    failed: int
    prompt_tokens: int
    hit_tokens: int
    tokens: int
    drafted_tokens: int
    accepted_tokens: int
    preemptions: int

    @property
    def blocks_used(self) -> int:
        return sum(1 for refs in self.block_refs if refs)
