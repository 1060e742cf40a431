"""A call in a model's text is the same however the text arrives: streamed, whole, in drafts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrazzo.serve.api.tools import CallText

NAMES = ("get_weather", "f")
PARTS = ("<tool_call>", "</tool_call>", "</b>", "<", "</tool", '{"name": "f", "arguments": ', "}",
         '{"name": "nobody", "arguments": {}}', '{ "name" : "get_weather","parameters":', " ", "\n",
         '{"a": "}"}', "{}}", "\r", "sea", "\u3000", "x" * 150)  # fmt: skip


def found(pieces: list[str], forced: bool, whole: bool) -> dict[str, str]:
    book, out = CallText(NAMES, forced), {"content": "", "name": "", "arguments": ""}
    for piece in [*(book.push(p) for p in pieces), book.flush(whole)]:
        for kind, text in piece:
            out[kind] += text
    return out


@given(st.lists(st.sampled_from(PARTS), max_size=8), st.lists(st.integers(0, 60)), st.booleans(),
       st.booleans())  # fmt: skip
def test_pieces_do_not_matter(parts: list[str], cuts: list[int], forced: bool, whole: bool) -> None:
    text = "".join(parts)
    places = sorted({0, len(text), *(c for c in cuts if c < len(text))})
    pieces = [text[a:b] for a, b in pairwise(places)]
    once = found([text], forced, whole)
    assert found(pieces, forced, whole) == once == found(list(text), forced, whole)


@pytest.mark.parametrize("space", ["", " ", "\n  "])
def test_arguments_begin_and_end_with_their_braces(space: str) -> None:
    call = f'{{"name": "f",{space}"arguments":{space}{{"a": "</b>"}}{space}}}'
    want = {"content": "", "name": "f", "arguments": '{"a": "</b>"}'}
    assert found(list(call), True, True) == want
    assert found([f"<tool_call>{call}</tool_call> and more"], False, True) == want


def test_a_tag_in_a_forced_call_is_text() -> None:
    call = '{"name": "f", "arguments": {"a": "</tool_call>"}}'
    assert found(list(call), True, True)["arguments"] == '{"a": "</tool_call>"}'
