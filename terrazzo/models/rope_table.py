"""Cosines and sines of the rotary embedding, made as far as positions are used: the table of a
context of 128k tokens would take 64 MiB and most of a start's time."""

from __future__ import annotations

import numpy as np

from terrazzo.models.config import LlamaConfig
from terrazzo.targets.cpu.pool import private_memory

STEP = 256  # positions made at a time


class RopeTable:
    """`cos`, `sin`: f32 [context length, head_dim / 2], row p right once `cover(p + 1)` was called.
    `factors` (or None) divide the frequencies of the first pairs; pairs beyond rope_dim do not
    turn."""

    def __init__(self, config: LlamaConfig, factors: np.ndarray | None) -> None:
        half = config.head_dim // 2
        theta = config.rope_theta ** (-2.0 * np.arange(half) / config.rope_dim) / config.rope_scale
        if factors is not None:
            theta[: len(factors)] /= factors
        theta[config.rope_dim // 2 :] = 0.0
        self._theta = theta
        shape = (config.context_length, half)
        size = 4 * config.context_length * half
        self.cos, self.sin = (
            private_memory(size).view(np.float32).reshape(shape) for _ in range(2)
        )
        self.covered = 0

    def cover(self, positions: int) -> None:
        """Make the rows of positions below `positions`, computed in f64."""
        while self.covered < positions:
            rows = slice(self.covered, self.covered + STEP)
            angle = np.arange(rows.start, min(rows.stop, len(self.cos)))[:, None] * self._theta
            self.cos[rows], self.sin[rows] = np.cos(angle), np.sin(angle)
            self.covered += len(angle)
