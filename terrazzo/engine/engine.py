"""The engine: requests in, tokens out, many sequences in each step of the model.

    engine = Engine(EngineOptions("smollm2", context=2048))
    engine.add(Request("a", tuple(engine.tokenizer.encode("Once upon")), max_tokens=16))
    while engine.busy:
        for event in engine.step(): ...

One thread's: calls are not to overlap.
"""

from __future__ import annotations

import heapq
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import cast

from terrazzo.engine.blocks import BLOCK, Blocks, keys
from terrazzo.engine.draft_model import DraftModel
from terrazzo.engine.grammar import Grammars, Matcher
from terrazzo.engine.lookup import Lookup
from terrazzo.engine.model import load
from terrazzo.engine.options import EngineOptions
from terrazzo.engine.request import Event, Failure, Finish, Request, Usage
from terrazzo.engine.scheduler import Scheduler
from terrazzo.engine.sequence import Job, Sequence
from terrazzo.engine.speculation import Speculation, StepCost
from terrazzo.engine.stats import FREE, IDLE, EngineStats
from terrazzo.engine.stepper import Drawn, Stepper
from terrazzo.errors import (
    ContextOverflow,
    DeadlineExceeded,
    GrammarError,
    OptionError,
    QueueFull,
    TerrazzoError,
)
from terrazzo.models.kv_cache import Kind
from terrazzo.models.llama import LOGIT_ROWS

log = logging.getLogger(__name__)


