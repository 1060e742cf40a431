"""One HTTP request's answers: engine requests out, pieces of text in, stop strings in between."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from terrazzo.engine.options import Sampling, StopText
from terrazzo.engine.request import Event, Logprob, Request, Usage
from terrazzo.errors import ContextOverflow, TerrazzoError
from terrazzo.serve.api.errors import ApiError, of_error, of_failure
from terrazzo.serve.api.fields import (
    Fields,
    accepted,
    biases,
    boolean,
    extension,
    integer,
    number,
    required,
    stops,
    stream_options,
    text,
    wrong,
)
from terrazzo.serve.service import Service
from terrazzo.serve.supervisor import Answer

MOST_CHOICES = 128
COMMON: Fields = {
    "model": required(text(4096)),
    "n": integer(1, MOST_CHOICES),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "logit_bias": biases(),
    "seed": integer(-(2**63), 2**63 - 1),
    "stop": stops(),
    "stream": boolean(),
    "stream_options": stream_options(),
    "user": accepted("string"),
    "top_k": extension(integer(-1)),
    "min_p": extension(number(0, 1)),
    "repetition_penalty": extension(number(0.01, 10)),
    "ignore_eos": extension(boolean()),
    "timeout": extension(number(0.001, 86_400)),
}


@dataclass
class Update:
    """What came for one choice: its number over all prompts, text that may be shown, tokens behind
    it (with `logprobs` if they are wanted), and why it ended, if it did."""

    choice: int
    text: str = ""
    tokens: Sequence[int] = ()
    logprobs: Sequence[Logprob] = ()
    finish: str | None = None
    prompt_logprobs: Sequence[Logprob] = ()


@dataclass
class Totals:
    """Of all prompts together, as far as they have ended."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    drafted: int = 0
    accepted: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    preemptions: int = 0

    def add(self, u: Usage) -> None:
        self.prompt += u.prompt_tokens
        self.cached += u.cached_tokens
        self.drafted += u.drafted_tokens
        self.accepted += u.accepted_tokens
        self.preemptions += u.preemptions
        self.queue_s = max(self.queue_s, u.queue_s)
        self.prefill_s = max(self.prefill_s, u.prefill_s)
        self.decode_s = max(self.decode_s, u.decode_s)

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0, "audio_tokens": 0,
                "accepted_prediction_tokens": self.accepted,
                "rejected_prediction_tokens": self.drafted - self.accepted,
            },
        }  # fmt: skip

    def timings(self) -> dict[str, Any]:
        rate = self.completion / self.decode_s if self.decode_s else 0.0
        return {
            "queue_s": round(self.queue_s, 6), "prefill_s": round(self.prefill_s, 6),
            "decode_s": round(self.decode_s, 6), "tokens_per_s": round(rate, 2),
            "preemptions": self.preemptions,
        }  # fmt: skip


def sampling(given: Mapping[str, Any]) -> Sampling:
    """What COMMON's fields say. Without a seed, one that nobody has had before."""
    seed = given.get("seed")
    seed = int.from_bytes(os.urandom(8)) if seed is None else seed % 2**64
    return Sampling(
        temperature=given.get("temperature", 1.0), top_p=given.get("top_p", 1.0),
        top_k=max(0, given.get("top_k", 0)), min_p=given.get("min_p", 0.0),
        repeat_penalty=given.get("repetition_penalty", 1.0), seed=seed,
        presence_penalty=given.get("presence_penalty", 0.0),
        frequency_penalty=given.get("frequency_penalty", 0.0),
    )  # fmt: skip


def check_model(service: Service, given: Mapping[str, Any]) -> None:
    if given["model"] != service.name:
        raise ApiError(404, f"there is no model {given['model'][:200]!r} here; there is"
                       f" {service.name!r}", param="model", code="model_not_found")  # fmt: skip
    if "stream_options" in given and not given.get("stream"):
        raise ApiError(400, "stream_options is only allowed with stream", param="stream_options")


