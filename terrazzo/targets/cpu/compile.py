"""A specialised kernel to callable code: passes, lowering, machine code (from the object cache if
it is there).

The passes, the lowering and LLVM are imported when something is compiled: a process that finds all
its objects in the cache never needs them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from terrazzo.ir.ops import Kernel
from terrazzo.ir.printer import format as format_ir
from terrazzo.targets.cpu import jit, objcache
from terrazzo.targets.cpu.frame import FIRST_SLOT, Slot, phase_name, slots
from terrazzo.targets.cpu.isa import Isa, detect


@dataclass(frozen=True, eq=False)
class Compiled:
    """Machine code of one kernel. `phases`: addresses in order; `table` layout: see frame.py."""

    kernel: Kernel  # as traced
    phases: tuple[int, ...]
    slots: tuple[Slot, ...]
    module: jit.Module

    @property
    def table_length(self) -> int:
        return FIRST_SLOT + len(self.slots)

    def scratch(self, table: np.ndarray) -> int:
        """Bytes of scratch a thread needs for the extents in `table` (int64, contiguous)."""
        fn = self.module.function("scratch_bytes", ctypes.c_int64, ctypes.c_void_p)
        return int(fn(table.ctypes.data))


@dataclass(frozen=True)
class Stages:
    """The texts of one compilation, for `explain` and `terrazzo kernel show`."""

    passes: tuple[tuple[str, str], ...]
    nest: str
    llvm: str

    def assembly(self, isa: Isa) -> str:
        from terrazzo.targets.cpu import codegen

        return codegen.assembly(self.llvm, isa)


def prepare(kernel: Kernel) -> Kernel:
    """The target-independent passes, in order, then this target's own."""
    from terrazzo.ir.passes import pipeline
    from terrazzo.targets.cpu.byte_dots import widen

    for _, run in pipeline():
        kernel = run(kernel)
    return widen(kernel)


def stages(kernel: Kernel, isa: Isa | None = None) -> Stages:
    from terrazzo.ir.passes import pipeline
    from terrazzo.targets.cpu import nest
    from terrazzo.targets.cpu.byte_dots import widen
    from terrazzo.targets.cpu.lower import lower

    out = [("trace", format_ir(kernel))]
    for name, run in pipeline():
        kernel = run(kernel)
        out.append((name, format_ir(kernel)))
    if (wide := widen(kernel)) != kernel:
        kernel = wide
        out.append(("byte_dots", format_ir(kernel)))
    text, _, program = lower(kernel, isa or detect())
    return Stages(tuple(out), nest.format(program), text)


def build(kernel: Kernel, isa: Isa, strict: bool) -> bytes:
    from terrazzo.targets.cpu import codegen
    from terrazzo.targets.cpu.lower import lower

    return codegen.compile_object(lower(prepare(kernel), isa, strict)[0], isa)


@cache
def compiled(kernel: Kernel, isa: Isa, strict: bool = False) -> Compiled:
    """Code for `kernel` as traced; `strict`: with checks of indices and stored values. Raises
    KernelError for what this target cannot run."""
    mode = ("strict",) if strict else ()
    key = objcache.make_key("kernel", format_ir(kernel), isa.name, isa.cpu, isa.features, *mode)
    obj = objcache.get_or_build(key, partial(build, kernel, isa, strict))
    module = jit.load(obj)
    count = int(module.function("phase_count", ctypes.c_int64)())
    phases = tuple(module.address(phase_name(kernel, n)) for n in range(count))
    return Compiled(kernel, phases, slots(kernel), module)
