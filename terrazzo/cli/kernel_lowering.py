"""What the commands for DaVinci chips share: how a kernel is lowered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli.kernel import named
from terrazzo.errors import OptionError

if TYPE_CHECKING:
    from terrazzo.targets.davinci.lowering.lower import Options

Lowering = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=N,…",
        help="How blocks are dealt out and loaded: cores, vector_cores, swizzle, slots, ahead,"
        " ratio, balance (0, 1), bypass (tensors, joined by +).",
    ),
]


def lowering(items: Iterable[str] | None) -> Options:
    """The options of the lowering, from those of the command line. Raises OptionError."""
    from terrazzo.targets.davinci.lowering.lower import Options

    known = {f.name: f.default for f in fields(Options)}
    chosen: dict[str, Any] = {}
    for name, value in named("--option", items).items():
        if name not in known:
            raise OptionError(f"there is no option {name!r}", f"choose from {', '.join(known)}")
        if isinstance(known[name], frozenset):
            chosen[name] = frozenset(value.split("+"))
        elif not value.isdecimal():
            raise OptionError(f"--option has {name}={value}", "the value is a whole number")
        else:
            chosen[name] = bool(int(value)) if isinstance(known[name], bool) else int(value)
    return Options(**chosen)
