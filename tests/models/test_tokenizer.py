"""The tokenizer: ids of llama.cpp on stored strings, and the bytes, streams and errors around
them."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from gguf_maker import Maker, string, tiny_llama
from hypothesis import given
from hypothesis import strategies as st

from terrazzo.errors import ContextOverflow, ModelFileError, OptionError
from terrazzo.models.gguf import GGUF
from terrazzo.models.metadata import Cursor, Metadata
from terrazzo.models.tokenizer import Tokenizer

ORACLE = Path(__file__).parents[1] / "data" / "tokenizer_llama_cpp.json.gz"


@pytest.fixture(scope="module")
def tokenizer(model: GGUF) -> Tokenizer:
    return Tokenizer.from_gguf(model)


@pytest.fixture(scope="module")
def oracle() -> dict:
    return json.loads(gzip.decompress(ORACLE.read_bytes()))


def tiny(folder: Path, maker: Maker) -> Tokenizer:
    path = folder / "m.gguf"
    path.write_bytes(maker.build())
    return Tokenizer.from_gguf(GGUF.open(path))


def test_ids_are_those_of_llama_cpp(tokenizer: Tokenizer, oracle: dict) -> None:
    cases = oracle["cases"]
    assert len(cases) >= 2_000 and sum(special is not None for *_, special in cases) > 200
    for text, plain, special in cases:
        assert tokenizer.encode(text) == plain, text
        assert tokenizer.encode(text, special=True) == (special or plain), text


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2"])
def test_other_pre_tokenizers_are_those_of_llama_cpp(model: GGUF, oracle: dict, name: str) -> None:
    """The demo model's vocabulary under another pre-tokeniser's name, as the oracle's maker did
    it."""
    end = min(info.offset for info in model.tensors.values())
    head = model.path.read_bytes()[:end]
    kind, key = struct.pack("<I", 8), b"tokenizer.ggml.pre"
    head = head.replace(key + kind + string("smollm"), key + kind + string(name))
    cursor = Cursor(np.frombuffer(head, np.uint8), "patched")
    cursor.pos = 24
    tokenizer = Tokenizer(Metadata(cursor, len(model.metadata)))
    assert tokenizer.add_bos is False  # the file's own word goes before the pre-tokeniser's default
    for (text, *_), ids in zip(oracle["cases"][::6], oracle["others"][name], strict=True):
        assert tokenizer.encode(text) == ids, text


def test_text_comes_back(tokenizer: Tokenizer, oracle: dict) -> None:
    absent = {bytes([b]) for b in range(256)} - {tokenizer.piece(i) for i in range(49152)}
    assert len(absent) == 21  # this vocabulary lacks some bytes, and drops them as llama.cpp does
    for text, *_ in oracle["cases"]:
        kept = b"".join(bytes([b]) for b in text.encode() if bytes([b]) not in absent)
        assert tokenizer.decode(tokenizer.encode(text)) == kept.decode("utf-8", "replace")


def test_facts_of_the_demo_model(tokenizer: Tokenizer) -> None:
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.add_bos) == (49152, 1, False)
    assert tokenizer.eos_ids == {0, 2}  # <|endoftext|>, <|im_end|>
    assert tokenizer.piece(2) == b"<|im_end|>" and tokenizer.is_special(2)
    assert tokenizer.encode("2", bos=True) == [1, *tokenizer.encode("2")]


def test_control_tokens_in_text(tokenizer: Tokenizer) -> None:
    text = "a<|im_end|>b"
    assert 2 not in tokenizer.encode(text)
    ids = tokenizer.encode(text, special=True)
    assert ids == [*tokenizer.encode("a"), 2, *tokenizer.encode("b")]
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special=False) == text
    guarded = tokenizer.encode("<|im_end|>a<#|im_end|>#", special=True, guard="#")
    assert guarded == [2, *tokenizer.encode("a<|im_end|>")]


def test_surrogates(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")
    assert tokenizer.encode("\udc00\ud800") == tokenizer.encode("\ufffd\ufffd")
    assert tokenizer.encode("\ud83d\ude42") == tokenizer.encode("🙂")


@given(st.text(st.characters()), st.booleans())  # with surrogates
def test_any_string_is_taken(tokenizer: Tokenizer, text: str, special: bool) -> None:
    ids = tokenizer.encode(text, special)
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    tokenizer.decode(ids).encode()


@given(st.lists(st.integers(0, 49151), max_size=30), st.booleans())
def test_stream_equals_decode(tokenizer: Tokenizer, ids: list[int], skip_special: bool) -> None:
    stream = tokenizer.stream(skip_special)
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) + stream.flush() == tokenizer.decode(ids, skip_special)
    assert stream.flush() == ""


def test_stream_waits_for_whole_characters(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🙂日")
    assert len(ids) > 2
    stream = tokenizer.stream()
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) == "🙂日" and "" in pieces and "\ufffd" not in "".join(pieces)
    assert stream.push(ids[0]) + stream.flush() == "\ufffd"


def test_ids_out_of_range(tokenizer: Tokenizer) -> None:
    for id in (-1, 49152):
        with pytest.raises(OptionError, match=r"is outside of 0 to 49,151"):
            tokenizer.piece(id)
        with pytest.raises(OptionError):
            tokenizer.decode([id])


def test_long_input(tokenizer: Tokenizer) -> None:
    text = "x" * 200_000 + " word" * 20_000
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_token_types(tmp_path: Path) -> None:
    tokenizer = tiny(tmp_path, tiny_llama())
    size = tokenizer.vocab_size
    tool, pad = size - 2, size - 1
    hello = tokenizer.encode("hello world")
    assert [tokenizer.piece(i) for i in hello] == [b"hello", b" world"]
    assert tokenizer.encode("hello<tool> world") == [
        hello[0],
        tool,
        hello[1],
    ]  # user-defined: always
    assert tokenizer.decode([tool, pad]) == "<tool>" and tokenizer.piece(pad) == b""
    assert pad not in tokenizer.encode("<pad>", special=True)
    assert tokenizer.eos_ids == {size - 3}


def test_missing_bytes_do_not_join_their_neighbours(tmp_path: Path) -> None:
    maker = tiny_llama()
    tokens = maker.metadata["tokenizer.ggml.tokens"]
    tokens[ord("z")] = "unused"
    tokenizer = tiny(tmp_path, maker)
    assert [tokenizer.piece(i) for i in tokenizer.encode("hzezx")] == [b"h", b"e", b"x"]


def test_bos_by_default_and_on_request(tmp_path: Path) -> None:
    maker = tiny_llama()
    maker.metadata["tokenizer.ggml.pre"] = "llama-bpe"
    del maker.metadata["tokenizer.ggml.add_bos_token"]
    tokenizer = tiny(tmp_path, maker)
    assert tokenizer.add_bos and tokenizer.encode("h")[0] == tokenizer.bos_id
    assert tokenizer.encode("h", bos=False) == tokenizer.encode("h")[1:]
    del maker.metadata["tokenizer.ggml.bos_token_id"]
    with pytest.raises(ModelFileError, match="add_bos_token is set, but bos_token_id is missing"):
        tiny(tmp_path, maker)
    maker.metadata["tokenizer.ggml.add_bos_token"] = False
    with pytest.raises(OptionError, match="no BOS token"):
        tiny(tmp_path, maker).encode("h", bos=True)


BROKEN = {
    "'tokenizer.ggml.pre' is missing": {"pre": None},
    r"pre-tokenizer 'x' is not supported \(gpt-2, smollm, llama-bpe, qwen2 are\)": {"pre": "x"},
    r"tokenizer 'llama' is not supported \(gpt2 is\)": {"model": "llama"},
    "'tokenizer.ggml.merges' is missing": {"merges": None},
    "'tokenizer.ggml.merges' must be an array of strings": {"merges": 3},
    "merges: 'l' is not two tokens": {"merges": ["h e", "l"]},
    "merges: 'qq' is needed for a merge and is not a token": {"merges": ["h e", "q q"]},
    "token_type has 1 entries for 269 tokens": {"token_type": [1]},
    "'tokenizer.ggml.token_type' must be an array of integers": {"token_type": ["1"]},
    "bos_token_id is 5,000, the vocabulary has 269 tokens": {"bos_token_id": 5000},
}


@pytest.mark.parametrize("words", BROKEN)
def test_broken_tokenizers_are_named(tmp_path: Path, words: str) -> None:
    maker = tiny_llama()
    for key, item in BROKEN[words].items():
        maker.metadata.pop(f"tokenizer.ggml.{key}")
        if item is not None:
            maker.metadata[f"tokenizer.ggml.{key}"] = item
    with pytest.raises(ModelFileError, match=words) as caught:
        tiny(tmp_path, maker)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_text_that_is_certainly_too_long_is_refused_before_it_is_cut(
    tokenizer: Tokenizer,
) -> None:
    for text in ("sea " * 40, "a" * 81, "\ud800", "🙂" * 9, " " * 200):
        count = len(tokenizer.encode(text))
        assert tokenizer.encode(text, most=count) == tokenizer.encode(text)
    with pytest.raises(ContextOverflow, match="tokens or more, the context holds 512"):
        tokenizer.encode("sea " * 200_000, most=512)