def request(
    service: Service, id: str, prompt: Sequence[int], given: Mapping[str, Any],
    most: int | None, **more: Any,
) -> Request:  # fmt: skip
    """An engine request of `given`'s fields. most: tokens to write, None: as many as there is room
    for. Raises ApiError."""
    room = service.context - len(prompt)
    if service.context and room < 1:
        raise of_error(ContextOverflow(
            f"the prompt has {len(prompt):,} tokens, the context holds {service.context:,} and one"
            " more is wanted", "shorten the prompt or start the server with a larger --context",
        ))  # fmt: skip
    most_id = service.tokenizer.vocab_size - 1
    if bad := [id for id in given.get("logit_bias", ()) if id > most_id]:
        raise wrong("logit_bias", f"token id {bad[0]} is outside of 0 to {most_id:,}")
    ends = frozenset() if given.get("ignore_eos") else service.tokenizer.eos_ids
    try:
        return Request(
            id, tuple(prompt), sampling(given), max_tokens=max(1, room) if most is None else most,
            choices=given.get("n", 1), ends=ends, bias=given.get("logit_bias", {}),
            timeout_s=given.get("timeout"), **more,
        )  # fmt: skip
    except TerrazzoError as error:
        raise of_error(error) from None


@dataclass
class _Choice:
    stop: StopText
    stream: Any
    tokens: int = 0
    ended: bool = False


@dataclass
class Generation:
    """`requests` are numbered in order; request i's choice c is number i * n + c. `close` ends what
    still runs; `totals` are whole once `updates` is through."""

    service: Service
    requests: Sequence[Request]
    stops: tuple[str, ...] = ()
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        self._began = time.perf_counter()
        self._first = False
        self._open = {r.id: i for i, r in enumerate(self.requests)}
        new = self.service.tokenizer.stream
        self._choices = {
            (r.id, c): _Choice(StopText(self.stops), new())
            for r in self.requests
            for c in range(r.choices)
        }

    async def updates(self) -> AsyncIterator[list[Update]]:
        """Raises ApiError if one of the requests fails."""
        answer = Answer()
        try:
            for r in self.requests:
                self.service.supervisor.add(r, answer)
            while self._open:
                found = [u for e in await answer.take() if (u := self._take(e)) is not None]
                if found:
                    yield found
        except TerrazzoError as error:
            raise of_error(error) from None
        finally:
            self.close()

    def close(self) -> None:
        for id in self._open:
            self.service.supervisor.abort(id)
            self.service.supervisor.forget(id)
        self._open.clear()

    def _take(self, e: Event) -> Update | None:
        if e.failure is not None:
            raise of_failure(e.failure)
        if e.request not in self._open:
            return None
        number = self._open[e.request] * self.requests[0].choices + e.choice
        update = None
        choice = self._choices[e.request, e.choice]
        if not choice.ended:
            update = self._text(choice, e, number)
        if e.usage is not None:
            self.totals.add(e.usage)
            self.service.metrics.finished(replace(e.usage, completion_tokens=sum(
                c.tokens for (id, _), c in self._choices.items() if id == e.request
            )))  # fmt: skip
            self.service.supervisor.forget(e.request)
            del self._open[e.request]
        return update

    def _text(self, choice: _Choice, e: Event, number: int) -> Update | None:
        if e.tokens and not self._first:
            self._first = True
            self.service.metrics.first_token.observe(time.perf_counter() - self._began)
        parts, taken = [], 0
        for token in e.tokens:
            taken += 1
            parts.append(choice.stop.push(choice.stream.push(token)))
            if choice.stop.hit:
                break
        choice.tokens += taken
        self.totals.completion += taken
        finish: str | None = e.finish or None
        if choice.stop.hit:
            finish = "stop"
            if not e.finish:
                self.service.supervisor.abort(e.request, e.choice)
        elif finish:
            parts.append(choice.stop.push(choice.stream.flush()))
            parts.append(choice.stop.flush())
        choice.ended = finish is not None
        text = "".join(parts)
        if not (text or finish or e.logprobs or e.prompt_logprobs):
            return None
        return Update(number, text, e.tokens[:taken], e.logprobs[:taken], finish, e.prompt_logprobs)
