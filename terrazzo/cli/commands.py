"""All commands, one file each, and how their errors are shown.

A command's file imports what it needs when it runs: `terrazzo --help` loads neither NumPy nor the
compiler.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from terrazzo.cli import (
    bench,
    bench_serve,
    cache,
    chat,
    doctor,
    fit,
    generate,
    kernel,
    kv,
    models,
    pull,
    serve,
)
from terrazzo.cli import (
    kernel_compile as kernel_compile,
)  # these two add their commands to `kernel`
from terrazzo.cli import kernel_profile as kernel_profile
from terrazzo.cli.main import INTERRUPTED, USER_ERROR
from terrazzo.errors import TerrazzoError

root = typer.Typer(
    name="terrazzo",
    help="Run language models in the memory you have; look at every kernel that does it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
)


@root.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
) -> None:
    if version:
        from terrazzo import __version__

        print(f"terrazzo {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


for module in (generate, chat, pull, models, fit, serve, bench, bench_serve, kv, doctor):
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    root.command(name=name)(module.command)
root.add_typer(kernel.commands, name="kernel")
root.add_typer(cache.commands, name="cache")


def run(args: Sequence[str]) -> int:
    """Runs one command line; returns its exit code. Raises KeyboardInterrupt, BrokenPipeError."""
    try:
        command = typer.main.get_command(root)
        code = command.main(list(args), prog_name="terrazzo", standalone_mode=False)
    except TerrazzoError as error:
        return _refuse(str(error))
    except typer.TyperException as error:
        return _refuse(" ".join(error.format_message().split()))
    if code == INTERRUPTED:
        raise KeyboardInterrupt  # typer has made an exit code of it
    return code if isinstance(code, int) else 0


def _refuse(reason: str) -> int:
    sys.stdout.flush()
    print(f"error: {reason}", file=sys.stderr)
    return USER_ERROR
