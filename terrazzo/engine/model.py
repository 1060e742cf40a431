"""A loaded model: text and token ids in, text, token ids and logits out. One sequence at a time."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from terrazzo.engine.options import Sampling, StopText
from terrazzo.engine.sampler import Edit, Sampler
from terrazzo.errors import ContextOverflow, OptionError
from terrazzo.models import loading, store
from terrazzo.models.chat import ChatTemplate
from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import GGUF
from terrazzo.models.kv_cache import KINDS, PAGE, Kind, KVCache, elements, page_bytes
from terrazzo.models.llama import LOGIT_ROWS, Budget, Chunk, LlamaStep
from terrazzo.models.tokenizer import Tokenizer
from terrazzo.runtime import arena
from terrazzo.runtime import threads as thread_count

PREFILL_TOKENS = 256  # 512 are 2 % faster and keep 2 MiB more of intermediate results
Progress = Callable[[str, int, int], None]


@dataclass
class Stats:
    """Figures of one generation. Times in seconds; `first_token_s` from the call to the first
    token."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    tokens: int = 0
    prefill_s: float = 0.0
    first_token_s: float = 0.0
    decode_s: float = 0.0
    stop: Literal["", "length", "eos", "stop", "context", "cancelled"] = ""

    @property
    def prefill_tokens_per_s(self) -> float:
        return (self.prompt_tokens - self.reused_tokens) / self.prefill_s if self.prefill_s else 0.0

    @property
    def decode_tokens_per_s(self) -> float:
        return (self.tokens - 1) / self.decode_s if self.decode_s and self.tokens > 1 else 0.0


@dataclass(frozen=True)
class LoadTimes:
    """Seconds: `open` header and tokenizer, `weights` repacked or mapped, `compile` kernels and
    recording."""

    open: float
    weights: float
    compile: float

    @property
    def total(self) -> float:
        return self.open + self.weights + self.compile


