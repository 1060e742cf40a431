"""Pre-tokenisers: how text is cut into words before byte-pair merging, by the name a model file
gives.

The rules follow llama.cpp's of the same names (which spell contractions out instead of matching
them case-insensitively), since files are made for it. `tokenizers` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers import pre_tokenizers as pre

from terrazzo.errors import ModelFileError

_CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Rule:
    """`pattern`: words are its matches (None: GPT-2's own, which `tokenizers` has built in).
    `digits`: cut digits apart first. `whole_words`: a word that is a token stays whole, whatever
    its merges say. `add_bos`: prompts begin with BOS unless the file says otherwise."""

    pattern: str | None = None
    digits: bool = False
    whole_words: bool = False
    add_bos: bool = False


_RULES: dict[str, Rule] = {
    "gpt-2": Rule(),
    "smollm": Rule(digits=True),
    "llama-bpe": Rule(
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _REST,
        whole_words=True,
        add_bos=True,
    ),
    "qwen2": Rule(_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _REST),
}


def rule(name: str, path: str) -> Rule:
    """The rule called `name`; raises ModelFileError naming those we have. `path` is for its
    message."""
    try:
        return _RULES[name]
    except KeyError:
        raise ModelFileError(
            f"{path}: pre-tokenizer {name!r} is not supported ({', '.join(_RULES)} are)"
        ) from None


def build(rule: Rule) -> pre.PreTokenizer:
    """The `tokenizers` object for `rule`: cuts words, and spells their bytes as GPT-2's
    characters."""
    if rule.pattern is not None:
        split = pre.Split(Regex(rule.pattern), "isolated")
        return pre.Sequence([split, pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    gpt2 = pre.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre.Sequence([pre.Digits(individual_digits=True), gpt2]) if rule.digits else gpt2


def byte_characters() -> list[str]:
    """GPT-2's spelling of bytes: the character that stands for each byte 0..255 (printable Latin-1
    stands for itself, the rest is numbered from U+0100)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
