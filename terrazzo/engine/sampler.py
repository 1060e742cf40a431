"""From a step's logits to tokens: the sampling kernels as two recordings over the logits in
place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from terrazzo.engine.options import Sampling
from terrazzo.kernels.sampling import argmax, candidates, draw, repeat_penalty
from terrazzo.runtime.recorder import Recorder
from terrazzo.targets.cpu.pool import private_memory

RECENT = 4096


class Sampler:
    """Works on rows 0 .. n-1 of `logits` (f32 [rows, vocab]); penalties change them in place.
    `greedy` is the recording that takes the likeliest token."""

    def __init__(self, logits: np.ndarray, threads: int) -> None:
        rows, vocab = logits.shape
        self.logits, self.threads = logits, threads
        self.token = np.zeros(rows, np.int32)
        self.ids, self.count = np.zeros((rows, RECENT), np.int32), np.zeros(rows, np.int32)
        self.penalty = np.ones(rows, np.float32)
        self.seed, self.position = np.zeros((rows, 2), np.uint32), np.zeros(rows, np.int32)
        self.temperature, self.top_p, self.min_p = (np.zeros(rows, np.float32) for _ in range(3))
        self.top_k = np.zeros(rows, np.int32)
        vary = {"seqs": "rows"}
        greedy = Recorder("greedy", threads)
        greedy.add(argmax, vary, logits=logits, out=self.token)
        self.greedy = greedy.finish()
        self._drawing = self._penalising = None

    def _penalise(self, rows: int) -> None:
        if self._penalising is None:
            r = Recorder("penalty", self.threads)
            r.add(
                repeat_penalty,
                {"seqs": "rows"},
                logits=self.logits,
                ids=self.ids,
                count=self.count,
                penalty=self.penalty,
            )
            self._penalising = r.finish()
        self._penalising.set("rows", rows)
        self._penalising.replay()

    def _draw(self, rows: int) -> None:
        if self._drawing is None:
            weight = private_memory(self.logits.nbytes).view(np.float32).reshape(self.logits.shape)
            r = Recorder("draw", self.threads)
            vary = {"seqs": "rows"}
            r.add(
                candidates,
                vary,
                logits=self.logits,
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                min_p=self.min_p,
                weight=weight,
            )
            r.add(draw, vary, weight=weight, seed=self.seed, position=self.position, out=self.token)
            self._drawing = r.finish()
        self._drawing.set("rows", rows)
        self._drawing.replay()

    def pick(self, options: Sequence[Sampling], history: Sequence[Sequence[int]]) -> list[int]:
        """One token a row. `history`: each row's tokens so far (penalty and draw depend on them
        alone)."""
        rows = len(options)
        if any(o.repeat_penalty != 1.0 and o.repeat_last for o in options):
            for r, (o, past) in enumerate(zip(options, history, strict=True)):
                recent = sorted(set(past[-o.repeat_last :])) if o.repeat_penalty != 1.0 else []
                self.ids[r, : len(recent)] = recent
                self.count[r], self.penalty[r] = len(recent), o.repeat_penalty
            self._penalise(rows)
        if all(o.greedy for o in options):
            self.greedy.set("rows", rows)
            self.greedy.replay()
            return self.token[:rows].tolist()
        for r, (o, past) in enumerate(zip(options, history, strict=True)):
            self.temperature[r], self.top_k[r], self.top_p[r], self.min_p[r] = (
                o.temperature, o.top_k, o.top_p, o.min_p)  # fmt: skip
            self.seed[r] = o.seed & 0xFFFFFFFF, o.seed >> 32
            self.position[r] = len(past)
        self._draw(rows)
        return self.token[:rows].tolist()
