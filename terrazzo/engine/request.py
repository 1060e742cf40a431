"""What goes into the engine and what comes out: plain values that cross a process boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from terrazzo.engine.options import Sampling
from terrazzo.errors import OptionError

Finish = Literal["", "stop", "length", "cancelled", "error"]
MOST_LOGPROBS = 20
MOST_CHOICES = 128


@dataclass(frozen=True)
class Grammar:
    """What an answer must match. `kind` json_schema and regex take their text, json_object and
    lark as llguidance has them."""

    kind: Literal["json_schema", "json_object", "regex", "lark"]
    text: str = ""


@dataclass(frozen=True)
class Request:
    """One prompt and `choices` answers to it.

    Choice i is drawn with seed + i. `ends` are the token ids that end an answer (they are not part
    of it). `bias` is added to logits, token id to value. `logprobs` is the number of likeliest
    tokens to report with every token (0: the chosen one's own value only, None: nothing);
    `prompt_logprobs` reports the prompt's tokens as well. `timeout_s` counts from arrival.
    """

    id: str
    prompt: tuple[int, ...]
    sampling: Sampling = Sampling()
    max_tokens: int = 128
    choices: int = 1
    ends: frozenset[int] = frozenset()
    bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    prompt_logprobs: bool = False
    grammar: Grammar | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        limits = {"max_tokens": (1, 2**31 - 1), "choices": (1, MOST_CHOICES)}
        if self.logprobs is not None:
            limits["logprobs"] = (0, MOST_LOGPROBS)
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise OptionError(f"{name} is {value}", f"choose a value from {low} to {high}")


@dataclass(frozen=True)
class Logprob:
    """Natural logarithm of a token's probability before temperature and filters, and the
    likeliest tokens at its place, likeliest first."""

    token: int
    value: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Failure:
    """Why a request ended without its answer. `kind` names a class of terrazzo.errors;
    `retry_after_s` when to try again, 0 where that is not known."""

    kind: str
    text: str
    retry_after_s: float = 0.0


@dataclass(frozen=True)
class Usage:
    """Figures of one finished request, all its choices together. Times in seconds."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    preemptions: int = 0


@dataclass(frozen=True)
class Event:
    """New tokens of one choice, and its end. The event that ends a request's last choice has the
    request's `usage`. `prompt_logprobs` come with the first event, one value a prompt token but
    the first."""

    request: str
    choice: int = 0
    tokens: tuple[int, ...] = ()
    logprobs: tuple[Logprob, ...] = ()
    finish: Finish = ""
    failure: Failure | None = None
    usage: Usage | None = None
    prompt_logprobs: tuple[Logprob, ...] = ()
