"""From what the vendor's compiler made to what a launch takes: a binary a phase."""

from __future__ import annotations

from collections.abc import Collection

from terrazzo.errors import DeviceUnavailable
from terrazzo.targets.ascend.arguments import Kind, Parameter
from terrazzo.targets.ascend.compile import Compiled, CompiledPhase
from terrazzo.targets.ascend.launch import Binary
from terrazzo.targets.ascend.pyacl import INSTALL
from terrazzo.targets.davinci.program import Gm

_KINDS: dict[str, Kind] = {"vector": "aiv", "cube": "aic"}
FFTS = "ffts"  # `Module.arguments` calls the signal address so; a launch puts it in front itself


def binaries(compiled: Compiled, written: Collection[str]) -> tuple[Binary, ...]:
    """The binaries of all phases, to be launched one after another on one stream. `written`: the
    tensors that the kernel stores to. Workspaces are parameters like any other, in front. Raises
    DeviceUnavailable without CANN's code generator."""
    gm = {g.name: g for g in compiled.planned.gm}
    scalars = dict(compiled.planned.scalars)
    out = []
    for p in compiled.phases:
        names = [n for n in p.module.arguments if n != FFTS]
        parameters = tuple(
            _tensor(gm[n], written) if n in gm else Parameter(n, scalars[n]) for n in names
        )
        out.append(Binary(_code(p), p.name, _kind(p), parameters, _blocks(p)))
    return tuple(out)


def _tensor(g: Gm, written: Collection[str]) -> Parameter:
    return Parameter(g.name, g.dtype, g.shape, g.workspace or g.name in written)


def _kind(p: CompiledPhase) -> Kind:
    return "mix" if p.planned.mixed else _KINDS[p.planned.functions[0].kind]


def _blocks(p: CompiledPhase) -> int:
    """Of a mixed phase a block is a cube core with its vector cores."""
    cores = {f.kind: f.cores for f in p.planned.functions}
    return cores.get("cube", cores.get("vector", 0))


def _code(p: CompiledPhase) -> bytes:
    if p.handed.object is None:
        raise DeviceUnavailable(
            f"kernel `{p.name}` cannot be made into code for an NPU: CANN's hivmc is not on PATH",
            INSTALL,
        )
    return p.handed.object
