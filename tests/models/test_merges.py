"""Byte-pair merging against the `tokenizers` package's, over random vocabularies whose merges come
in any order (a trained list would name a pair's parts before the pair)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from terrazzo.models.merges import Merges

LETTERS = "abc"


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokens = list(LETTERS)
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 12))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if pair not in merges:
            merges.append(pair)
            if "".join(pair) not in tokens:
                tokens.append("".join(pair))
    return {token: id for id, token in enumerate(tokens)}, draw(st.permutations(merges))


@given(vocabularies(), st.lists(st.text(LETTERS, min_size=1, max_size=60), max_size=5))
def test_merging_is_that_of_tokenizers(
    vocabulary: tuple[dict[str, int], list[tuple[str, str]]], words: list[str]
) -> None:
    ids, merges = vocabulary
    ours, oracle = (
        Merges(Merges.parse([" ".join(pair) for pair in merges], ids)),
        models.BPE(ids, merges),
    )
    for word in words:
        expected = [token.id for token in oracle.tokenize(word)]
        assert list(ours(tuple(ids[c] for c in word))) == expected, (merges, word)


def test_a_pair_listed_twice_counts_where_it_is_first() -> None:
    ids = {token: id for id, token in enumerate(["a", "b", "c", "ab", "bc"])}
    merges = Merges(Merges.parse(["a b", "b c", "a b"], ids))
    assert list(merges((0, 1, 2))) == [3, 2]


@pytest.mark.parametrize("merge", ["ab", "a b c", ""])
def test_what_is_not_two_tokens_is_named(merge: str) -> None:
    with pytest.raises(ValueError, match="is not two tokens"):
        Merges.parse(["a b", merge], {"a": 0, "b": 1, "ab": 2})


def test_no_merges() -> None:
    assert list(Merges(Merges.parse([], {"a": 0}))((0, 0))) == [0, 0]
