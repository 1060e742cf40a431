"""A buffer-level program through the vendor's compiler: text, plan, checks, what CANN gets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Loc
from terrazzo.ir.place import mark
from terrazzo.targets.ascend.diagnostics import Diagnostic, failure, places, read
from terrazzo.targets.ascend.linkcheck import Finding, Linked, check
from terrazzo.targets.ascend.mlir_text import MlirError
from terrazzo.targets.ascend.planned import read_planned
from terrazzo.targets.ascend.print_hivm import Module, entry_name, print_phase
from terrazzo.targets.ascend.tools import HandOver, Toolchain, find, hand_over, run_passes
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.program import Phase, Program, Space

_TASK = {
    "vector": 10,
    "cube": 20,
}  # as CANN numbers them; mixed: 30 and the vector cores a cube core
_WHAT = {
    "missing": "calls a function that AscendNPU-IR's library does not have",
    "left": "leaves an operation that AscendNPU-IR does not lower",
    "scalar": "runs element by element on the scalar unit",
}


@dataclass(frozen=True)
class CompiledPhase:
    """`module`: what we printed. `planned_text`: the vendor's plan (generic MLIR), `planned`: the
    same as a scheduled phase. `lowered`: after the passes. `handed`: what the code generator gets,
    and its object if there was one. `peak`: bytes of each space that the vendor's plan reaches,
    masks left out. `task_type`: CANN's number of the kind of kernel."""

    name: str
    module: Module
    planned_text: str
    planned: Phase
    lowered: str
    handed: HandOver
    peak: dict[Space, int]
    linked: Linked
    diagnostics: tuple[Diagnostic, ...]
    task_type: int
    cores: int


@dataclass(frozen=True)
class Compiled:
    """`planned`: the whole program as the vendor schedules it. `workspace`: bytes by name, which
    the launcher allocates."""

    target: str
    phases: tuple[CompiledPhase, ...]
    planned: Program
    workspace: dict[str, int]

    @property
    def text(self) -> str:
        return "\n".join(p.module.text for p in self.phases)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f for p in self.phases for f in p.linked.missing))

    @property
    def warnings(self) -> list[str]:
        """What links badly or slowly, and the compiler's own warnings, each with its line."""
        return [str(d) for p in self.phases for d in p.diagnostics]


def compile(program: Program, chip: Chip, tools: Toolchain | None = None) -> Compiled:
    """Compiles each phase of a buffer-level program for `chip`. Raises KernelError (CapacityError)
    with the kernel's line for what the compiler refuses or the library lacks; OptionError without
    the compiler."""
    tools = tools or find()
    phases = tuple(_phase(program, i, chip.target, tools) for i in range(len(program.phases)))
    planned = replace(program, phases=tuple(p.planned for p in phases), scheduled=True)
    workspace = {g.name: _bytes(g.shape, g.dtype.bits) for g in program.gm if g.workspace}
    return Compiled(chip.target, phases, planned, workspace)


def _bytes(shape: tuple[int, ...], bits: int) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return -(-n * bits // 8)


def _phase(program: Program, number: int, target: str, tools: Toolchain) -> CompiledPhase:
    module = print_phase(program, number)
    phase = program.phases[number]
    passed = run_passes(module.text, target, tools)
    diagnostics = read(passed.messages, phase)
    error = failure(program, number, diagnostics, passed.messages, passed.code)
    if error is not None:
        raise error
    try:
        linked = check(passed.lowered, tools)
        planned = read_planned(program, number, module, passed.planned)
    except MlirError as e:
        raise KernelError(
            f"what the AscendNPU-IR compiler made of {program.name} cannot be read back: {e}",
            "other extents may help; please report it with the kernel and these",
        ) from e
    known = places(phase)
    for f in linked.findings:
        loc = known.get((f.place.file, f.place.line, f.place.col)) if f.place else None
        if f.kind != "scalar":
            raise _unlinked(program, f, loc)
        diagnostics.append(Diagnostic("warning", f"{program.name} {_WHAT[f.kind]}", loc))
    mixed = phase.mixed
    return CompiledPhase(
        name=entry_name(program, number),
        module=module,
        planned_text=passed.planned,
        planned=planned,
        lowered=passed.lowered,
        handed=hand_over(passed.lowered, target, tools),
        peak=peaks(planned),
        linked=linked,
        diagnostics=tuple(diagnostics),
        task_type=30 + phase.ratio if mixed else _TASK[phase.functions[0].kind],
        cores=min(f.cores for f in phase.functions),
    )


def _unlinked(program: Program, f: Finding, loc: Loc | None) -> KernelError:
    return mark(
        KernelError(
            f"{program.name} {_WHAT[f.kind]}: {f.name}",
            "see docs/design/ascend-ops.md for what it has",
        ),
        loc,
    )


def peaks(phase: Phase) -> dict[Space, int]:
    """Bytes of each space that a scheduled phase reaches, by buffers that have an address."""
    peak: dict[Space, int] = {}
    for f in phase.functions:
        for b in f.buffers:
            for address in b.addresses:
                peak[b.space] = max(peak.get(b.space, 0), address + b.bytes)
    return peak


def write(compiled: Compiled, folder: Path) -> list[Path]:
    """Writes what was printed, planned, lowered and handed over; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for p in compiled.phases:
        for end, text in (
            ("mlir", p.module.text),
            ("planned.mlir", p.planned_text),
            ("lowered.mlir", p.lowered),
            ("hivmc.mlir", p.handed.text),
        ):
            out.append(folder / f"{p.name}.{end}")
            out[-1].write_text(text)
        if p.handed.object is not None:
            out.append(folder / f"{p.name}.o")
            out[-1].write_bytes(p.handed.object)
    return out
