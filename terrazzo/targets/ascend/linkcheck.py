"""Whether a lowered module can be linked and is worth it: each function that it calls exists in the
vendor's libraries, no vector operation is left over, none became a loop of the scalar unit. The
compiler itself says nothing of the three.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from terrazzo.targets.ascend.bitcode import defined_functions
from terrazzo.targets.ascend.mlir_text import Op, Place, parse
from terrazzo.targets.ascend.tools import Toolchain

_PREFIX = "_mlir_ciface_"  # before the names of functions that take memrefs by pointer
_LOWERED = frozenset({
    "set_flag", "wait_flag", "pipe_barrier", "set_mask_norm", "set_ffts_base_addr",
    "get_block_idx", "get_sub_block_idx", "pointer_cast", "sync_block_set", "sync_block_wait",
    "bitcast",
})  # operations that the code generator takes as they are  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """`kind`: missing (a library function), left (an operation), scalar (a loop on elements)."""

    kind: str
    name: str
    place: Place | None


@dataclass(frozen=True)
class Linked:
    """`functions`: those called, `findings`: what is wrong."""

    functions: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.findings if f.kind == "missing")


def check(lowered: str, tools: Toolchain) -> Linked:
    """Checks a module in generic form. Raises MlirError for what cannot be read."""
    module = parse(lowered)
    defined = frozenset().union(*(_library(p) for p in tools.libraries))
    declared = [
        str(op.attrs["sym_name"])
        for op in module.regions[0].ops
        if op.attrs.get("sym_visibility") == "private"
    ]
    called: dict[str, Place | None] = {}
    findings: dict[tuple[str, str], Finding] = {}
    for op in _walk(module):
        if op.name == "func.call":
            called.setdefault(str(op.attrs["callee"]).removeprefix("@"), op.place)
        elif op.name.startswith("hivm.hir."):
            name = op.name.removeprefix("hivm.hir.")
            if name not in _LOWERED:
                findings.setdefault(("left", name), Finding("left", name, op.place))
        elif op.name == "memref.store":
            where = f"line {op.place.line}" if op.place else ""
            findings.setdefault(("scalar", where), Finding("scalar", op.name, op.place))
    for name in dict.fromkeys([*called, *declared]):
        if name not in defined and _PREFIX + name not in defined:
            findings["missing", name] = Finding("missing", name, called.get(name))
    return Linked(tuple(dict.fromkeys([*called, *declared])), tuple(findings.values()))


@cache
def _library(path: Path) -> frozenset[str]:
    return defined_functions(path)


def _walk(op: Op) -> Iterator[Op]:
    yield op
    for region in op.regions:
        for inner in region.ops:
            yield from _walk(inner)
