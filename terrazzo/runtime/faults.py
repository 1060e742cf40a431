"""What a fault word of generated code means, in the terms of the kernel's author."""

from __future__ import annotations

import numpy as np

from terrazzo.errors import KernelFault
from terrazzo.ir.graph import walk
from terrazzo.ir.ops import Expect, Kernel, Load, Loop, Store
from terrazzo.ir.place import mark
from terrazzo.targets.cpu import faults
from terrazzo.targets.cpu.compile import Compiled, prepare
from terrazzo.targets.cpu.frame import FIRST_SLOT, Slot


def explain(code: Compiled, table: np.ndarray, fault: int, word: int, of: str = "") -> KernelFault:
    """The error for a fault that `code`, run with `table`, reported; `of` says which launch it
    was."""
    kernel, detail = prepare(code.kernel), faults.Detail.of(word)
    s = list(walk(kernel.body))[detail.statement]
    what, remedy = "", ""
    if fault == faults.NONFINITE and isinstance(s, Store):
        what = f"store to `{s.param}` of a value that is not finite"
        remedy = "look for an overflow or a division by zero in what it computes, or NaN in inputs"
    elif isinstance(s, Expect):
        what = s.text
    elif isinstance(s, Loop):
        (v, *_) = s.vars
        last = _extent(code, kernel, v.dim, table) - 1
        what = f"`{v.name}` reaches {detail.number} of `{v.dim}`, valid are 0..{last}"
        remedy = "check the bounds of the loop"
    elif isinstance(s, (Load, Store)):
        dim = kernel.param(s.param).dims[detail.dimension]
        verb = "load of" if isinstance(s, Load) else "store to"
        what = (
            f"{verb} `{s.param}` is out of bounds: index {detail.number} in dimension"
            f" {detail.dimension} (`{dim}`), valid are"
            f" 0..{_extent(code, kernel, dim, table) - 1}"
        )
        remedy = "check the index values or the table they come from"
    return mark(KernelFault(f"kernel {kernel.name}{of}: {what}", remedy), s.loc)


def _extent(code: Compiled, kernel: Kernel, dim: str, table: np.ndarray) -> int:
    static = dict(kernel.statics)
    return (
        static[dim]
        if dim in static
        else int(table[FIRST_SLOT + code.slots.index(Slot("dim", dim))])
    )
