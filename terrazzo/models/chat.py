"""Chat templates: a conversation as the text, and the token ids, that a model was trained on.

The template is a Jinja program inside the model file, that is, code from a stranger: it runs in
Jinja's immutable sandbox. Environment and helpers are those that transformers gives to templates.

Jinja is imported and the template compiled when first rendered: a model loaded to complete text
needs neither, and they would be a tenth of its start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from terrazzo.errors import ChatError
from terrazzo.models.gguf import GGUF
from terrazzo.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, Any]
"""{"role": "system" | "user" | "assistant" | …, "content": text} and whatever else the template
reads."""

# Keeps a control token's name that stands in a message from being read as the token: put behind its
# first character before rendering, taken out after the real ones are found. Unicode keeps this code
# point free.
_GUARD = "\U0010fffe"


class ChatTemplate:
    """A model's chat template. `end_ids` are the tokens that end the model's turn."""

    def __init__(
        self, source: str, tokenizer: Tokenizer, path: str, tokens: Mapping[str, str]
    ) -> None:
        """`tokens`: the names templates know (bos_token, eos_token, …); `path` is for messages."""
        self._source, self._tokenizer, self._path = source, tokenizer, path
        self._tokens = dict(tokens)
        self.end_ids = tokenizer.eos_ids

    @classmethod
    def from_gguf(cls, gguf: GGUF, tokenizer: Tokenizer) -> ChatTemplate:
        """The template in the file's metadata; raises ChatError if there is none."""
        meta, key = gguf.metadata, "tokenizer.chat_template"
        if key not in meta:
            raise ChatError(
                f"{gguf.path}: the model has no chat template ({key!r} is missing)",
                "use `terrazzo generate`, which needs none",
            )
        tokens: dict[str, str] = {}
        for name, role in (
            ("bos_token", "bos"), ("eos_token", "eos"),
            ("unk_token", "unknown"), ("pad_token", "padding"),
        ):  # fmt: skip
            id = meta.integer(f"tokenizer.ggml.{role}_token_id", -1)
            if 0 <= id < tokenizer.vocab_size:
                tokens[name] = tokenizer.piece(id).decode("utf-8", "replace")
        return cls(meta.text(key), tokenizer, str(gguf.path), tokens)

    @cached_property
    def _template(self) -> Template:
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        with self._one_line("is not valid"):
            return environment.from_string(self._source)

    @property
    def takes_tools(self) -> bool:
        """Whether the template does anything with tools."""
        return "tools" in self._source

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True,
               tools: Sequence[Any] | None = None) -> str:  # fmt: skip
        """The conversation as text; with `add_generation_prompt` it ends where the model's turn
        begins. Raises ChatError, with the template's words, if it is not valid or refuses the
        messages."""
        _check(messages)
        template = self._template
        with self._one_line("failed"):
            return template.render(
                messages=messages, add_generation_prompt=add_generation_prompt, tools=tools,
                documents=None, **self._tokens,
            )  # fmt: skip

    def encode(self, messages: Sequence[Message], add_generation_prompt: bool = True,
               tools: Sequence[Any] | None = None,
               most: int | None = None) -> list[int]:  # fmt: skip
        """The token ids of the conversation. The template's control tokens become ids; their names
        inside of messages stay text, so that no message can end its own turn. BOS is put in front
        if the model wants it and the template did not write it. `most`: as Tokenizer.encode."""
        _check(messages)
        guarded = [{key: self._guard(value) for key, value in m.items()} for m in messages]
        text = self.render(guarded, add_generation_prompt, self._guard(tools))
        bos = self._tokenizer.add_bos and not text.startswith(self._tokens.get("bos_token") or "\0")
        return self._tokenizer.encode(text, special=True, bos=bos, guard=_GUARD, most=most)

    def _guard(self, value: Any) -> Any:
        """`value` with a guard in every whole token's name, in strings at any depth."""
        if isinstance(value, Mapping):
            return {key: self._guard(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._guard(item) for item in value]
        if not isinstance(value, str):
            return value
        value = value.replace(_GUARD, "")
        for name in self._tokenizer.special_texts:
            value = value.replace(name, name[0] + _GUARD + name[1:])
        return value

    @contextmanager
    def _one_line(self, problem: str) -> Iterator[None]:
        """Turns whatever the template's code raises into a ChatError of one line."""
        try:
            yield
        except Exception as error:  # a template can raise anything
            own = isinstance(error, _Refusal) or type(error).__module__.startswith("jinja2.")
            kind = "" if own else f"{type(error).__name__}: "
            line = getattr(error, "lineno", None)
            place = f" at line {line}" if isinstance(line, int) else ""
            reason = kind + " ".join(str(error).split())
            raise ChatError(f"{self._path}: the chat template {problem}{place}: {reason}") from None


class _Refusal(Exception):  # noqa: N818 - not an error of ours
    """What a template raises by calling raise_exception."""


def _raise(message: str) -> NoReturn:
    raise _Refusal(message)


def _check(messages: Sequence[Message]) -> None:
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ChatError(f"message {index + 1} of {len(messages)} has no role")


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    """JSON for templates: unlike Jinja's own filter it escapes neither HTML nor non-ASCII
    characters."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
