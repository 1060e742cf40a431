"""Views of a core program as memrefs: every buffer is one dense row of elements, every view a
`memref.reinterpret_cast` of it, so that the vendor's passes keep our strides.

The NZ layout of L1 and L0C prints as four dimensions [columns / c0, rows / 16, 16, c0]. The rows
are those that the layout has room for, whatever the tile holds: the vendor's Cube library takes
the distance of column blocks from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from terrazzo.ir.types import bool_
from terrazzo.targets.ascend.mlir_writer import TYPES, Writer
from terrazzo.targets.davinci.chips import BLOCK, FRACTAL_ROWS
from terrazzo.targets.davinci.expr import Expr, Scalar, add, ceil_div, make, mul
from terrazzo.targets.davinci.program import Buffer, Gm, View

SPACES = {"GM": "gm", "UB": "ub", "L1": "cbuf", "L0C": "cc"}


@dataclass(frozen=True)
class Memref:
    """A value of memref type. `sizes`: as printed, with 1 where a broadcast operand repeats."""

    value: str
    type: str
    sizes: tuple[Scalar, ...] = ()


def space(memory: Buffer | Gm) -> str:
    """The address space's attribute. Raises KeyError for L0A and L0B, which HIVM does not have."""
    return f"#{SPACES['GM' if isinstance(memory, Gm) else memory.space]}"


def base_type(memory: Buffer | Gm, element: str = "") -> str:
    """Of the whole memory: a tensor's own shape, a buffer's elements in a row."""
    shape = memory.shape if isinstance(memory, Gm) else (memory.elements,)
    dims = "".join(f"{n}x" for n in shape)
    return f"memref<{dims}{element or TYPES[memory.dtype.name]}, {space(memory)}>"


def elements(memory: Buffer | Gm) -> int:
    return math.prod(memory.shape) if isinstance(memory, Gm) else memory.elements


def slot_elements(b: Buffer) -> int:
    """Elements from one slot to the next, of a buffer whose slots lie in one allocation."""
    unit = BLOCK * 8 // (1 if b.dtype == bool_ else b.dtype.bits)
    if b.space == "L0C":
        unit = FRACTAL_ROWS * FRACTAL_ROWS
    return -(-b.elements // unit) * unit


def ring_slot(v: View) -> View:
    """`v` in one allocation of all slots, one behind the other."""
    assert isinstance(v.memory, Buffer)
    step = slot_elements(v.memory)
    whole = replace(v.memory, elements=v.memory.slots * step, slots=1)
    slot = make("mod", v.slot, v.memory.slots)
    return replace(v, memory=whole, slot=0, offset=add(v.offset, mul(slot, step)))


def geometry(v: View, broadcast: bool) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    """Sizes and strides to print. With `broadcast`, dimensions of stride 0 have the size 1."""
    if v.fractal:
        return _fractal(v)
    sizes = [1 if broadcast and st == 0 else n for n, st in zip(v.sizes, v.strides, strict=True)]
    strides = list(v.strides)
    dense = 1  # the stride that makes this dimension follow the inner ones
    for d in reversed(range(len(sizes))):
        n = sizes[d]
        if n == 1 and (strides[d] == 0 or d == len(sizes) - 1):
            strides[d] = dense
        stride = strides[d]
        if isinstance(stride, Expr) or isinstance(n, Expr):
            dense = elements(v.memory)
        else:
            dense = int(stride * n)
    return tuple(sizes), tuple(strides)


def _fractal(v: View) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    row, block = v.strides
    if isinstance(row, Expr) or isinstance(block, Expr):
        raise ValueError("the layout of a Cube tile is static")
    columns = v.sizes[1]
    if isinstance(columns, Expr):  # all that the buffer has room for
        blocks: Scalar = elements(v.memory) // int(block)
    else:
        blocks = ceil_div(columns, v.fractal)
    sizes = (blocks, int(block) // int(row) // FRACTAL_ROWS, FRACTAL_ROWS, v.fractal)
    return sizes, (block, FRACTAL_ROWS * row, row, 1)


def print_view(w: Writer, v: View, base: str, broadcast: bool = False) -> Memref:
    """The operations that make the view; `base` is the memory's value."""
    sizes, strides = geometry(v, broadcast)
    kind = TYPES[v.dtype.name]
    if isinstance(v.memory, Buffer) and (sizes, strides, v.offset) == (
        (v.memory.elements,),
        (1,),
        0,
    ):
        return Memref(base, base_type(v.memory), sizes)
    text = [[_entry(w, x) for x in xs] for xs in ((v.offset,), sizes, strides)]
    dims = "".join(f"{_static(n)}x" for n in sizes)
    layout = f"strided<[{', '.join(map(_static, strides))}]"
    layout += "" if v.offset == 0 else f", offset: {_static(v.offset)}"
    made = f"memref<{dims}{kind}, {layout}>, {space(v.memory)}>"
    value = w.op(
        f"memref.reinterpret_cast {base} to offset: [{text[0][0]}], "
        f"sizes: [{', '.join(text[1])}], strides: [{', '.join(text[2])}] "
        f": {base_type(v.memory)} to {made}",
        "view",
    )
    return Memref(value, made, sizes)


def _entry(w: Writer, x: Scalar) -> str:
    return w.index(x) if isinstance(x, Expr) else str(int(x))


def _static(x: Scalar) -> str:
    return "?" if isinstance(x, Expr) else str(int(x))
