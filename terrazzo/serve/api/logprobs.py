"""Log probabilities in OpenAI's two spellings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from terrazzo.engine.request import Logprob
from terrazzo.models.tokenizer import Tokenizer

LEAST = -9999.0  # JSON has no infinity


def finite(value: float) -> float:
    return round(value, 6) if math.isfinite(value) else LEAST


def spelled(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.piece(token).decode("utf-8", "replace")


def for_chat(tokenizer: Tokenizer, values: Sequence[Logprob], top: int) -> list[dict[str, Any]]:
    def entry(token: int, value: float) -> dict[str, Any]:
        piece = tokenizer.piece(token)
        return {"token": piece.decode("utf-8", "replace"), "logprob": finite(value),
                "bytes": list(piece)}  # fmt: skip

    return [
        {**entry(x.token, x.value), "top_logprobs": [entry(t, v) for t, v in x.top[:top]]}
        for x in values
    ]


class ForCompletions:
    """Of one choice, piece by piece: tokens, their values, the likeliest others, offsets in the
    text."""

    def __init__(self, tokenizer: Tokenizer, top: int, offset: int = 0) -> None:
        self._tokenizer, self._top, self._offset = tokenizer, top, offset

    def first(self, token: int) -> dict[str, Any]:
        """A prompt's first token, which has no probability."""
        return self._part([spelled(self._tokenizer, token)], [None], [None])

    def push(self, values: Sequence[Logprob]) -> dict[str, Any]:
        words = [spelled(self._tokenizer, x.token) for x in values]
        tops = [
            {spelled(self._tokenizer, t): finite(v) for t, v in reversed(x.top[: self._top])}
            for x in values
        ]
        return self._part(words, [finite(x.value) for x in values], tops)

    def _part(self, words: list[str], values: Sequence[float | None],
              tops: Sequence[dict[str, float] | None]) -> dict[str, Any]:  # fmt: skip
        offsets = []
        for word in words:
            offsets.append(self._offset)
            self._offset += len(word)
        return {"tokens": words, "token_logprobs": list(values), "top_logprobs": list(tops),
                "text_offset": offsets}  # fmt: skip


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    keys = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    return {k: [x for p in parts for x in p[k]] for k in keys}
