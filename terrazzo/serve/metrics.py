"""Figures for Prometheus: what came, what went, how long it took. The engine's own are added when
they are asked for."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from terrazzo.engine.request import Usage

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "terrazzo", "registry": self.registry}
        self.requests = Counter("requests", "Requests answered", ["endpoint", "status"], **own)
        self.prompt_tokens = Counter("prompt_tokens", "Tokens of prompts", **own)
        self.cached_tokens = Counter("cached_tokens", "Tokens of prompts found in the cache", **own)
        self.completion_tokens = Counter("completion_tokens", "Tokens generated", **own)
        self.drafted = Counter("drafted_tokens", "Tokens drafted by speculation", **own)
        self.accepted = Counter("accepted_tokens", "Drafted tokens that were right", **own)
        self.preemptions = Counter("preemptions", "Sequences that gave up their blocks", **own)
        self.first_token = Histogram("first_token_seconds", "From arrival to the first token",
                                     buckets=_SECONDS, **own)  # fmt: skip
        self.queue = Histogram("queue_seconds", "From arrival to a place", buckets=_SECONDS, **own)
        self.prefill = Histogram("prefill_seconds", "Prompts", buckets=_SECONDS, **own)
        self.decode = Histogram("decode_seconds", "Answers", buckets=_SECONDS, **own)
        self.running = Gauge("running_sequences", "Sequences in the engine", **own)
        self.waiting = Gauge("waiting_sequences", "Sequences that wait", **own)
        self.blocks_used = Gauge("kv_blocks_used", "KV blocks held by sequences", **own)
        self.blocks = Gauge("kv_blocks", "KV blocks there are", **own)
        self.slots = Gauge("kv_slots_allocated", "Places for tokens in held KV blocks", **own)
        self.slots_used = Gauge("kv_slots_used", "Places that hold a token", **own)
        self.held = Gauge("kv_tokens_held", "Tokens of sequences, shared ones for each", **own)
        self.stall = Gauge("longest_mixed_step_seconds", "Longest step with both prompts and"
                           " decoding sequences", **own)  # fmt: skip
        self.mixed = Gauge("mixed_step_prompt_tokens", "Most tokens of prompts in such a step",
                           **own)  # fmt: skip
        self.restarts = Gauge("engine_restarts", "Times the engine was started again", **own)

    def finished(self, usage: Usage) -> None:
        self.prompt_tokens.inc(usage.prompt_tokens)
        self.cached_tokens.inc(usage.cached_tokens)
        self.completion_tokens.inc(usage.completion_tokens)
        self.drafted.inc(usage.drafted_tokens)
        self.accepted.inc(usage.accepted_tokens)
        self.preemptions.inc(usage.preemptions)
        self.queue.observe(usage.queue_s)
        self.prefill.observe(usage.prefill_s)
        self.decode.observe(usage.decode_s)

    def text(self, stats: Any, restarts: int) -> bytes:
        """The exposition format; `stats` are the engine's (EngineStats), or None."""
        if stats is not None:
            self.running.set(stats.running)
            self.waiting.set(stats.waiting)
            self.blocks_used.set(stats.blocks_used)
            self.blocks.set(len(stats.block_refs))
            self.slots.set(stats.slots)
            self.slots_used.set(stats.used_slots)
            self.held.set(stats.held_tokens)
            self.stall.set(stats.longest_mixed_step_s)
            self.mixed.set(stats.mixed_step_prompt)
        self.restarts.set(restarts)
        return generate_latest(self.registry)
