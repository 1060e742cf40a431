"""Text to token ids and back, from a model file's own vocabulary, merges and pre-tokeniser name.

Ids are those of llama.cpp's tokeniser on the same file (the tests' oracle). `tokenizers` cuts text
into words, `merges` joins their characters; what llama.cpp does around it is done here: which
tokens are found in text as a whole, and the bytes a token stands for.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property

import numpy as np

from terrazzo.errors import ContextOverflow, ModelFileError, OptionError
from terrazzo.models import pretokenizer
from terrazzo.models.gguf import GGUF
from terrazzo.models.merges import Merges
from terrazzo.models.metadata import Metadata
from terrazzo.models.vocabulary import BYTES_OF, TOKENS, WholeWords, read


class TokenType(IntEnum):
    """The file's classes of tokens. Control and unknown tokens are not part of plain text;
    user-defined ones are always found as a whole; unused ones stand for nothing."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SPECIAL = frozenset((int(TokenType.CONTROL), int(TokenType.UNKNOWN)))  # plain ints: compared often


class Tokenizer:
    """A byte-level BPE tokenizer. `eos_ids` are the tokens that end a text, `bos_id` (or None) the
    one that begins it, `add_bos` whether the model wants it in front of every prompt."""

    def __init__(self, meta: Metadata) -> None:
        model = meta.text("tokenizer.ggml.model")
        if model != "gpt2":
            raise ModelFileError(f"{meta.path}: tokenizer {model!r} is not supported (gpt2 is)")
        rule = pretokenizer.rule(meta.text("tokenizer.ggml.pre"), meta.path)
        self._tokens = meta.packed_strings(TOKENS)
        self.vocab_size = len(self._tokens)
        self._cut_words = pretokenizer.build(rule).pre_tokenize_str
        found = read(meta, rule.whole_words)
        self._character_ids = {chr(code): id for code, id in found.characters.tolist()}
        self._bytes_missing = bool(max(self._character_ids.values()) >= self.vocab_size)
        self._merges = Merges(found.merges)
        self._whole_words = None if found.words is None else WholeWords(self._tokens, found.words)
        named = found.ends.tolist()
        self.bos_id = self._special_id(meta, "bos")
        self.add_bos = meta.flag("tokenizer.ggml.add_bos_token", rule.add_bos)
        if self.add_bos and self.bos_id is None:
            raise ModelFileError(f"{meta.path}: add_bos_token is set, but bos_token_id is missing")
        ends = [self._special_id(meta, role) for role in ("eos", "eot", "eom")]
        self.eos_ids: frozenset[int] = frozenset(end for end in ends if end is not None) | {*named}
        types = _types(meta, self.vocab_size)
        types[named] = TokenType.CONTROL
        self._types = types.tobytes()
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def from_gguf(cls, gguf: GGUF) -> Tokenizer:
        """Raises ModelFileError if the file's tokenizer is incomplete or of another kind."""
        return cls(gguf.metadata)

    def encode(
        self,
        text: str,
        special: bool = False,
        bos: bool | None = None,
        guard: str = "",
        most: int | None = None,
    ) -> list[int]:
        """The ids of `text`.

        special: control tokens written in the text ("<|im_end|>") become their ids; by default
            they are plain text, so that no user input can end a turn. User-defined tokens are
            always found.
        bos: put `bos_id` in front; None: as the model wants it (`add_bos`). EOS is never added.
        guard: a string taken out of the text after whole tokens are found; within a token's name
            it keeps the name plain text although `special` is set.
        most: raises ContextOverflow, before any work, for a text so long that it is certain to have
            more tokens than that. (Cut into words, a text takes fifty times its size.)
        A lone surrogate (not text in any encoding) counts as U+FFFD, a surrogate pair as its
        character.
        """
        if bos is None:
            bos = self.add_bos
        if bos and self.bos_id is None:
            raise OptionError("this model has no BOS token to put in front")
        if most is not None and len(text) > most:
            data = (text.replace(guard, "") if guard else text).encode("utf-8", "replace")
            size = len(data.translate(None, self._absent))
            if size > most * self._longest:
                raise ContextOverflow(
                    f"the prompt has {size // self._longest:,} tokens or more, the context holds"
                    f" {most:,}", "shorten the prompt or start with a larger context",
                )  # fmt: skip
        ids = [self.bos_id] if bos and self.bos_id is not None else []
        for part in self._partition(_valid(text), special):
            if isinstance(part, int):
                ids.append(part)
                continue
            if guard:
                part = part.replace(guard, "")
            if part:
                for word, _ in self._cut_words(part):
                    ids += self._merge(word)
        return [i for i in ids if i < self.vocab_size] if self._bytes_missing else ids

    def _merge(self, word: str) -> Sequence[int]:
        """The ids of a word, which is spelled as bytes' characters."""
        if self._whole_words and (id := self._whole_words.get(word)) is not None:
            return (id,)
        return self._merges(tuple(map(self._character_ids.__getitem__, word)))

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of `ids`; control tokens are left out unless `skip_special` is False. Bytes that
        are not UTF-8 (a character cut off) become U+FFFD."""
        return b"".join(self.text_bytes(i, skip_special) for i in ids).decode("utf-8", "replace")

    def piece(self, id: int) -> bytes:
        """The bytes token `id` stands for, perhaps only part of a character; a control token's
        name. Raises OptionError if there is no such token."""
        piece = self._pieces.get(id)
        if piece is None:
            piece = self._pieces[id] = self._spell(int(id))
        return piece

    def _spell(self, id: int) -> bytes:
        if not 0 <= id < self.vocab_size:
            raise OptionError(f"token id {id:,} is outside of 0 to {self.vocab_size - 1:,}")
        text, kind = self._tokens[id], self._types[id]
        if kind == TokenType.UNUSED:
            return b""
        if kind in _SPECIAL or kind == TokenType.USER_DEFINED:
            return text.encode()
        return b"".join(BYTES_OF.get(c) or c.encode() for c in text)

    def is_special(self, id: int) -> bool:
        """Whether `id` is a control token (or the unknown token), which is no part of the text."""
        return self._types[id] in _SPECIAL

    @cached_property
    def _absent(self) -> bytes:
        """The bytes that have no token, which are passed over."""
        ids = self._character_ids.items()
        return b"".join(BYTES_OF[c] for c, id in ids if id >= self.vocab_size)

    @cached_property
    def _longest(self) -> int:
        """No token stands for more bytes."""
        return max(len(self._tokens[i].encode()) for i in range(self.vocab_size))

    @cached_property
    def special_texts(self) -> list[str]:
        """The names of the tokens that `encode` finds only if `special`, longest first."""
        return [text for text, _, only_special in self._wholes if only_special]

    def stream(self, skip_special: bool = True) -> Stream:
        """A new incremental `decode`."""
        return Stream(self, skip_special)

    def text_bytes(self, id: int, skip_special: bool) -> bytes:
        """What `id` adds to a decoded text: its piece, or nothing if it is special and skipped."""
        piece = self.piece(id)
        return b"" if skip_special and self.is_special(id) else piece

    def _special_id(self, meta: Metadata, role: str) -> int | None:
        key = f"tokenizer.ggml.{role}_token_id"
        value = meta.integer(key, -1)
        if value in (-1, 0xFFFF_FFFF):
            return None
        if not 0 <= value < self.vocab_size:
            raise ModelFileError(
                f"{meta.path}: {key} is {value:,}, the vocabulary has {self.vocab_size:,} tokens"
            )
        return value

    @cached_property
    def _wholes(self) -> list[tuple[str, int, bool]]:
        """Tokens found in text as a whole, longest first: text, id, whether only if `special`."""
        types = np.frombuffer(self._types, np.uint8)
        ids = np.flatnonzero(np.isin(types, [*_SPECIAL, TokenType.USER_DEFINED])).tolist()
        found = [(self._tokens[i], i, self.is_special(i)) for i in ids if self._tokens[i]]
        return sorted(found, key=lambda whole: -len(whole[0].encode()))

    def _partition(self, text: str, special: bool) -> list[str | int]:
        """`text` cut at whole tokens, which become ids. Longer tokens are looked for first, over
        the whole text, before any shorter one (llama.cpp's order; it matters only if they
        overlap)."""
        parts: list[str | int] = [text]
        for whole, id, only_special in self._wholes:
            if (special or not only_special) and whole in text:
                parts = [piece for part in parts for piece in _cut(part, whole, id)]
        return parts


class Stream:
    """Text of tokens as they arrive. The pushed strings joined, plus `flush`, equal `decode` of all
    ids; no string ever holds half a character."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The text that token `id` completes; empty while a character is incomplete."""
        return self._decoder.decode(self._tokenizer.text_bytes(id, self._skip_special))

    def flush(self) -> str:
        """U+FFFD if the last character never became complete, else nothing; ready to start anew."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def _cut(part: str | int, whole: str, id: int) -> Iterator[str | int]:
    if isinstance(part, int):
        yield part
        return
    first, *others = part.split(whole)
    yield first
    for other in others:
        yield id
        yield other


def _valid(text: str) -> str:
    """`text` without surrogates: pairs joined, lone ones replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _types(meta: Metadata, size: int) -> np.ndarray:
    """The tokens' TokenType values, u8 (0 for a number that is none); all normal if the file says
    nothing."""
    key = "tokenizer.ggml.token_type"
    if key not in meta:
        return np.full(size, TokenType.NORMAL, np.uint8)
    types = meta[key]
    if not isinstance(types, np.ndarray) or types.dtype.kind not in "iu":
        raise ModelFileError(f"{meta.path}: metadata key {key!r} must be an array of integers")
    if types.size != size:
        raise ModelFileError(f"{meta.path}: {key} has {types.size:,} entries for {size:,} tokens")
    return np.where((types > 0) & (types <= max(TokenType)), types, 0).astype(np.uint8)
