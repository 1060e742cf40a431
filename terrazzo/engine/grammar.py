"""Answers that match a grammar: which tokens may come next, by llguidance's matcher."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol

import numpy as np

from terrazzo.engine.request import Grammar
from terrazzo.engine.schema import lark
from terrazzo.errors import GrammarError
from terrazzo.models.tokenizer import Tokenizer

KEPT = 32  # grammars that stay compiled


class Matcher(Protocol):
    """Where one answer is in its grammar."""

    def mask(self, out: np.ndarray) -> None:
        """The tokens that may come next, bits of u32 [vocab / 32, rounded up], lowest first."""
        ...

    def accept(self, token: int) -> bool:
        """Go on by a token; False, and nothing changes, if it may not come next."""
        ...

    def rollback(self, count: int) -> None:
        """Take back the last `count` tokens."""
        ...

    @property
    def done(self) -> bool:
        """Whether the answer is whole and nothing may follow."""
        ...

    def copy(self) -> Matcher: ...


class GuidanceMatcher:
    """llguidance's. Raises GrammarError where it gives up (a limit on its work, a defect)."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._check()

    def mask(self, out: np.ndarray) -> None:
        self._inner.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)
        self._check()

    def accept(self, token: int) -> bool:
        taken = self._inner.try_consume_tokens([token]) == 1
        self._check()
        return taken

    def rollback(self, count: int) -> None:
        if count:
            self._inner.rollback(count)
            self._check()

    @property
    def done(self) -> bool:
        return self._inner.is_stopped()

    def copy(self) -> GuidanceMatcher:
        return GuidanceMatcher(self._inner.deep_copy())

    def _check(self) -> None:
        if self._inner.is_error():
            lines = self._inner.get_error().strip().splitlines()
            raise GrammarError(
                f"the grammar cannot be followed: {lines[0] if lines else 'no reason given'}",
                "simplify it",
            )


def lark_text(grammar: Grammar) -> str:
    """A schema as Lark. Raises GrammarError if it cannot be read or enforced."""
    try:
        return lark(grammar.text or '{"type": "object"}')
    except (ValueError, RecursionError) as error:  # of the JSON
        raise GrammarError(f"the {grammar.kind} cannot be read: {error}") from None
    except GrammarError as error:
        raise GrammarError(f"the {grammar.kind} cannot be enforced: {error}") from None


def grammar_text(grammar: Grammar) -> str:
    """The grammar as llguidance's matcher takes it. Raises GrammarError if it cannot be read."""
    from llguidance import LLMatcher

    try:
        if grammar.kind == "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        text = grammar.text if grammar.kind == "lark" else lark_text(grammar)
        return LLMatcher.grammar_from_lark(text)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the {grammar.kind} cannot be read: {error}") from None


def compiled(library: Any, tokenizer: Any, grammar: Grammar) -> Any:
    """The library's matcher of a grammar. Raises GrammarError if it is wrong or too large."""
    text = grammar_text(grammar)
    try:
        inner = library.LLMatcher(tokenizer, text, log_level=0)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the {grammar.kind} cannot be read: {error}") from None
    if inner.is_error():
        lines = inner.get_error().strip().splitlines() or ["no reason given"]
        raise GrammarError(f"the {grammar.kind} cannot be enforced: {lines[0]}", "simplify it")
    return inner


class Grammars:
    """Makes matchers over a model's vocabulary; the last few grammars stay compiled."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        import llguidance  # takes a while: only those who ask for a grammar wait

        self._library = llguidance
        self._tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Vocabulary(tokenizer)),
            eos_token=sorted(tokenizer.eos_ids),
        )
        self._compiled: OrderedDict[Grammar, GuidanceMatcher] = OrderedDict()

    def matcher(self, grammar: Grammar) -> GuidanceMatcher:
        """At the grammar's beginning. Raises GrammarError if it is wrong or too large."""
        known = self._compiled.get(grammar)
        if known is None:
            known = self._compiled[grammar] = GuidanceMatcher(
                compiled(self._library, self._tokenizer, grammar)
            )
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(grammar)
        return known.copy()


class _Vocabulary:
    """A tokenizer as llguidance wants one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encode = tokenizer.encode
        ids = range(tokenizer.vocab_size)
        self.eos_token_id = min(tokenizer.eos_ids)
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.piece(i) for i in ids]
        self.special_token_ids = [i for i in ids if tokenizer.is_special(i)]

    def __call__(self, text: bytes | str) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return self._encode(text, bos=False)
