"""Which tokens of which sequences the next step takes.

First come, first served: a step takes one token of every sequence that decodes, then prompts in
order of arrival as far as the budget of tokens goes. When blocks run out, the youngest sequence
gives up its own and waits, first in line, to be computed again; the oldest always goes on, so that
everything ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from terrazzo.engine.blocks import BLOCK, Blocks
from terrazzo.engine.sequence import Sequence


class Scheduler:
    """`tokens`: of a step at most; `mixed_tokens`: of prompts in a step in which sequences decode;
    `parallel`: sequences that run at a time; `rows`: logits of a step at most. Everything in
    `running` is older than everything in `waiting`; both are in order of age."""

    def __init__(
        self, blocks: Blocks, parallel: int, tokens: int, mixed_tokens: int, rows: int
    ) -> None:
        self.blocks = blocks
        self.spare_rows = rows - parallel  # each has one for the token it draws
        self.parallel, self.tokens, self.mixed_tokens = parallel, tokens, mixed_tokens
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.preemptions = self.hit_tokens = 0
        self.left = 0  # drafts' tokens that the last step scheduled has room for

    def schedule(self) -> dict[Sequence, int]:
        """The sequences of the next step and how many missing tokens of each it computes; blocks
        for these are the sequences' own."""
        work: dict[Sequence, int] = {}
        for seq in list(self.running):
            if seq.missing == 1 and self._make_room(seq, work):
                work[seq] = 1
        tokens = min(self.mixed_tokens, self.tokens - len(work)) if work else self.tokens
        rows = self.spare_rows
        for seq in self._at_prompts():
            most = min(tokens, rows) if seq.wants_prompt else tokens
            if most > 0 and self._make_room(seq, work):
                n = work[seq] = min(seq.missing, most)
                tokens -= n
                rows -= n if seq.wants_prompt else 0
            if not tokens:
                break
        self.left = min(self.tokens - sum(work.values()), rows)
        return work

    def decoding(self, work: Mapping[Sequence, int]) -> dict[Sequence, int]:
        """The sequences of a step that draw their next token, and how long a draft may be."""
        return {s: s.most_drafted for s, n in work.items() if n == s.missing == 1}

    def reserve(self, seq: Sequence, draft: int) -> int:
        """How many of a draft's tokens there are blocks for."""
        while len(seq.blocks) * BLOCK < seq.computed + 1 + draft:
            if self.blocks.free <= len(self.running):
                return len(seq.blocks) * BLOCK - seq.computed - 1
            block = self.blocks.take()
            assert block is not None
            seq.add_block(block)
        return draft

    def _at_prompts(self) -> Iterator[Sequence]:
        """Those that run and miss more than a token, then those that wait as they are admitted."""
        for seq in list(self.running):
            if seq.missing > 1:
                yield seq
        while self.waiting and self._admit(self.waiting[0]):
            seq = self.waiting.popleft()
            self.running.append(seq)
            yield seq

    def remove(self, seq: Sequence) -> None:
        """The sequence has ended."""
        if seq in self.running:
            self.running.remove(seq)
        else:
            self.waiting.remove(seq)
        self._let_go(seq)

    def name_blocks(self, seq: Sequence) -> None:
        """After a step: blocks that have become full may be shared."""
        full = seq.computed // BLOCK
        if full > seq.named:
            keys = seq.full_keys()
            for n in range(seq.named, full):
                self.blocks.name(seq.blocks[n], keys[n])
            seq.named = full

    # -- blocks ---------------------------------------------------------------------------------
    def _make_room(self, seq: Sequence, work: dict[Sequence, int]) -> bool:
        """A block that is the sequence's own where its next token goes (the prompt's others are
        there since it was admitted). False if it had to give up its blocks, now or before."""
        if not seq.blocks:
            return False
        at = seq.computed // BLOCK
        while True:
            if at == len(seq.blocks):
                block = self.blocks.take()
                if block is not None:
                    seq.add_block(block)
                    return True
            else:
                block = self.blocks.own(
                    seq.blocks[at], seq.keys[at] if at < len(seq.keys) else None
                )
                if block is not None:
                    seq.put_block(at, block)
                    return True
            youngest = self.running[-1]
            self._preempt(youngest)
            work.pop(youngest, None)
            if youngest is seq:
                return False

    def _admit(self, seq: Sequence) -> bool:
        """Give a waiting sequence all the blocks its tokens need, shared ones where its beginning
        is known. False if they are not there, or no place is free, or it is one of several choices
        and the first is still at the prompt that they will share."""
        if len(self.running) == self.parallel:
            return False
        sibling = self._sibling(seq)
        if sibling is not None and sibling.computed < len(seq.job.request.prompt):
            return False
        found = self.blocks.find(seq.full_keys())
        if seq.wants_prompt:  # what is not computed has no probabilities
            found = found[: seq.job.prompt_found // BLOCK]
            sibling = None
        computed = len(found) * BLOCK
        if sibling is not None and computed < (end := len(seq.job.request.prompt)):
            found = sibling.blocks[: -(-end // BLOCK)]
            computed = end
        computed = min(computed, len(seq.tokens) - 1)
        # One for every sequence that runs, so that none has to give way right after; one for the
        # copy of a block that is shared and has room left.
        needed = -(-len(seq.tokens) // BLOCK) - len(found)
        held = sum(1 for b in found if not self.blocks.refs[b])
        spare = len(self.running) + 1 if self.running else 0
        if self.blocks.free - held < needed + spare:
            return False
        for block in found:
            self.blocks.share(block)
            seq.add_block(block)
        for _ in range(needed):
            block = self.blocks.take()
            assert block is not None
            seq.add_block(block)
        seq.computed, seq.named = computed, computed // BLOCK
        self.hit_tokens += computed
        return True

    def _sibling(self, seq: Sequence) -> Sequence | None:
        """A running choice of the same request."""
        if len(seq.job.active) == 1:
            return None
        return next((s for s in self.running if s.job is seq.job), None)

    def _preempt(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self._let_go(seq)
        self.waiting.appendleft(seq)
        self.preemptions += 1
        seq.job.preemptions += 1

    def _let_go(self, seq: Sequence) -> None:
        self.blocks.release(seq.blocks)
        seq.blocks.clear()
        seq.computed = seq.named = 0
