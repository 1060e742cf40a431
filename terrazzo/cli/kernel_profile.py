"""`terrazzo kernel profile | check`: a kernel on a simulated DaVinci chip."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli import options, terminal
from terrazzo.cli.kernel import Consts, Name, Shape, Types, With, arguments, commands, find, spelt
from terrazzo.errors import OptionError

if TYPE_CHECKING:
    from terrazzo.lang.kernel import Kernel
    from terrazzo.profile.listing import Listing
    from terrazzo.profile.replay import Inputs
    from terrazzo.profile.report import Report

ChipName = Annotated[str, typer.Option("--chip", metavar="CHIP", help="910b1 … 910b4, 910c.")]
Plan = Annotated[
    str,
    typer.Option(metavar="own|vendor", help="Whose schedule: ours, or that of ascendnpu-ir."),
]
PLANS = ("own", "vendor")


@commands.command()
def profile(
    name: Name,
    chip: ChipName = "910b2",
    shape: Shape = None,
    dtype: Types = None,
    with_: With = None,
    const: Consts = None,
    plan: Plan = "own",
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
    with terminal.progress(f"simulating {name}"):
        report = profiled(kernel, args, chip, plan)
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
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Run a kernel on a simulated DaVinci chip and report every mistake; silent if there is none.

    The exit code is 2 if something was found.
    """
    kernel = find(name)
    args = arguments(kernel, shape, dtype, with_, const, seed)
    from terrazzo.targets.davinci import check as checker
    from terrazzo.targets.davinci import finding
    from terrazzo.targets.davinci.chips import chip as named

    with terminal.progress(f"checking {name}"):
        program, _ = _prepared(kernel, args, chip, plan)
        found = checker.check(program, named(chip), args)
    if json:
        terminal.print_json([_finding(f) for f in found])
    elif found:
        print(finding.report(found))
    if found:
        raise typer.Exit(2)


def profiled(kernel: Kernel, args: Mapping[str, Any], chip: str, plan: str = "own") -> Report:
    """The report of one launch with these keyword arguments."""
    from terrazzo.profile.report import report
    from terrazzo.targets.davinci.chips import chip as named
    from terrazzo.targets.davinci.timing import simulate

    program, _ = _prepared(kernel, args, chip, plan)
    inputs = _inputs(args)
    timeline = simulate(program, named(chip), inputs.scalars, inputs.indices)
    shown = {n: spelt(x) for n, x in args.items()}
    return report(timeline, program, listing(kernel), inputs=inputs, plan=plan, arguments=shown)


def listing(kernel: Kernel) -> Listing:
    """A kernel's lines, for a report."""
    from terrazzo.profile.listing import Listing

    source = kernel._source
    return Listing(source.file, source.first, tuple(source.text.rstrip("\n").split("\n")))


def _prepared(kernel: Kernel, args: Mapping[str, Any], chip: str, plan: str) -> Any:
    if plan not in PLANS:
        raise OptionError(f"there is no plan {plan!r}", f"choose from {', '.join(PLANS)}")
    from terrazzo.runtime import davinci
    from terrazzo.targets.davinci.chips import chip as named

    return davinci.prepare(kernel, (), args, named(chip), plan=plan)


def _inputs(args: Mapping[str, Any]) -> Inputs:
    """What a program's scalars may depend on: numbers, and tensors of indices."""
    from terrazzo.profile.replay import Inputs

    numbers = {n: x for n, x in args.items() if isinstance(x, (int, float))}
    indices = {
        n: x for n, x in args.items() if getattr(getattr(x, "dtype", None), "kind", "") == "i"
    }
    return Inputs(numbers, indices)


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
