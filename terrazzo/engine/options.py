"""How to pick tokens, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass, fields

from terrazzo.errors import OptionError


@dataclass(frozen=True)
class Sampling:
    """temperature 0 takes the likeliest token. top_k 0, top_p 1, min_p 0 and repeat_penalty 1 are
    off. `repeat_last`: how many last tokens the penalty looks at. The same seed gives the same
    text. `presence_penalty` is taken off the logit of every token that the answer has already,
    `frequency_penalty` as often as it has it."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last: int = 64
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    def __post_init__(self) -> None:
        limits = {
            "temperature": (0.0, 100.0),
            "top_k": (0, 2**31 - 1),
            "top_p": (0.0, 1.0),
            "min_p": (0.0, 1.0),
            "repeat_penalty": (0.01, 100.0),
            "repeat_last": (0, 4096),
            "seed": (0, 2**64 - 1),
            "presence_penalty": (-2.0, 2.0),
            "frequency_penalty": (-2.0, 2.0),
        }
        for f in fields(self):
            low, high = limits[f.name]
            value = getattr(self, f.name)
            if not low <= value <= high:
                raise OptionError(
                    f"{f.name} is {value}", f"choose a value from {low:g} to {high:g}"
                )

    @property
    def greedy(self) -> bool:
        return self.temperature <= 0.0

    @property
    def counts(self) -> bool:
        """Whether a token's probability depends on how often the answer has it."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


STEP_TOKENS = 256
MIXED_TOKENS = 96
CATCH_UP = 16  # tokens of a sequence that a draft model computes together with its first guess


def draft_tokens(mixed_tokens: int, parallel: int) -> int:
    """Most tokens of a step of a draft model."""
    return max(mixed_tokens, CATCH_UP * parallel)


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is made of. `model`: a name or a path. `context`: tokens of a sequence at
    most, default the model's. `parallel`: sequences that run at a time. `blocks`: of 16 tokens, of
    the whole KV cache, default enough for all of them. `kv`: as the model's cache has it, default
    f16. A step takes at most `step_tokens` tokens, and at most `mixed_tokens` of prompts while
    sequences decode: that bounds how long a prompt holds up the others. `waiting`: choices that
    may wait, all requests' together. `draft`: who guesses at next tokens: "lookup" (what followed
    in the text before), a smaller model's name or path, None: nobody."""

    model: str
    context: int | None = None
    parallel: int = 16
    blocks: int | None = None
    kv: str | None = None
    threads: int | None = None
    step_tokens: int = STEP_TOKENS
    mixed_tokens: int = MIXED_TOKENS
    waiting: int = 256
    draft: str | None = "lookup"

    def __post_init__(self) -> None:
        least = {"parallel": 1, "step_tokens": 1, "mixed_tokens": 1, "waiting": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise OptionError(f"{name} is {getattr(self, name)}", f"choose at least {low}")
        if self.step_tokens < self.parallel + self.mixed_tokens:
            raise OptionError(
                f"step_tokens is {self.step_tokens}, less than a token for each of"
                f" {self.parallel} sequences and mixed_tokens of {self.mixed_tokens}",
                "choose a larger step_tokens or smaller others",
            )


class StopText:
    """Cuts a stream of text at the first of several stop strings; holds back what may begin one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.stops = tuple(s for s in stops if s)
        self.held = ""
        self.hit = False

    def push(self, text: str) -> str:
        """Text that may be shown now. After a stop string was seen, `hit` is True and nothing
        follows."""
        if self.hit:
            return ""
        self.held += text
        cuts = [i for i in (self.held.find(s) for s in self.stops) if i >= 0]
        if cuts:
            self.hit = True
            out, self.held = self.held[: min(cuts)], ""
            return out
        keep = max((self._overlap(s) for s in self.stops), default=0)
        cut = len(self.held) - keep
        out, self.held = self.held[:cut], self.held[cut:]
        return out

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of `held` that begins `stop`."""
        for n in range(min(len(stop) - 1, len(self.held)), 0, -1):
            if self.held.endswith(stop[:n]):
                return n
        return 0

    def flush(self) -> str:
        """What was held back, at the end of the stream."""
        out, self.held = ("", "") if self.hit else (self.held, "")
        return out
