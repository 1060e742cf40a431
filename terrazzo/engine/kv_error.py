"""What it costs to hold keys and values as whole numbers: the logits beside those of an f16 cache,
one layer at a time and all together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from terrazzo.engine.model import PREFILL_TOKENS, Model
from terrazzo.models.kv_cache import PAGE, KVCache, elements, page_bytes
from terrazzo.models.llama import LOGIT_ROWS, Budget, Chunk, LlamaStep

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class KVError:
    """`what`: a layer's number, or a kind of cache. Over all positions of the text: `worst` is the
    largest difference of a logit, `divergence` the mean KL divergence from f16 in nats,
    `perplexity` exp of the mean loss. `bytes`: of a token's keys and values in all layers."""

    what: str
    bytes: float
    worst: float
    divergence: float
    perplexity: float


def kv_errors(model: Model, ids: Sequence[int], progress: Progress) -> Iterator[KVError]:
    """f16, then int8 in one layer alone, layer by layer, then int8 and auto, on the text `ids`."""
    f16, int8 = elements(model.config, "f16"), np.dtype(np.int8)
    kinds = {"f16": f16}
    kinds |= {str(n): (*f16[:n], int8, *f16[n + 1 :]) for n in range(model.config.layers)}
    kinds |= {"int8": elements(model.config, "int8"), "auto": elements(model.config, "auto")}
    exact = np.empty(0)
    for done, (what, kind) in enumerate(kinds.items()):
        progress(f"keys and values: {what}", done, len(kinds))
        got = _log_chances(model, ids, kind)
        if what == "f16":
            exact = got
        loss = -float(np.mean(got[np.arange(len(ids) - 1), list(ids[1:])]))
        yield KVError(
            what,
            page_bytes(model.config, kind) / PAGE,
            float(np.abs(got - exact).max()),
            float(np.mean(np.sum(np.exp(exact) * (exact - got), axis=1, dtype=np.float64))),
            float(np.exp(loss)),
        )


def _log_chances(model: Model, ids: Sequence[int], kinds: Sequence[np.dtype]) -> np.ndarray:
    """f32 [tokens, vocab]: log probabilities after every position, the text as one prompt."""
    pages = -(-len(ids) // PAGE)
    step = LlamaStep(
        model.config, model.step.weights, KVCache(model.config, pages, kinds),
        Budget(min(PREFILL_TOKENS, len(ids)), 1, pages), int8=model.activations == "int8",
        threads=model.threads,
    )  # fmt: skip
    own = np.arange(pages, dtype=np.int32)
    out = np.empty((len(ids), model.config.vocab_size), np.float32)
    for at in range(0, len(ids), LOGIT_ROWS):
        part = list(ids[at : at + LOGIT_ROWS])
        rows = out[at : at + len(part)]
        rows[:] = step.run([Chunk(own, part, at, len(part))])
        rows -= rows.max(axis=1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return out
