"""`terrazzo kernel compile`: a kernel through the compiler of an NPU's vendor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli import options, terminal
from terrazzo.cli.kernel import Consts, Name, Shape, Types, With, arguments, commands, find
from terrazzo.cli.kernel_lowering import Lowering, lowering
from terrazzo.errors import OptionError

if TYPE_CHECKING:
    from terrazzo.targets.ascend.compile import Compiled
    from terrazzo.targets.davinci.chips import Chip

Target = Annotated[
    str, typer.Option(metavar="TARGET", help="ascend910b1 … ascend910b4, ascend910_9392.")
]
SPACES = ("UB", "L1", "L0A", "L0B", "L0C")


@commands.command("compile")
def command(
    name: Name,
    target: Target,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write what each stage made.")
    ] = None,
    shape: Shape = None,
    dtype: Types = None,
    with_: With = None,
    const: Consts = None,
    option: Lowering = None,
    json: options.Json = False,
) -> None:
    """Compile a kernel for an Ascend NPU with the vendor's compiler, and see what it planned.

    Needs the extra `ascend`; an object file also CANN's hivmc.
    """
    kernel, chip = find(name), chip_of(target)
    args = arguments(kernel, shape, dtype, with_, const, filled=False)
    choices = lowering(option)
    from terrazzo.runtime import davinci
    from terrazzo.targets.ascend import compile as vendor

    with terminal.progress(f"compiling {name}"):
        launch = davinci.lowered(kernel, (), args, chip, choices)
        made = vendor.compile(launch.program, chip)
    result = {
        "kernel": name,
        "target": chip.target,
        "arguments": launch.spelt,
        "phases": _phases(made, chip),
        "workspace_bytes": made.workspace,
        "notes": list(launch.program.notes),
        "object": all(p.handed.object is not None for p in made.phases),
        "files": [str(p) for p in _written(made, out)] if out is not None else [],
    }
    terminal.print_json(result) if json else _report(result)
    if out is not None:
        terminal.note(f"wrote {len(result['files'])} files to {out}")
        if not result["object"]:
            terminal.note("no object: CANN's hivmc, which makes it, is not on PATH")


def chip_of(target: str) -> Chip:
    """The chip of a target, "ascend910b2" in any case. Raises OptionError naming those there
    are."""
    from terrazzo.targets.davinci.chips import CHIPS

    by_target = {c.target.lower(): c for c in CHIPS.values()}
    if target.lower() not in by_target:
        raise OptionError(f"there is no target {target!r}", f"choose from {', '.join(by_target)}")
    return by_target[target.lower()]


def _phases(made: Compiled, chip: Chip) -> list[dict[str, Any]]:
    out = []
    for p in made.phases:
        diagnostics = [
            {"kind": d.kind, "text": d.text, "line": d.loc.line if d.loc else 0, "said": str(d)}
            for d in p.diagnostics
        ]
        out.append(
            {
                "name": p.name,
                "cores": {f.kind: f.cores for f in p.planned.functions},
                "task_type": p.task_type,
                "functions": list(p.linked.functions),
                "spaces": {
                    s: {"vendor_bytes": p.peak[s], "capacity_bytes": chip.capacity[s]}
                    for s in SPACES
                    if s in p.peak
                },
                "diagnostics": diagnostics,
            }
        )
    return out


def _written(made: Compiled, out: Path) -> list[Path]:
    from terrazzo.targets.ascend import compile as vendor

    try:
        return vendor.write(made, out)
    except OSError as error:
        raise OptionError(
            f"{error.filename} cannot be written: {error.strerror}", "choose another place"
        ) from error


def _report(r: Mapping[str, Any]) -> None:
    given = ", ".join(f"{n} {x}" for n, x in r["arguments"].items())
    print(f"{r['kernel']} for {r['target']}: {given}\n")
    rows = [
        (p["name"], " + ".join(f"{n} {kind}" for kind, n in p["cores"].items()), p["task_type"],
         len(p["functions"]), len(p["diagnostics"]))
        for p in r["phases"]
    ]  # fmt: skip
    terminal.table(("PHASE", "CORES", "TASK TYPE", "LIBRARY FUNCTIONS", "WARNINGS"), rows, (3, 4))
    spaces = [
        (p["name"], space, f"{x['vendor_bytes']:,}", f"{x['capacity_bytes']:,}",
         f"{100 * x['vendor_bytes'] / x['capacity_bytes']:.0f} %")
        for p in r["phases"] for space, x in p["spaces"].items()
    ]  # fmt: skip
    print()
    terminal.table(("PHASE", "SPACE", "VENDOR'S PLAN", "OF BYTES", ""), spaces, (2, 3, 4))
    for p in r["phases"]:
        print(f"\n{p['name']} links: {', '.join(p['functions'])}")
        for d in p["diagnostics"]:
            print(d["said"])
    for name, size in r["workspace_bytes"].items():
        print(f"{name} in device memory: {terminal.nbytes(size)}")
    for note in r["notes"]:
        print(f"note: {note}")
