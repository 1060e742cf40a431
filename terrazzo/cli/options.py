"""Options that several commands take, spelt once. What values are right is the engine's to say."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from terrazzo.cli.terminal import Progress
    from terrazzo.engine.model import Model

ModelName = Annotated[
    str, typer.Argument(metavar="MODEL", help="Path of a GGUF file, or a name such as smollm2.")
]
MaxTokens = Annotated[int, typer.Option(min=1, help="Most tokens to write.")]
Temperature = Annotated[float, typer.Option(help="0 takes the likeliest token each time.")]
TopK = Annotated[int, typer.Option(help="Draw from the K likeliest tokens; 0: from all.")]
TopP = Annotated[float, typer.Option(help="Draw from the likeliest tokens that make up P; 1: all.")]
MinP = Annotated[float, typer.Option(help="Least probability, as a share of the likeliest's.")]
RepeatPenalty = Annotated[float, typer.Option(help="Make recent tokens less likely; 1: do not.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same text.")]
Stop = Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")]
Threads = Annotated[int | None, typer.Option(help="Default: what this process may use.")]
Context = Annotated[int | None, typer.Option(help="Tokens of context; default: the model's.")]
Activations = Annotated[str, typer.Option(metavar="int8|f32", help="f32 is exact and slower.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Check every index and every value stored; slower.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def checked(strict: bool) -> AbstractContextManager[None]:
    """Strict mode while it is open, if it is asked for."""
    from terrazzo.runtime import strict as mode

    return mode.use() if strict else nullcontext()


def load(
    name: str, activations: str, threads: int | None, context: int | None, line: Progress
) -> Model:
    """The model, with the progress of loading it on `line`."""
    from terrazzo.engine import model

    return model.load(
        name, activations=activations, threads=threads, context=context, progress=line.report
    )
