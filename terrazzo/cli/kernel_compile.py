"""`terrazzo kernel compile`: a kernel through the compiler of an NPU's vendor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terrazzo.cli import options, terminal
from terrazzo.cli.kernel import Consts, Name, Shape, Types, With, arguments, commands, find
from terrazzo.cli.kernel_lowering import Lowering, lowering
from terrazzo.errors import KernelError, OptionError

if TYPE_CHECKING:
    from terrazzo.lang.kernel import Kernel
    from terrazzo.runtime.davinci import Lowered
    from terrazzo.targets.ascend.compile import Compiled
    from terrazzo.targets.davinci.chips import Chip
    from terrazzo.targets.davinci.program import Program

    Array = Any  # an ndarray

Target = Annotated[
    str, typer.Option(metavar="TARGET", help="ascend910b1 … ascend910b4, ascend910_9392.")
]
# Roundings of an output's type that a plan may be off, by its bytes: sums in another order, powers
# by the vector unit's exp, weights of a product in its narrow type.
ROUNDINGS = {1: 0, 2: 16, 4: 64}
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
    run: Annotated[
        bool,
        typer.Option("--run", help="Execute the vendor's plan on this CPU, against the reference."),
    ] = False,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Compile a kernel for an Ascend NPU with the vendor's compiler, and see what it planned.

    Needs the extra `ascend`; an object file also CANN's hivmc. The exit code is 2 if a plan that is
    run gives other numbers than the reference.
    """
    kernel, chip = find(name), chip_of(target)
    args = arguments(kernel, shape, dtype, with_, const, seed, filled=run)
    choices = lowering(option)
    from terrazzo.runtime import davinci
    from terrazzo.targets.ascend import compile as vendor

    with terminal.progress(f"compiling {name}"):
        launch = davinci.lowered(kernel, (), args, chip, choices)
        made = vendor.compile(launch.program, chip)
    own, refused = _own(launch.program, chip)
    outputs = _run(kernel, args, launch, made, chip) if run else {}
    result = {
        "kernel": name,
        "target": chip.target,
        "arguments": launch.spelt,
        "phases": _phases(made, chip, own),
        "workspace_bytes": made.workspace,
        "notes": [*launch.program.notes, *refused],
        "object": all(p.handed.object is not None for p in made.phases),
        "outputs": outputs,
        "files": [str(p) for p in _written(made, out)] if out is not None else [],
    }
    terminal.print_json(result) if json else _report(result)
    if out is not None:
        terminal.note(f"wrote {len(result['files'])} files to {out}")
        if not result["object"]:
            terminal.note("no object: CANN's hivmc, which makes it, is not on PATH")
    if any(x["wrong"] for x in outputs.values()):
        raise typer.Exit(2)


def chip_of(target: str) -> Chip:
    """The chip of a target, "ascend910b2" in any case. Raises OptionError naming those there
    are."""
    from terrazzo.targets.davinci.chips import CHIPS

    by_target = {c.target.lower(): c for c in CHIPS.values()}
    if target.lower() not in by_target:
        raise OptionError(f"there is no target {target!r}", f"choose from {', '.join(by_target)}")
    return by_target[target.lower()]


def _run(
    kernel: Kernel, args: Mapping[str, Any], launch: Lowered, made: Compiled, chip: Chip
) -> dict[str, dict[str, Any]]:
    """The vendor's plan with numbers, and how far each output is from the reference's."""
    from terrazzo.cli.kernel_inputs import copied
    from terrazzo.runtime import launch as runtime
    from terrazzo.targets.davinci.numbers import execute

    with terminal.progress(f"executing {kernel.name} as planned") as line:
        got = execute.run(made.planned, chip, launch.tensors, launch.scalars)
        line.report("running the reference", 0, 0)
        want = {n: copied(x) for n, x in args.items()}
        runtime.reference(kernel, (), want)
    return {n: compared(got[n], want[n]) for n in launch.ir.stored()}


def compared(got: Array, want: Array) -> dict[str, Any]:
    """How far an output is from the reference's, at the element where it uses up most of what is
    allowed: ROUNDINGS of the type, of a value as large as the element or a sixteenth of the largest
    one, as operands cancel. `wrong`: how many elements are further off."""
    import ml_dtypes
    import numpy as np

    a, b = got.astype(np.float64), want.astype(np.float64)
    ulp = 0.0 if want.dtype.kind in "iub" else float(ml_dtypes.finfo(want.dtype).eps)
    finite = np.abs(np.where(np.isfinite(b), b, 0.0))
    limit = ROUNDINGS[want.dtype.itemsize] * ulp * np.maximum(finite, finite.max(initial=0.0) / 16)
    with np.errstate(invalid="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    error = np.nan_to_num(error, nan=np.finfo(np.float64).max, posinf=np.finfo(np.float64).max)
    worst = int(np.argmax(error - limit)) if error.size else None
    return {
        "max_error": 0.0 if worst is None else float(error.flat[worst]),
        "allowed": 0.0 if worst is None else float(limit.flat[worst]),
        "wrong": int((error > limit).sum()),
        "values": int(error.size),
    }


def _own(program: Program, chip: Chip) -> tuple[list[dict[Any, int]], list[str]]:
    """What our own plan reaches of each space, by phase; nothing, and why, if it does not fit."""
    from terrazzo.targets.ascend.compile import peaks
    from terrazzo.targets.davinci.scheduling.schedule import schedule

    try:
        return [peaks(p) for p in schedule(program, chip).phases], []
    except KernelError as e:
        return [{} for _ in program.phases], [f"no plan of our own: {e.what}"]


def _phases(made: Compiled, chip: Chip, own: list[dict[Any, int]]) -> list[dict[str, Any]]:
    out = []
    for p, ours in zip(made.phases, own, strict=True):
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
                    s: {
                        "vendor_bytes": p.peak[s],
                        "own_bytes": ours.get(s),
                        "capacity_bytes": chip.capacity[s],
                    }
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


def _share(x: Mapping[str, Any], whose: str) -> tuple[str, str]:
    if x[whose] is None:
        return "", ""
    return f"{x[whose]:,}", f"{100 * x[whose] / x['capacity_bytes']:.0f} %"


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
        (p["name"], space, *_share(x, "vendor_bytes"), *_share(x, "own_bytes"),
         f"{x['capacity_bytes']:,}")
        for p in r["phases"] for space, x in p["spaces"].items()
    ]  # fmt: skip
    print()
    header = ("PHASE", "SPACE", "VENDOR'S PLAN", "", "OUR PLAN", "", "OF BYTES")
    terminal.table(header, spaces, (2, 3, 4, 5, 6))
    for p in r["phases"]:
        print(f"\n{p['name']} links: {', '.join(p['functions'])}")
        for d in p["diagnostics"]:
            print(d["said"])
    for name, size in r["workspace_bytes"].items():
        print(f"{name} in device memory: {terminal.nbytes(size)}")
    for name, x in r["outputs"].items():
        print(
            f"{name} of the vendor's plan: largest error {x['max_error']:.3g}, allowed there"
            f" {x['allowed']:.3g}; {x['wrong']:,} of {x['values']:,} values are further off"
        )
    for note in r["notes"]:
        print(f"note: {note}")
