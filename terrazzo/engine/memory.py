"""What a model and its requests take of memory, before anything is loaded.

`terrazzo fit` prints the plan; the server is gated by it and takes its number of KV blocks from it.
The figures are those of what will be asked for: weights by their shapes and formats, the step's
arena and scratch by recording it without weights (`runtime.sketch`). Only what the interpreter and
its heap take is measured: imports when the plan is made, the rest below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from terrazzo.engine.options import MIXED_TOKENS, STEP_TOKENS, draft_tokens
from terrazzo.errors import MemoryShortage, OptionError
from terrazzo.models.kv_cache import KINDS, PAGE, Kind, KVCache, elements, page_bytes
from terrazzo.models.llama import Budget
from terrazzo.models.llama_layers import Layers, StepIndices
from terrazzo.models.outline import Outline
from terrazzo.runtime.sketch import Sketch
from terrazzo.targets.cpu.pool import private_memory

# Measured with the demo model: the tokenizer has 8 MB for 49,152 tokens; machine code, launch
# tables and the objects of a loaded model are 5 MB.
TOKENIZER_BYTES = 160  # a token of the vocabulary
LOADED_BYTES = 5 << 20
SERVING_BYTES = 8 << 20  # the server's application, chat template and requests under way
# From the first schema on: what llguidance keeps of the vocabulary in the engine, 30 MB measured,
# and the process that reads schemas, 42 MB.
SCHEMA_BYTES = 72 << 20
PARALLEL = (1, 2, 4, 8, 16, 32, 64)
MOST_PARALLEL = 1024


@dataclass(frozen=True)
class Wanted:
    """`context` tokens for each of `parallel` requests; None: as many as fit, at most the model's.
    `tokens` a step takes, `rows` of them with logits (default: one a request)."""

    context: int | None = None
    parallel: int = 1
    kv: Kind = "f16"
    tokens: int = STEP_TOKENS
    rows: int | None = None
    int8: bool = True
    threads: int = 1

    def __post_init__(self) -> None:
        if self.kv not in KINDS:
            raise OptionError(f"kv is {self.kv!r}", f"choose one of {', '.join(KINDS)}")
        if not 1 <= self.parallel <= MOST_PARALLEL:
            raise OptionError(f"parallel is {self.parallel:,}", f"choose 1 to {MOST_PARALLEL:,}")


@dataclass(frozen=True)
class Part:
    """`bytes` of memory for `what`, which `detail` explains."""

    what: str
    bytes: int
    detail: str


@dataclass(frozen=True)
class MemoryPlan:
    """`memory` bytes, shared out. `blocks` of the KV cache there is room for, at most the
    `wanted_blocks` that hold every request's whole context. `choices`: (parallel, context) that
    fit, each the largest of its kind. `advice`: what to change, if there is reason to."""

    memory: int
    wanted: Wanted
    context: int
    parts: tuple[Part, ...]
    blocks: int
    block_bytes: int
    wanted_blocks: int
    choices: tuple[tuple[int, int], ...]
    advice: tuple[str, ...] = ()

    @property
    def used(self) -> int:
        return sum(part.bytes for part in self.parts)

    @property
    def remains(self) -> int:
        """Negative: so much is missing."""
        return self.memory - self.used

    @property
    def least_blocks(self) -> int:
        """Blocks without which one request of the whole context could not run."""
        return -(-self.context // PAGE)

    @property
    def runs(self) -> bool:
        """Whether a single request can use the whole context."""
        return self.blocks >= self.least_blocks

    @property
    def fits(self) -> bool:
        """Whether all requests can at the same time."""
        return self.blocks >= self.wanted_blocks

    def check(self, what: str) -> None:
        """Raises MemoryShortage unless one request can run, with the numbers and what to change."""
        if not self.runs:
            need = self.used + (self.least_blocks - self.blocks) * self.block_bytes
            raise MemoryShortage(
                f"{what} needs {mib(need)} of device memory for one request of {self.context:,}"
                f" tokens, {mib(self.memory)} may be taken",
                "; or ".join(self.advice),
            )


@dataclass(frozen=True)
class Planner:
    """Plans for one model. `program`: bytes of Python and all it has imported (0: another
    machine's), of the engine and, if it is `served`, of the server, which has a tokenizer too.
    `draft`: the model that guesses, if one does."""

    outline: Outline
    program: int
    served: bool = False
    draft: Outline | None = None
    _sketches: dict[tuple[int, int, int, bool], tuple[int, int]] = field(default_factory=dict)

    @cached_property
    def _weights(self) -> int:
        return self.outline.packed_bytes() + self.outline.vector_bytes()

    def block_bytes(self, kv: Kind) -> int:
        """Of one block of the KV cache, in all layers, the draft model's too."""
        own = page_bytes(self.outline.config, elements(self.outline.config, kv))
        return own + (self._drafts.block_bytes("f16") if self._drafts is not None else 0)

    @cached_property
    def _drafts(self) -> Planner | None:
        return None if self.draft is None else Planner(self.draft, 0)

    def _draft_part(self, w: Wanted) -> list[Part]:
        if self._drafts is None:
            return []
        config, tokens = self._drafts.outline.config, draft_tokens(MIXED_TOKENS, w.parallel)
        own = replace(w, kv="f16", tokens=tokens, rows=w.parallel)
        parts = self._drafts.parts(own, config.context_length)
        loaded = LOADED_BYTES + TOKENIZER_BYTES * config.vocab_size if self.program else 0
        detail = f"weights {mib(parts[0].bytes)}, steps of {tokens} tokens, tokenizer"
        return [Part("draft model", sum(p.bytes for p in parts) + loaded, detail)]

    def parts(self, w: Wanted, context: int) -> tuple[Part, ...]:
        """All but the KV cache."""
        c, rows = self.outline.config, w.rows or w.parallel
        arena, scratch = self._step(w, rows)
        logits = 2 * 4 * rows * c.vocab_size
        pages = -(-c.context_length // PAGE)
        rope = 4 * c.head_dim * min(context, c.context_length)
        table = 4 * w.parallel * min(pages, -(-context // PAGE))
        loaded = LOADED_BYTES + TOKENIZER_BYTES * c.vocab_size
        program = self.program + loaded + (loaded + SERVING_BYTES if self.served else 0)
        return (
            Part("weights", self._weights, f"{self.outline.source}"),
            Part(
                "activations",
                arena + logits + rope + table,
                f"steps of {w.tokens} tokens {mib(arena)}, logits and draws of {rows} rows"
                f" {mib(logits)}, tables of positions and pages {mib(rope + table)}",
            ),
            Part("workspace", scratch, f"tiles of {w.threads} threads"),
            *self._draft_part(w),
            *(
                [Part("schemas", SCHEMA_BYTES, "from the first answer on that has to match one")]
                if self.served else []
            ),
            *(
                [Part("program", program, f"Python and imports {mib(self.program)}, machine code,"
                      " tokenizer")] if self.program else []
            ),
        )  # fmt: skip

    def _step(self, w: Wanted, rows: int) -> tuple[int, int]:
        """Bytes of the arena and of all threads' scratch."""
        key = (w.tokens, rows, w.threads, w.int8)
        if key not in self._sketches:
            c = self.outline.config
            b = Budget(w.tokens, w.parallel, 1, rows)
            indices = StepIndices.empty(b.tokens, b.seqs, 1, b.spans, b.rows)
            logits = private_memory(4 * rows * c.vocab_size).view(np.float32).reshape(rows, -1)
            sketch, cache = Sketch("step", w.threads), KVCache(c, 1, elements(c, w.kv))
            Layers(c, self.outline.stand_in(), cache, indices, logits, sketch, int8=w.int8)
            self._sketches[key] = sketch.place().size, sketch.scratch()
        return self._sketches[key]

    def plan(self, wanted: Wanted, memory: int) -> MemoryPlan:
        """Shares `memory` bytes out. Raises OptionError for a context that the model has not."""
        most = self.outline.config.context_length
        if wanted.context is not None and not 1 <= wanted.context <= most:
            raise OptionError(
                f"context is {wanted.context:,}", f"this model's goes from 1 to {most:,}"
            )
        context = wanted.context or self.largest_context(wanted, memory) or most
        block = self.block_bytes(wanted.kv)
        parts = self.parts(wanted, context)
        left = memory - sum(p.bytes for p in parts)
        whole = wanted.parallel * -(-context // PAGE)
        blocks = max(min(left // block, whole), 0)
        cache = Part(
            "KV cache",
            blocks * block,
            f"{blocks:,} blocks of {PAGE} tokens, {block // PAGE:,} B a token ({wanted.kv}"
            f"{', the draft model too' if self.draft is not None else ''})",
        )
        choices = tuple(
            (n, size)
            for n in sorted({*PARALLEL, wanted.parallel})
            if (size := self.largest_context(replace(wanted, parallel=n, rows=None), memory))
        )
        made = MemoryPlan(
            memory, wanted, context, (parts[0], cache, *parts[1:]), blocks, block, whole, choices
        )
        return made if made.fits else replace(made, advice=tuple(self._advice(made)))

    def largest_context(self, w: Wanted, memory: int) -> int:
        """The most tokens that each of the requests can have at the same time; 0: none."""
        block = self.block_bytes(w.kv)
        most = self.outline.config.context_length

        def fits(pages: int) -> bool:
            need = sum(p.bytes for p in self.parts(w, pages * PAGE))
            return need + w.parallel * pages * block <= memory

        return min(_last(fits, -(-most // PAGE)) * PAGE, most)

    def largest_parallel(self, w: Wanted, context: int, memory: int) -> int:
        """The most requests that can have `context` tokens at the same time; 0: none."""
        block = self.block_bytes(w.kv) * -(-context // PAGE)

        def fits(n: int) -> bool:
            need = sum(p.bytes for p in self.parts(replace(w, parallel=n, rows=None), context))
            return need + n * block <= memory

        return _last(fits, w.parallel)

    def _advice(self, plan: MemoryPlan) -> list[str]:
        """Single changes that make room, the least painful first."""
        w, out = plan.wanted, []
        narrower: tuple[Kind, ...] = ("auto", "int8")
        for kind in narrower:
            if self.block_bytes(kind) < plan.block_bytes:
                size = self.largest_context(replace(w, kv=kind), plan.memory)
                if size >= plan.context:
                    out.append(f"--kv {kind} (then all of it fits)")
                    break
                if kind == "int8" and size:
                    out.append(f"--kv int8 --context {size}")
        if size := self.largest_context(w, plan.memory):
            out.append(f"--context {size}")
        if n := self.largest_parallel(w, plan.context, plan.memory):
            out.append(f"--parallel {n}")
        missing = (plan.wanted_blocks - plan.blocks) * plan.block_bytes
        out.append(f"--memory {-(-(plan.used + missing) // MIB)}MiB for all of it")
        if self._weights > plan.memory // 2:
            out.append(f"a smaller model, or weights of fewer bits ({mib(self._weights)} now)")
        return out


def _last(fits: Callable[[int], bool], most: int) -> int:
    """The last of 1 .. most that fits, where all before it do as well; 0: none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


MIB = 1 << 20


def mib(n: int) -> str:
    """Bytes in MiB or GiB."""
    return f"{n / MIB:,.1f} MiB" if n < 10 << 30 else f"{n / (1 << 30):,.1f} GiB"
