"""What is kept of the oracle's logits, and how a candidate's logits are measured against it.

NumPy only. The full fp32 logits of the texts are 650 MB; kept per position are the 32 largest with
their ids, the log-sum-exp, the logit of the token that follows, the norm, and a sketch: 64 random
signed sums over the whole vocabulary (Johnson-Lindenstrauss). The sketch of a difference has the
expected squared length of the difference, so a cosine against the full row is estimated with every
logit taking part: 1 - cosine comes out right to a factor of 1 +- 0.18 (one standard deviation,
sqrt(2/64)).

KL divergences are KL(oracle || candidate) in nats. The coarse KL looks at 33 events, the 32 most
likely tokens of the oracle and "any other token"; it is never larger than the full KL and is what
stored data can give.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TOP = 32
SKETCH = 64
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Compact:
    """Rows are positions. `target` is the logit of the row's next token; NaN in the last row of a
    passage."""

    top_ids: NDArray[np.uint16]  # [positions, TOP], most likely first
    top_logits: F32  # [positions, TOP]
    log_sum_exp: F32  # [positions]
    target: F32  # [positions]
    norm: F32  # [positions], Euclidean length of the row
    sketch: F32  # [positions, SKETCH]

    def __len__(self) -> int:
        return len(self.norm)


def signs(vocabulary: int) -> F32:
    """[vocabulary, SKETCH] of +1 and -1, scaled by 1/sqrt(SKETCH). Philox: the same on every
    machine."""
    words = np.random.Philox(key=135).random_raw(vocabulary)
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
    return (bits.reshape(vocabulary, 64).astype(np.float32) * 2 - 1) / np.float32(np.sqrt(SKETCH))


def compact(logits: F32, ids: list[int], sign: F32) -> Compact:
    """Reduce [positions, vocabulary] logits of the tokens `ids`. `sign` is `signs(vocabulary)`."""
    top = np.argpartition(-logits, TOP, axis=1)[:, :TOP]
    values = np.take_along_axis(logits, top, axis=1)
    # Equal logits: lowest id first, as argmax has it.
    order = np.lexsort((top, -values), axis=1)
    return Compact(
        np.take_along_axis(top, order, axis=1).astype(np.uint16),
        np.take_along_axis(values, order, axis=1),
        log_sum_exp(logits).astype(np.float32),
        _targets(logits, ids),
        np.linalg.norm(logits, axis=1).astype(np.float32),
        logits @ sign,
    )


def save(path: Path, parts: list[Compact]) -> None:
    """Write the passages' parts, one after the other, with their lengths."""
    columns = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Compact)}
    np.savez_compressed(path, lengths=np.array([len(p) for p in parts]), **columns)


def read(path: Path) -> list[Compact]:
    """What `save` wrote, one `Compact` a passage."""
    with np.load(path, allow_pickle=False) as data:
        ends = np.cumsum(data["lengths"])
        columns = {f.name: np.split(data[f.name], ends[:-1]) for f in fields(Compact)}
    return [Compact(*rows) for rows in zip(*columns.values(), strict=True)]


def log_sum_exp(logits: F32) -> F64:
    """[positions], accumulated in float64 from values shifted by the row's largest."""
    largest = logits.max(axis=1, keepdims=True)
    return np.log(np.exp(logits - largest).sum(axis=1, dtype=np.float64)) + largest[:, 0]


def negative_log_likelihood(logits: F32, ids: list[int]) -> F64:
    """[positions - 1]: -log p of each token from the second on."""
    return (log_sum_exp(logits) - _targets(logits, ids))[:-1]


def cosine(a: F32, b: F32) -> F64:
    """[positions], accumulated in float64."""

    def dot(x: F32, y: F32) -> F64:
        return np.einsum("pv,pv->p", x, y, dtype=np.float64)

    return dot(a, b) / np.sqrt(dot(a, a) * dot(b, b))


def kl(oracle: F32, candidate: F32) -> F64:
    """[positions]: KL(oracle || candidate) over the whole vocabulary."""
    shift = log_sum_exp(oracle) - log_sum_exp(candidate)
    chance = np.exp(oracle - log_sum_exp(oracle)[:, None])
    return np.einsum("pv,pv->p", chance, oracle.astype(np.float64) - candidate) - shift


def estimated_cosine(oracle: Compact, candidate: Compact) -> F64:
    """[positions], from exact norms and the sketched distance."""
    a, b = oracle.norm.astype(np.float64), candidate.norm.astype(np.float64)
    apart = np.square(oracle.sketch.astype(np.float64) - candidate.sketch).sum(axis=1)
    return (a * a + b * b - apart) / (2 * a * b)


def coarse_kl(oracle: Compact, candidate: F32) -> F64:
    """[positions]: the KL of the 33 events (see above) between a stored row and full candidate
    logits."""
    log_p = oracle.top_logits.astype(np.float64) - oracle.log_sum_exp[:, None]
    picked = np.take_along_axis(candidate, oracle.top_ids.astype(np.int64), axis=1)
    log_q = picked.astype(np.float64) - log_sum_exp(candidate)[:, None]
    p, q = np.exp(log_p), np.exp(log_q)
    rest_p = np.maximum(1 - p.sum(axis=1), 1e-12)
    rest_q = np.maximum(1 - q.sum(axis=1), 1e-12)
    return (p * (log_p - log_q)).sum(axis=1) + rest_p * np.log(rest_p / rest_q)


def perplexity(losses: list[F64]) -> float:
    """exp of the mean of all the losses."""
    return float(np.exp(np.concatenate(losses).mean()))


def same_greedy(ours: list[int], oracle: list[int], ends: tuple[int, ...]) -> bool:
    """Whether two greedy continuations agree, each cut at its first end token (which may or may not
    be there)."""

    def cut(ids: list[int]) -> list[int]:
        return ids[: next((i for i, token in enumerate(ids) if token in ends), len(ids))]

    return cut(ours) == cut(oracle)


def _targets(logits: F32, ids: list[int]) -> F32:
    """[positions]: the logit of the next token; NaN in the last row."""
    chosen = logits[np.arange(len(ids) - 1), np.array(ids[1:])]
    return np.append(chosen, np.float32(np.nan)).astype(np.float32)
