"""`terrazzo kernel profile | check`: a kernel on a simulated DaVinci chip."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli import options, terminal
from terrazzo.cli.kernel import Consts, Name, Shape, Types, With, arguments, commands, find
from terrazzo.cli.kernel_lowering import Lowering, lowering
from terrazzo.errors import OptionError

if TYPE_CHECKING:
    from terrazzo.profile.report import Report

ChipName = Annotated[str, typer.Option("--chip", metavar="CHIP", help="910b1 … 910b4, 910c.")]
Plan = Annotated[
    str,
    typer.Option(metavar="own|vendor", help="Whose schedule: ours, or that of ascendnpu-ir."),
]


@commands.command()
def profile(
    name: Name,
    chip: ChipName = "910b2",
    shape: Shape = None,
    dtype: Types = None,
    with_: With = None,
    const: Consts = None,
    plan: Plan = "own",
    option: Lowering = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace that Perfetto opens.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one page that shows it all.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write tables under the vendor's names.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Predict a kernel's time on a DaVinci chip, and see where each cycle goes."""
    kernel = find(name)
    args = arguments(kernel, shape, dtype, with_, const, filled=False)
    choices = lowering(option)
    from terrazzo.runtime import davinci

    with terminal.progress(f"simulating {name}"):
        report = davinci.profile(kernel, (), args, chip, plan, choices)
    written = _write(report, trace, html, csv)
    if json:
        terminal.print_json(report.json())
    else:
        from rich.console import Console

        from terrazzo.profile.terminal import show

        show(report, Console(highlight=False))
    for path in written:
        terminal.note(f"wrote {path}")


@commands.command()
def check(
    name: Name,
    chip: ChipName = "910b2",
    shape: Shape = None,
    dtype: Types = None,
    with_: With = None,
    const: Consts = None,
    plan: Plan = "own",
    option: Lowering = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Run a kernel on a simulated DaVinci chip and report every mistake; silent if there is none.

    The exit code is 2 if something was found.
    """
    kernel = find(name)
    args = arguments(kernel, shape, dtype, with_, const, seed)
    from terrazzo.runtime import davinci
    from terrazzo.targets.davinci.checking import check as checker
    from terrazzo.targets.davinci.checking import finding
    from terrazzo.targets.davinci.chips import chip as named

    with terminal.progress(f"checking {name}"):
        program, _ = davinci.prepare(kernel, (), args, named(chip), plan, lowering(option))
        found = checker.check(program, named(chip), args)
    if json:
        terminal.print_json([_finding(f) for f in found])
    elif found:
        print(finding.report(found))
    if found:
        raise typer.Exit(2)


def _write(report: Report, trace: Path | None, html: Path | None, csv: Path | None) -> list[Path]:
    """Writes what is asked for. Raises OptionError for a place that cannot be written."""
    import json

    from terrazzo.profile import csv as tables
    from terrazzo.profile import html as pages
    from terrazzo.profile import trace as traces

    texts = [(trace, lambda: json.dumps(traces.trace(report))), (html, lambda: pages.page(report))]
    written: list[Path] = []
    try:
        for path, text in texts:
            if path is not None:
                path.write_text(text(), encoding="utf-8")
                written.append(path)
        if csv is not None:
            written += tables.write(report, csv)
    except OSError as error:
        raise OptionError(
            f"{error.filename} cannot be written: {error.strerror}", "choose another place"
        ) from error
    return written


def _finding(f: Any) -> dict[str, Any]:
    place = {} if f.loc is None else {"file": f.loc.file, "line": f.loc.line, "column": f.loc.col}
    return {"kind": f.kind, "message": f.message, "remedy": f.remedy, "count": f.count, **place}