@dataclass
class Model:
    """Made by `load`. Threads may share it: each step is one caller's, and a generation whose keys
    and values another one has replaced recomputes them."""

    path: str
    config: LlamaConfig
    tokenizer: Tokenizer
    chat: ChatTemplate | None
    step: LlamaStep
    sampler: Sampler
    context: int
    activations: str
    threads: int
    times: LoadTimes
    stats: Stats = field(default_factory=Stats)

    def __post_init__(self) -> None:
        self._pages = np.arange(self.step.cache.pages, dtype=np.int32)
        self._held: list[int] = []  # tokens whose keys and values are in the cache, in order
        self._lock = threading.Lock()

    # -- text -----------------------------------------------------------------------------------
    def generate(
        self,
        prompt: str | Sequence[int],
        max_tokens: int = 128,
        *,
        stop: Sequence[str] = (),
        special: bool = False,
        sampling: Sampling | None = None,
        **options: float,
    ) -> Iterator[str]:
        """Pieces of the completion of `prompt` (text, or token ids) as they come. `options` are
        Sampling's fields.

        `special`: control tokens written out in the prompt count as such (a rendered chat
        template). `self.stats` has the figures. Raises OptionError, ContextOverflow; Ctrl-C raises
        KeyboardInterrupt and leaves the model usable.
        """
        text = isinstance(prompt, str)
        ids = self.tokenizer.encode(prompt, special=special) if text else list(prompt)
        choice = _sampling(sampling, options)
        stream, cut = self.tokenizer.stream(), StopText(tuple(stop))
        for token in self._tokens(ids, max_tokens, choice, self.tokenizer.eos_ids):
            piece = cut.push(stream.push(token))
            if piece:
                yield piece
            if cut.hit:
                self.stats.stop = "stop"
                return
        rest = cut.push(stream.flush()) + cut.flush()
        if rest:
            yield rest

    def generate_ids(self, ids: Sequence[int], max_tokens: int = 128, *, ignore_eos: bool = False,
                     sampling: Sampling | None = None, **options: float) -> list[int]:  # fmt: skip
        """The ids that follow `ids`; an end-of-text token ends them and is not included, unless it
        is to be ignored (to measure)."""
        ends = frozenset() if ignore_eos else self.tokenizer.eos_ids
        return list(self._tokens(list(ids), max_tokens, _sampling(sampling, options), ends))

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """f32 [len(ids), vocab]: the logits after every position."""
        self._check(ids, 0)
        out = np.empty((len(ids), self.config.vocab_size), np.float32)
        with self._lock:
            self._held = []
            for at in range(0, len(ids), LOGIT_ROWS):
                part = list(ids[at : at + LOGIT_ROWS])
                out[at : at + len(part)] = self.step.run([Chunk(self._pages, part, at, len(part))])
        return out

    # -- the loop -------------------------------------------------------------------------------
    def _check(self, ids: Sequence[int], more: int) -> None:
        if not ids:
            raise OptionError("the prompt is empty", "give at least one token")
        if len(ids) + more > self.context:
            raise ContextOverflow(
                f"the prompt has {len(ids):,} tokens, the context holds {self.context:,}"
                + (f" and {more} more is wanted" if more else ""),
                "shorten the prompt or load the model with a larger context",
            )
        bad = [i for i in ids if not 0 <= i < self.config.vocab_size]
        if bad:
            raise OptionError(
                f"token id {bad[0]} is outside the vocabulary of {self.config.vocab_size:,}"
            )

    def _tokens(self, ids: list[int], max_tokens: int, sampling: Sampling,
                ends: Collection[int]) -> Iterator[int]:  # fmt: skip
        if max_tokens < 1:
            raise OptionError(f"max_tokens is {max_tokens}", "ask for at least 1")
        self._check(ids, 1)
        began = time.perf_counter()
        stats = self.stats = Stats(prompt_tokens=len(ids))
        ids = list(ids)
        while True:
            start = time.perf_counter()
            try:
                token = self._next(ids, sampling, stats)
            except KeyboardInterrupt:
                stats.stop = "cancelled"
                raise
            now = time.perf_counter()
            if stats.first_token_s:
                stats.decode_s += now - start
            else:
                stats.first_token_s = now - began
            if token in ends:
                stats.stop = "eos"
                return
            stats.tokens += 1
            ids.append(token)
            yield token
            if stats.tokens >= max_tokens:
                stats.stop = "length"
                return
            if len(ids) >= self.context:
                stats.stop = "context"
                return

    def _next(self, ids: list[int], sampling: Sampling, stats: Stats) -> int:
        """The token after `ids`. What the cache holds already of them is kept, so that generations
        may take turns and a conversation's next turn starts where the last one ended."""
        with self._lock:
            same = (
                len(self._held)
                if self._held == ids[: len(self._held)]
                else _common(self._held, ids)
            )
            same = min(same, len(ids) - 1)
            self._held = self._held[:same]
            if not stats.tokens:
                stats.reused_tokens = same
            start = time.perf_counter()
            choose = None if sampling.counts else self.sampler.choose([sampling], [ids])
            for at in range(same, len(ids), self.step.budget.tokens):
                part = ids[at : at + self.step.budget.tokens]
                last = at + len(part) == len(ids)
                self.step.run([Chunk(self._pages, part, at)], choose if last else None)
                self._held = ids[: at + len(part)]
            if choose is None:
                made = ids[stats.prompt_tokens :]
                self.sampler.draw([sampling], [ids], [Edit(made)])
            if not stats.tokens:
                stats.prefill_s = time.perf_counter() - start
            return int(self.sampler.token[0])

    @property
    def kv_bytes(self) -> int:
        """Bytes of the whole KV cache (its pages become resident when they are first written)."""
        return self.step.cache.nbytes


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common beginning."""
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def _sampling(given: Sampling | None, options: dict[str, float]) -> Sampling:
    if given is not None and options:
        raise OptionError("give either sampling= or single options")
    unknown = options.keys() - Sampling.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(Sampling.__dataclass_fields__)
        raise OptionError(f"unknown option {sorted(unknown)[0]!r}", f"known: {known}")
    return given or Sampling(**options)  # type: ignore[arg-type]


def peak_rss_bytes() -> int:
    """Peak resident memory of this process so far.

    Linux's own figure comes first: that of getrusage starts with what the process that started us
    had resident, where it forked.
    """
    try:
        with open("/proc/self/status") as status:
            return next(int(x.split()[1]) for x in status if x.startswith("VmHWM:")) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def load(model: str | os.PathLike[str], *, activations: str = "int8", threads: int | None = None,
         context: int | None = None, sequences: int = 1, kv: Kind | None = None,
         pages: int | None = None, tokens: int | None = None, rows: int = LOGIT_ROWS,
         progress: Progress | None = None) -> Model:  # fmt: skip
    """Load a model by name (`smollm2`) or path to a GGUF file.

    activations: "int8" (quantised on the fly for products with low-bit weights; keys and values in
    f16) or "f32" (both in f32). kv: how keys and values are held if not so, as KVCache has it.
    threads: default what this process may use. context: tokens of KV cache, default the model's.
    sequences: that `step` can take at a time, with `tokens` tokens and `rows` rows of logits in
    all. pages: of the KV cache, 16 tokens each, by default `context` tokens for each sequence.
    progress(what, done, total) is called while loading, with a total of 0 where it is not known.
    Raises ModelFileError, OptionError, MemoryShortage.
    """
    if activations not in ("int8", "f32"):
        raise OptionError(f"activations is {activations!r}", 'choose "int8" or "f32"')
    threads = thread_count.default_threads() if threads is None else threads
    if threads < 1:
        raise OptionError(f"threads is {threads}", "choose at least 1")
    kv = ("f32" if activations == "f32" else "f16") if kv is None else kv
    if kv not in KINDS:
        raise OptionError(f"kv is {kv!r}", f"choose one of {', '.join(KINDS)}")
    if not 1 <= sequences <= rows:
        raise OptionError(f"sequences is {sequences}", f"choose 1 to {rows}")
    t0 = time.perf_counter()
    gguf = GGUF.open(store.resolve(model))
    config = LlamaConfig.from_gguf(gguf)
    most = config.context_length
    context = most if context is None else context
    if not 1 <= context <= most:
        raise OptionError(f"context is {context:,}", f"this model's goes from 1 to {most:,}")
    tokenizer = Tokenizer.from_gguf(gguf)
    template = (
        ChatTemplate.from_gguf(gguf, tokenizer)
        if "tokenizer.chat_template" in gguf.metadata
        else None
    )
    gguf.release_all()
    arena.give_back()
    t1 = time.perf_counter()
    pages = sequences * -(-context // PAGE) if pages is None else pages
    kinds = elements(config, kv)
    cached = pages * page_bytes(config, kinds)
    arena.check_memory(
        loading.packed_bytes(gguf, config) + cached,
        f"{config.name} with a KV cache of {pages * PAGE:,} tokens",
    )
    weights = loading.load(gguf, config, threads, progress)
    gguf.release_all()
    arena.give_back()
    t2 = time.perf_counter()
    if progress is not None:
        progress("making kernels ready", 0, 0)
    cache = KVCache(config, pages, kinds)
    budget = Budget(tokens or min(PREFILL_TOKENS, context), sequences, cache.pages, rows)
    step = LlamaStep(config, weights, cache, budget, int8=activations == "int8", threads=threads)
    sampler = Sampler(step.logits, threads)
    arena.give_back()
    t3 = time.perf_counter()
    return Model(
        str(gguf.path),
        config,
        tokenizer,
        template,
        step,
        sampler,
        context,
        activations,
        threads,
        LoadTimes(t1 - t0, t2 - t1, t3 - t2),
    )
