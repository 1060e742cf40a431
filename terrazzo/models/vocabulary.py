"""A model file's token strings, merges and whole words as arrays: what is left of them to keep."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from terrazzo.errors import ModelFileError
from terrazzo.models.merges import Merges
from terrazzo.models.metadata import Metadata, PackedStrings
from terrazzo.models.pretokenizer import byte_characters

TOKENS = "tokenizer.ggml.tokens"
BYTES_OF = {char: bytes([byte]) for byte, char in enumerate(byte_characters())}
# Tokens that end a turn or a document, whatever the metadata says: some files name one of several.
_END_TEXTS = (
    "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>",
    "<end_of_turn>",
)  # fmt: skip


@contextmanager
def _no_collections() -> Iterator[None]:
    """Python's collector paused: 200,000 small objects, none of them garbage, would only cost."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@dataclass(frozen=True)
class Strings:
    """What is made of a file's strings: code points of bytes' characters and their ids [256, 2],
    the table of merges, that of whole words (if the rule wants one), the ids of _END_TEXTS."""

    characters: np.ndarray
    merges: np.ndarray
    words: np.ndarray | None
    ends: np.ndarray


def read(meta: Metadata, whole_words: bool) -> Strings:
    """Takes 15 MiB of small Python objects for a moment. Arrays only come out of it, to be copied
    by those who keep them: a small object made meanwhile and kept would hold on to the megabyte of
    memory it is in."""
    key = "tokenizer.ggml.merges"
    with _no_collections():
        tokens = _strings(meta, TOKENS)
        ids = dict(zip(tokens, range(len(tokens)), strict=True))
        # Some vocabularies lack bytes. llama.cpp drops them, but after merging: their
        # neighbours do not join. So they get ids until then.
        for char, byte in BYTES_OF.items():
            ids.setdefault(char, len(tokens) + byte[0])
        try:
            merges = Merges.parse(_strings(meta, key), ids)
        except ValueError as error:
            raise ModelFileError(f"{meta.path}: {key}: {error}") from None
        return Strings(
            np.array([(ord(char), ids[char]) for char in BYTES_OF]),
            merges,
            WholeWords.parse(tokens) if whole_words else None,
            np.array([ids[text] for text in _END_TEXTS if text in ids], np.int64),
        )


class WholeWords:
    """The ids of those words that are tokens: hashes of all tokens in order, 16 bytes each."""

    def __init__(self, tokens: PackedStrings, table: np.ndarray) -> None:
        """`table`: what `parse` returned; it is copied."""
        self._tokens = tokens
        self._hashes, self._ids = (row.copy().data for row in table)

    @staticmethod
    def parse(tokens: list[str]) -> np.ndarray:
        """The table [2, tokens] i64 of hashes in order and their tokens' ids."""
        hashes = np.fromiter(map(hash, tokens), np.int64, len(tokens))
        order = np.argsort(hashes, kind="stable")
        return np.stack([hashes[order], order])

    def get(self, word: str) -> int | None:
        value = hash(word)
        at = bisect_left(self._hashes, value)
        while at < len(self._hashes) and self._hashes[at] == value:
            if self._tokens[self._ids[at]] == word:
                return self._ids[at]
            at += 1
        return None


def _strings(meta: Metadata, key: str) -> list[str]:
    if key not in meta:
        raise ModelFileError(f"{meta.path}: metadata key {key!r} is missing")
    value = meta[key]
    if not isinstance(value, list):
        raise ModelFileError(f"{meta.path}: metadata key {key!r} must be an array of strings")
    return value
