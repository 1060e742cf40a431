"""`terrazzo chat MODEL`: a conversation, with the model's own chat template."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terrazzo.cli import options, terminal
from terrazzo.errors import ChatError, TerrazzoError

if TYPE_CHECKING:
    from terrazzo.engine.model import Model
    from terrazzo.engine.options import Sampling

HELP = """/help   this list
/reset  forget the conversation
/exit   leave (Ctrl-D does too)
Ctrl-C stops an answer. Esc, Enter begins a new line; Ctrl-R searches what you wrote before."""

System = Annotated[str | None, typer.Option(help="What the model is told before the conversation.")]


def command(
    model: options.ModelName,
    system: System = None,
    max_tokens: options.MaxTokens = 512,
    temperature: options.Temperature = 0.2,
    top_k: options.TopK = 0,
    top_p: options.TopP = 0.9,
    min_p: options.MinP = 0.0,
    repeat_penalty: options.RepeatPenalty = 1.0,
    seed: options.Seed = 0,
    stop: options.Stop = None,
    threads: options.Threads = None,
    context: options.Context = None,
    activations: options.Activations = "int8",
) -> None:
    """Talk with a model. Lines may also come from a pipe: one turn a line."""
    from terrazzo.engine.options import Sampling

    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        repeat_penalty=repeat_penalty, seed=seed,
    )  # fmt: skip
    with terminal.progress(f"loading {model}") as line:
        m = options.load(model, activations, threads, context, line)
    if m.chat is None:
        raise ChatError(
            f"{m.path}: the model has no chat template", "use `terrazzo generate`, which needs none"
        )
    talk = Conversation(m, sampling, max_tokens, tuple(stop or ()), system)
    for text in _turns():
        with suppress(KeyboardInterrupt):  # one that comes just after an answer's end
            if not talk.turn(text):
                return


class Conversation:
    """The messages so far, and what a line of input does to them."""

    def __init__(
        self,
        m: Model,
        sampling: Sampling,
        max_tokens: int,
        stop: tuple[str, ...],
        system: str | None,
    ) -> None:
        self.m, self.sampling, self.max_tokens, self.stop = m, sampling, max_tokens, stop
        self.start = [{"role": "system", "content": system}] if system else []
        self.messages = list(self.start)

    def turn(self, text: str) -> bool:
        """Answers one line; False if it asks to leave."""
        match text.strip():
            case "":
                pass
            case "/exit" | "/quit":
                return False
            case "/help":
                terminal.note(HELP)
            case "/reset":
                self.messages = list(self.start)
                terminal.note("the conversation is forgotten")
            case command if command.startswith("/"):
                terminal.note(
                    f"there is no command {command.split()[0]}; /help lists those there are"
                )
            case said:
                self.answer(said)
        return True

    def answer(self, said: str) -> None:
        """Prints the answer as it comes. Ctrl-C ends it there; what was said so far stays."""
        asked = [*self.messages, {"role": "user", "content": said}]
        pieces: list[str] = []
        try:
            assert self.m.chat is not None
            ids = self.m.chat.encode(asked)
            for piece in self.m.generate(
                ids, self.max_tokens, stop=self.stop, sampling=self.sampling
            ):
                pieces.append(piece)
                print(piece, end="", flush=True)
        except KeyboardInterrupt:
            pass
        except TerrazzoError as error:
            terminal.note(f"error: {error}")
            terminal.note("/reset forgets the conversation")
            return
        print(flush=True)
        self.messages = [*asked, {"role": "assistant", "content": "".join(pieces)}]


def _turns() -> Iterator[str]:
    """Lines of a pipe, or what is written at the prompt, until its end."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            yield line.rstrip("\n")
        return
    terminal.note("/help lists commands; Ctrl-C stops an answer, Ctrl-D leaves")
    ask = _editor()
    while True:
        try:
            yield ask()
        except KeyboardInterrupt:
            continue  # at the prompt: the line begun is dropped
        except EOFError:
            return


def _editor() -> Callable[[], str]:
    """A prompt with line editing, and a history that is kept if the cache folder can be written."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    history: History = InMemoryHistory()
    with suppress(OSError):
        history = FileHistory(str(_history_file()))
    session: PromptSession[str] = PromptSession(history=history, key_bindings=keys)
    return lambda: session.prompt("> ", prompt_continuation="  ")


def _history_file() -> Path:
    """Created readable by its owner only: people write private things to a model."""
    from terrazzo.models import store

    path = store.models_folder().parent / "chat_history"
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    return path