class Engine:
    def __init__(self, options: EngineOptions) -> None:
        """Loads the model. Raises what `load` does."""
        o = self.options = options
        rows = o.parallel + LOGIT_ROWS
        self.model = load(
            o.model, threads=o.threads, context=o.context, sequences=o.parallel,
            kv=cast(Kind | None, o.kv), pages=o.blocks, tokens=o.step_tokens,
            rows=rows,
        )  # fmt: skip
        cache = self.model.step.cache
        self._caches = [cache]
        self.tokenizer = self.model.tokenizer
        self.context = min(self.model.context, cache.pages * BLOCK)
        self.blocks = Blocks(cache.pages, self._copy_block, self._clear_block)
        self.scheduler = Scheduler(self.blocks, o.parallel, o.step_tokens, o.mixed_tokens, rows)
        self.model.sampler.compile()
        self._stepper = Stepper(self.model)
        self.speculation = self._speculation()
        self._jobs: dict[str, Job] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._events: list[Event] = []
        self._between_ends_s, self._last_end = 0.0, 0.0
        self._steps = self._requests = self._failed = 0
        self._prompt_tokens = self._tokens = self._drafted = self._accepted = 0
        self._step_s = self._longest_mixed_s = 0.0
        self._mixed_prompt = 0

    def _speculation(self) -> Speculation | None:
        draft = self.options.draft
        if draft is None:
            return None
        cost = StepCost()
        self._stepper.measure(cost)
        if draft == "lookup":
            return Speculation(Lookup(), cost)
        proposer = DraftModel(draft, self.model, self.options.mixed_tokens)
        self._caches.append(proposer.model.step.cache)
        return Speculation(proposer, cost)

    def _copy_block(self, source: int, target: int) -> None:
        for cache in self._caches:
            cache.copy(source, target)

    def _clear_block(self, block: int) -> None:
        for cache in self._caches:
            cache.clear(block)

    @cached_property
    def grammars(self) -> Grammars:
        """Made when it is first asked for, in a fifth of a second."""
        return Grammars(self.tokenizer)

    # -- requests -------------------------------------------------------------------------------
    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do or to tell."""
        return bool(self._jobs or self._events)

    def add(self, request: Request) -> None:
        """Take a request; its events come from `step`. Raises OptionError, ContextOverflow,
        GrammarError, QueueFull; then nothing of it is kept."""
        self._check(request)
        matcher = None if request.grammar is None else self.grammars.matcher(request.grammar)
        now = time.perf_counter()
        if not self._jobs:
            self._last_end = now
        job = Job(request, now)
        names = keys(request.prompt)
        for choice in range(request.choices):
            own = matcher if matcher is None or not choice else matcher.copy()
            job.active[choice] = Sequence(job, choice, names, self.context, own)
        self.scheduler.waiting.extend(job.active.values())
        self._jobs[request.id] = job
        self._requests += 1
        self._prompt_tokens += len(request.prompt)
        if job.deadline is not None:
            heapq.heappush(self._deadlines, (job.deadline, request.id))

    def abort(self, id: str, choice: int | None = None) -> None:
        """End a request, or one of its choices: no more tokens of it are made, and the next step
        tells its end. One that has ended already, or never was, is passed over."""
        job = self._jobs.get(id)
        if job is not None:
            self._end(job, choice, "cancelled", None)

    def step(self) -> list[Event]:
        """One step of the model over what is there to do, and what it brought; [] if there is
        nothing. A fault ends the requests concerned, with a Failure, and no other."""
        self._expire()
        work = self.scheduler.schedule()
        if work:
            start = time.perf_counter()
            decoding = self.scheduler.decoding(work)
            drafts = self._drafts(decoding)
            self._run(work, drafts)
            self._note_step(work, decoding, drafts, start)
        events, self._events = self._events, []
        return events

    def _drafts(self, decoding: Mapping[Sequence, int]) -> dict[Sequence, list[int]]:
        if self.speculation is None:
            return {}
        return self.speculation.propose(decoding, self.scheduler.left, self.scheduler.reserve)

    def _note_step(self, work: Mapping[Sequence, int], decoding: Mapping[Sequence, int],
                   drafts: Mapping[Sequence, list[int]], start: float) -> None:  # fmt: skip
        took = time.perf_counter() - start
        self._steps += 1
        self._step_s += took
        if decoding and len(decoding) < len(work):
            self._longest_mixed_s = max(self._longest_mixed_s, took)
            prompt = sum(work.values()) - len(decoding)
            self._mixed_prompt = max(self._mixed_prompt, prompt)
        elif decoding and self.speculation is not None:
            tokens = len(work) + sum(len(d) for d in drafts.values())
            self.speculation.cost.note(tokens, took)

    # -- a step ---------------------------------------------------------------------------------
    def _run(self, work: dict[Sequence, int], drafts: dict[Sequence, list[int]]) -> None:
        """Run a step. If it fails, each of its sequences has a step of its own, which gives it the
        same tokens, and those that fail alone are the ones concerned."""
        for seq in work:
            self._note_admission(seq)
        try:
            drawn = self._stepper.run(work, drafts)
        except Exception as error:
            if len(work) == 1:
                self._fail(next(iter(work)), error)
                return
            for seq, n in work.items():
                if seq.blocks:  # or its request has failed by now
                    self._run({seq: n}, drafts)
            return
        for (seq, n), new in zip(work.items(), drawn, strict=True):
            try:
                self._take(seq, n, new, len(drafts.get(seq, ())))
            except Exception as error:
                self._fail(seq, error)

    def _note_admission(self, seq: Sequence) -> None:
        job = seq.job
        if not job.admitted:
            job.admitted = time.perf_counter()
            job.cached_tokens = seq.computed

    def _take(self, seq: Sequence, count: int, new: Drawn, drafted: int) -> None:
        """A step has computed `count` missing tokens of the sequence and `drafted` guesses, and
        drawn new ones."""
        job, request = seq.job, seq.job.request
        if new.prompt_logprobs:
            known = new.prompt_logprobs[job.prompt_found - seq.computed :]
            job.prompt_logprobs += known
            job.prompt_found += len(known)
        finish: Finish = ""
        kept = 0
        for token in new.tokens:
            if token in request.ends:
                finish = "stop"
                break
            kept += 1
            seq.tokens.append(token)
            if seq.matcher is not None and self._match(seq.matcher, token):
                finish = "stop"
                break
            if len(seq.tokens) == seq.most_tokens:
                finish = "length"
                break
        if drafted and self.speculation is not None:
            accepted = len(new.tokens) - 1
            self.speculation.learn(seq, drafted, accepted)
            job.drafted_tokens += drafted
            job.accepted_tokens += accepted
            self._drafted += drafted
            self._accepted += accepted
        seq.computed = min(seq.computed + count + max(0, len(new.tokens) - 1), len(seq.tokens))
        self.scheduler.name_blocks(seq)
        if not new.tokens:
            return
        if not job.first_token:
            job.first_token = time.perf_counter()
        job.completion_tokens += kept
        self._tokens += kept
        event = Event(request.id, seq.choice, new.tokens[:kept], new.logprobs[:kept], finish)
        if seq.choice == 0 and job.prompt_logprobs:
            event = replace(event, prompt_logprobs=job.prompt_logprobs)
            job.prompt_logprobs = ()
        if finish:
            event = replace(event, usage=self._leave(seq))
        self._events.append(event)

    def _match(self, matcher: Matcher, token: int) -> bool:
        """Go on in the grammar; whether the answer is whole."""
        if not matcher.accept(token):
            raise GrammarError(f"token {token} was drawn, which the grammar does not allow")
        return matcher.done

    # -- ends -----------------------------------------------------------------------------------
    def _leave(self, seq: Sequence, failed: bool = False) -> Usage | None:
        """The sequence ends; its request's usage if it is the last one."""
        job = seq.job
        self.scheduler.remove(seq)
        if self.speculation is not None:
            self.speculation.forget(seq)
        del job.active[seq.choice]
        if job.active:
            return None
        now = time.perf_counter()
        del self._jobs[job.request.id]
        self._failed += failed
        gap, self._last_end = now - self._last_end, now
        self._between_ends_s += 0.2 * (gap - self._between_ends_s)
        return job.usage(now)

    def _end(self, job: Job, choice: int | None, finish: Finish, why: Failure | None) -> None:
        """End all of a request's choices, or one, that have not ended."""
        for seq in [s for s in job.active.values() if choice in (None, s.choice)]:
            usage = self._leave(seq, why is not None)
            self._events.append(
                Event(job.request.id, seq.choice, finish=finish, failure=why, usage=usage)
            )

    def _fail(self, seq: Sequence, error: Exception) -> None:
        """A step over this sequence alone has failed."""
        kind, text = type(error).__name__, str(error)
        if not isinstance(error, TerrazzoError):
            log.exception("request %s has met a defect", seq.job.request.id)
            kind, text = "TerrazzoError", f"a defect of the engine: {error!r}"
        if seq.blocks:
            self.blocks.spoil(seq.blocks)
        self._end(seq.job, None, "error", Failure(kind, text))

    def _expire(self) -> None:
        now = time.perf_counter()
        while self._deadlines and self._deadlines[0][0] <= now:
            due, id = heapq.heappop(self._deadlines)
            job = self._jobs.get(id)
            # another request may have this id by now
            if job is not None and job.deadline == due:
                text = f"it was not finished within {job.request.timeout_s:g} s"
                self._end(job, None, "error", Failure(DeadlineExceeded.__name__, text))

    def _check(self, request: Request) -> None:
        ids, vocab = request.prompt, self.model.config.vocab_size
        if request.id in self._jobs:
            raise OptionError(f"there is a request {request.id!r} already", "choose another id")
        if not ids:
            raise OptionError("the prompt is empty", "give at least one token")
        if len(ids) >= self.context:
            raise ContextOverflow(
                f"the prompt has {len(ids):,} tokens, the context holds {self.context:,} and one"
                " more is wanted",
                "shorten the prompt or start the engine with a larger context",
            )
        if min(ids) < 0 or max(ids) >= vocab:
            bad = next(i for i in ids if not 0 <= i < vocab)
            raise OptionError(f"token id {bad} is outside the vocabulary of {vocab:,}")
        for token, value in request.bias.items():
            if not 0 <= token < vocab or not math.isfinite(value):
                raise OptionError(
                    f"a bias of {value} for token {token}",
                    f"give finite ones of 0 to {vocab - 1:,}",
                )
        waiting = len(self.scheduler.waiting)
        places = self.options.waiting + max(0, self.options.parallel - len(self.scheduler.running))
        if waiting + request.choices > places:
            raise QueueFull(
                f"{waiting} answers wait for their turn, {self.options.waiting} may, and"
                f" {request.choices} more are asked for",
                "try again later",
                retry_after_s=max(1.0, self._between_ends_s),
            )

    # -- what there is to know ------------------------------------------------------------------
    def stats(self) -> EngineStats:
        owners: dict[str, int] = {}
        refs = tuple(self.blocks.refs)
        owner = self.blocks.idle_or(IDLE, FREE)
        used: dict[int, int] = {}
        for seq in self.scheduler.running:
            n = owners.setdefault(seq.job.request.id, len(owners))
            for at, block in enumerate(seq.blocks):
                used[block] = max(used.get(block, 0), min(BLOCK, seq.computed - at * BLOCK))
                if owner[block] < 0:
                    owner[block] = n
        return EngineStats(
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            block_refs=refs,
            block_owner=tuple(owner),
            owners=tuple(owners),
            used_slots=sum(max(0, n) for n in used.values()),
            slots=BLOCK * len(used),
            held_tokens=sum(seq.computed for seq in self.scheduler.running),
            steps=self._steps,
            step_s=self._step_s,
            longest_mixed_step_s=self._longest_mixed_s,
            mixed_step_prompt=self._mixed_prompt,
            requests=self._requests,
            failed=self._failed,
            prompt_tokens=self._prompt_tokens,
            hit_tokens=self.scheduler.hit_tokens,
            tokens=self._tokens,
            drafted_tokens=self._drafted,
            accepted_tokens=self._accepted,
            preemptions=self.scheduler.preemptions,
        )

    def check(self) -> None:
        """Raises AssertionError where the books do not agree."""
        s = self.scheduler
        self.blocks.check([q.blocks for q in s.running])
        assert not any(q.blocks for q in s.waiting), "one that waits holds blocks"
        active = [q for job in self._jobs.values() for q in job.active.values()]
        assert len(active) == len(s.running) + len(s.waiting), "a sequence is lost or there twice"
        assert set(active) == {*s.running, *s.waiting}, "a sequence is of no request"
        for q in s.running:
            assert q.blocks == q.pages[: len(q.blocks)].tolist(), "pages and blocks differ"
            assert 0 <= q.computed < len(q.tokens), f"{q.computed} of {len(q.tokens)} computed"
            assert len(q.blocks) * BLOCK >= q.computed, "computed tokens without a block"
