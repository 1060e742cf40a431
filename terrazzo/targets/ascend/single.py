"""Vector operations on one element.

The vendor's passes turn an operation whose size is 1 in the type into scalar code: it reads UB with
the scalar unit, between flags in both directions. Where the type leaves the size open it stays a
vector operation of one element, which waits for nothing. So such sizes are printed as a number that
the passes cannot work out.
"""

from __future__ import annotations

from dataclasses import replace

from terrazzo.targets.davinci.expr import Expr, add, make, var
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import Instr, View, views

ONE = var("%one")  # no name of a kernel's starts like this
MEANING = make("min", add(var("core"), 1), 1)
_WHOLE = ("vreduce", "varange")


def is_single(s: Instr) -> bool:
    """Whether the passes would make scalar code of `s`."""
    spec = TABLE.get(s.op)
    if spec is None or spec.pipe != "V" or s.op in _WHOLE:
        return False
    return all(n == 1 and not isinstance(n, Expr) for v in views(s) for n in v.sizes)


def opened(s: Instr) -> Instr:
    """The same instruction with the innermost size left open."""

    def view(v: View) -> View:
        return replace(v, sizes=(*v.sizes[:-1], ONE), strides=(*v.strides[:-1], 1))

    ins = tuple(view(x) if isinstance(x, View) else x for x in s.ins)
    return replace(s, out=view(s.out), ins=ins)
