"""Log probabilities of tokens, from a row of the model's logits as they are."""

from __future__ import annotations

import numpy as np

from terrazzo.engine.request import Logprob

BLOCK = 128


def report(row: np.ndarray, token: int, top: int) -> Logprob:
    """Of `token`, and of the `top` likeliest, at the place whose logits are f32 [vocab] `row`."""
    most = row.max()
    off = float(most) + float(np.log(np.exp(row - most).sum(dtype=np.float64)))
    ids = likeliest(row, top)
    return Logprob(
        token,
        float(row[token]) - off,
        tuple((i, float(row[i]) - off) for i in ids),
    )


def likeliest(row: np.ndarray, count: int) -> list[int]:
    """The indices of the `count` largest values, largest first, the lower index first of equals.

    They lie in the `count` blocks with the largest maxima, so that only these are sorted.
    """
    if not count:
        return []
    whole = len(row) // BLOCK * BLOCK
    blocks = row[:whole].reshape(-1, BLOCK)
    where = np.arange(len(row))
    if len(blocks) > count:
        best = np.argsort(-blocks.max(axis=1), kind="stable")[:count]
        inside = (np.sort(best)[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        where = np.concatenate((inside, where[whole:]))
    values = row[where]
    return where[np.argsort(-values, kind="stable")[:count]].tolist()
