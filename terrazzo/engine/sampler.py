"""From a step's logits to tokens: the sampling kernels as recordings over the logits in place, and
what changes single logits between the step and them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from terrazzo.engine.options import Sampling
from terrazzo.kernels.sampling import argmax, candidates, draw, repeat_penalty
from terrazzo.runtime.recorder import Recorder
from terrazzo.runtime.recording import Recording
from terrazzo.targets.cpu.pool import private_memory

RECENT = 4096
BY_ROW = {"seqs": "rows"}


@dataclass(frozen=True, slots=True)
class Edit:
    """What is done to a row of logits after its repeat penalty. `made`: the answer's tokens so far,
    for presence and frequency penalties. `bias`: values for the tokens `biased`. `mask`: u32
    [vocab / 32, rounded up], one bit a token, the lowest first: those without it are not drawn."""

    made: Sequence[int] = ()
    biased: np.ndarray | None = None
    bias: np.ndarray | None = None
    mask: np.ndarray | None = None

    def apply(self, row: np.ndarray, sampling: Sampling) -> None:
        if self.made:
            ids, counts = np.unique(np.asarray(self.made, np.int32), return_counts=True)
            off = counts * sampling.frequency_penalty + sampling.presence_penalty
            row[ids] -= off.astype(np.float32)
        if self.biased is not None:
            row[self.biased] += self.bias
        if self.mask is not None:
            allowed = np.unpackbits(self.mask.view(np.uint8), bitorder="little", count=len(row))
            np.copyto(row, -np.inf, where=allowed == 0)


class Sampler:
    """Works on rows 0 .. n-1 of `logits` (f32 [rows, vocab]); penalties change them in place.
    `greedy` is the recording that takes the likeliest token."""

    def __init__(self, logits: np.ndarray, threads: int) -> None:
        rows, vocab = logits.shape
        self.logits, self.threads = logits, threads
        self.token = np.zeros(rows, np.int32)
        # A mapping: pages that no penalty asks for are never touched.
        self.ids = private_memory(4 * rows * RECENT).view(np.int32).reshape(rows, RECENT)
        self.count = np.zeros(rows, np.int32)
        self.penalty = np.ones(rows, np.float32)
        self.seed, self.position = np.zeros((rows, 2), np.uint32), np.zeros(rows, np.int32)
        self.temperature, self.top_p, self.min_p = (np.zeros(rows, np.float32) for _ in range(3))
        self.top_k = np.zeros(rows, np.int32)
        greedy = Recorder("greedy", threads)
        greedy.add(argmax, BY_ROW, logits=logits, out=self.token)
        self.greedy = greedy.finish()

    def compile(self) -> None:
        """Makes now what a first request of another kind would have to wait for."""
        _ = self._penalising, self._drawing

    @cached_property
    def _penalising(self) -> Recording:
        r = Recorder("penalty", self.threads)
        r.add(repeat_penalty, BY_ROW, logits=self.logits, ids=self.ids, count=self.count,
              penalty=self.penalty)  # fmt: skip
        return r.finish()

    @cached_property
    def _drawing(self) -> Recording:
        weight = private_memory(self.logits.nbytes).view(np.float32).reshape(self.logits.shape)
        r = Recorder("draw", self.threads)
        r.add(candidates, BY_ROW, logits=self.logits, temperature=self.temperature,
              top_k=self.top_k, top_p=self.top_p, min_p=self.min_p, weight=weight)  # fmt: skip
        r.add(draw, BY_ROW, weight=weight, seed=self.seed, position=self.position, out=self.token)
        return r.finish()

    def choose(self, options: Sequence[Sampling], history: Sequence[Sequence[int]]) -> Recording:
        """What has to run after the step that makes the logits: one token a row, then in `token`.
        `history`: each row's tokens so far (penalty and draw depend on them alone)."""
        last = self._prepare_draw(options, history)
        penalising = self._prepare_penalty(options, history)
        if penalising is None:
            return last
        penalising.then(last)
        return penalising

    def draw(
        self,
        options: Sequence[Sampling],
        history: Sequence[Sequence[int]],
        edits: Sequence[Edit | None],
    ) -> None:
        """The same at once, after a step, with each row's edit."""
        penalising = self._prepare_penalty(options, history)
        if penalising is not None:
            penalising.then(None)
            penalising.replay()
        for r, (o, edit) in enumerate(zip(options, edits, strict=True)):
            if edit is not None:
                edit.apply(self.logits[r], o)
        self._prepare_draw(options, history).replay()

    def _prepare_draw(
        self, options: Sequence[Sampling], history: Sequence[Sequence[int]]
    ) -> Recording:
        last = self.greedy
        if not all(o.greedy for o in options):
            last = self._drawing
            for r, (o, past) in enumerate(zip(options, history, strict=True)):
                self.temperature[r], self.top_k[r], self.top_p[r], self.min_p[r] = (
                    o.temperature, o.top_k, o.top_p, o.min_p)  # fmt: skip
                self.seed[r] = o.seed & 0xFFFFFFFF, o.seed >> 32
                self.position[r] = len(past)
        last.set("rows", len(options))
        return last

    def _prepare_penalty(
        self, options: Sequence[Sampling], history: Sequence[Sequence[int]]
    ) -> Recording | None:
        if all(o.repeat_penalty == 1.0 or not o.repeat_last for o in options):
            return None
        for r, (o, past) in enumerate(zip(options, history, strict=True)):
            on = o.repeat_penalty != 1.0 and o.repeat_last
            recent = sorted(set(past[-o.repeat_last :])) if on else []
            self.ids[r, : len(recent)] = recent
            self.count[r], self.penalty[r] = len(recent), o.repeat_penalty
        self._penalising.set("rows", len(options))
        return self._penalising
