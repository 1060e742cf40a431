"""The engine: requests in, tokens out, many sequences in each step of the model.

    engine = Engine(EngineOptions("smollm2", context=2048))
    engine.add(Request("a", tuple(engine.tokenizer.encode("Once upon")), max_tokens=16))
    while engine.busy:
        for event in engine.step(): ...

One thread's: calls are not to overlap.
"""

from __future__ import annotations

import heapq
import time
from typing import cast

from terrazzo.engine.blocks import BLOCK, Blocks, keys
from terrazzo.engine.model import load
from terrazzo.engine.options import EngineOptions
from terrazzo.engine.request import Event, Failure, Finish, Request
from terrazzo.engine.scheduler import Scheduler
from terrazzo.engine.sequence import Job, Sequence
from terrazzo.engine.stats import FREE, IDLE, EngineStats
from terrazzo.errors import ContextOverflow, DeadlineExceeded, OptionError, QueueFull, TerrazzoError
from terrazzo.models.kv_cache import Kind
from terrazzo.models.llama import LOGIT_ROWS, Chunk


class Engine:
    def __init__(self, options: EngineOptions) -> None:
        """Loads the model. Raises what `load` does."""
        o = self.options = options
        self.model = load(
            o.model, threads=o.threads, context=o.context, sequences=o.parallel,
            kv=cast(Kind | None, o.kv), pages=o.blocks, tokens=o.step_tokens,
            rows=max(LOGIT_ROWS, o.parallel),
        )  # fmt: skip
        cache = self.model.step.cache
        self.tokenizer = self.model.tokenizer
        self.context = min(self.model.context, cache.pages * BLOCK)
        self.blocks = Blocks(cache.pages, cache.copy, cache.clear)
        self.scheduler = Scheduler(self.blocks, o.parallel, o.step_tokens, o.mixed_tokens)
        self._jobs: dict[str, Job] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._events: list[Event] = []
        self._between_ends_s, self._last_end = 0.0, 0.0
        self._steps = self._requests = self._failed = 0
        self._prompt_tokens = self._tokens = self._drafted = self._accepted = 0
        self._step_s = self._longest_mixed_s = 0.0

    # -- requests -------------------------------------------------------------------------------
    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do or to tell."""
        return bool(self._jobs or self._events)

    def add(self, request: Request) -> None:
        """Take a request; its events come from `step`. Raises OptionError, ContextOverflow,
        QueueFull; then nothing of it is kept."""
        self._check(request)
        now = time.perf_counter()
        if not self._jobs:
            self._last_end = now
        job = Job(request, now)
        names = keys(request.prompt)
        for choice in range(request.choices):
            job.active[choice] = Sequence(job, choice, names, -(-self.context // BLOCK))
        self.scheduler.waiting.extend(job.active.values())
        self._jobs[request.id] = job
        self._requests += 1
        self._prompt_tokens += len(request.prompt)
        if request.timeout_s is not None:
            heapq.heappush(self._deadlines, (now + request.timeout_s, request.id))

    def abort(self, id: str, choice: int | None = None) -> None:
        """End a request, or one of its choices: no more tokens of it are made, and the next step
        tells its end. One that has ended already, or never was, is passed over."""
        job = self._jobs.get(id)
        if job is not None:
            for seq in list(job.active.values()):
                if choice is None or seq.choice == choice:
                    self._end(seq, "cancelled")

    def step(self) -> list[Event]:
        """One step of the model over what is there to do, and what it brought; [] if there is
        nothing. A fault ends the requests concerned, with a Failure, and no other."""
        self._expire()
        work = self.scheduler.schedule()
        if work:
            start = time.perf_counter()
            decoding = any(n == 1 for n in work.values())
            self._run(work)
            took = time.perf_counter() - start
            self._steps += 1
            self._step_s += took
            if decoding:
                self._longest_mixed_s = max(self._longest_mixed_s, took)
        events, self._events = self._events, []
        return events

    # -- a step ---------------------------------------------------------------------------------
    def _run(self, work: dict[Sequence, int]) -> None:
        """Run a step. If it fails, each of its sequences has a step of its own, which gives it the
        same tokens, and those that fail alone are the ones concerned."""
        try:
            self._advance(work)
        except TerrazzoError as error:
            if len(work) > 1:
                for seq, n in work.items():
                    if seq.blocks:
                        self._run({seq: n})
                return
            (seq,) = work
            self.blocks.spoil(seq.blocks)
            for one in list(seq.job.active.values()):
                self._end(one, "error", error)

    def _advance(self, work: dict[Sequence, int]) -> None:
        chunks: list[Chunk] = []
        ready: list[Sequence] = []
        for seq, n in work.items():
            end = seq.computed + n
            last = end == len(seq.tokens)
            if last:
                ready.append(seq)
            chunks.append(Chunk(seq.pages, seq.tokens[seq.computed : end], seq.computed, int(last)))
            self._note_admission(seq)
        model = self.model
        choose = None
        if ready:
            choose = model.sampler.choose([s.sampling for s in ready], [s.tokens for s in ready])
        model.step.run(chunks, choose)
        for seq, n in work.items():
            seq.computed += n
            self.scheduler.name_blocks(seq)
        for seq, token in zip(ready, model.sampler.token.tolist(), strict=False):
            self._take(seq, token)

    def _note_admission(self, seq: Sequence) -> None:
        job = seq.job
        if not job.admitted:
            job.admitted = time.perf_counter()
            job.cached_tokens = seq.computed

    def _take(self, seq: Sequence, token: int) -> None:
        """The sequence has a new token."""
        request = seq.job.request
        if not seq.job.first_token:
            seq.job.first_token = time.perf_counter()
        if token in request.ends:
            self._end(seq, "stop")
            return
        seq.tokens.append(token)
        seq.job.completion_tokens += 1
        self._tokens += 1
        if seq.made == request.max_tokens or len(seq.tokens) == self.context:
            self._end(seq, "length", tokens=(token,))
        else:
            self._events.append(Event(request.id, seq.choice, (token,)))

    # -- ends -----------------------------------------------------------------------------------
    def _end(self, seq: Sequence, finish: Finish, error: TerrazzoError | None = None,
             tokens: tuple[int, ...] = ()) -> None:  # fmt: skip
        job, usage = seq.job, None
        self.scheduler.remove(seq)
        del job.active[seq.choice]
        if not job.active:
            now = time.perf_counter()
            usage = job.usage(now)
            del self._jobs[job.request.id]
            self._failed += error is not None
            gap, self._last_end = now - self._last_end, now
            self._between_ends_s += 0.2 * (gap - self._between_ends_s)
        failure = None if error is None else Failure(type(error).__name__, str(error))
        self._events.append(Event(job.request.id, seq.choice, tokens, (), finish, failure, usage))

    def _expire(self) -> None:
        now = time.perf_counter()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, id = heapq.heappop(self._deadlines)
            job = self._jobs.get(id)
            if (
                job is not None
                and job.request.timeout_s is not None
                and now >= job.arrived + job.request.timeout_s
            ):
                error = DeadlineExceeded(
                    f"request {id} was not finished within {job.request.timeout_s:g} s",
                    "allow it more time or ask for fewer tokens",
                )
                for seq in list(job.active.values()):
                    self._end(seq, "error", error)

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
            steps=self._steps,
            step_s=self._step_s,
            longest_mixed_step_s=self._longest_mixed_s,
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
