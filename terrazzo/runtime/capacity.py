"""A kernel whose tiles do not fit: what it keeps, and which smaller constants would fit."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from terrazzo.errors import CapacityError, KernelError
from terrazzo.ir.ops import Loc
from terrazzo.ir.place import mark, snippet
from terrazzo.lang.bind import Binding
from terrazzo.lang.kernel import Kernel
from terrazzo.targets.cpu.capacity import Held, holdings
from terrazzo.targets.cpu.isa import detect

SHOWN = 5  # tiles listed


def shortage(kernel: Kernel, b: Binding, need: int, limit: int) -> CapacityError:
    """The error for a call whose threads would need `need` bytes of scratch each."""
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics, detect().target)
    held = holdings(ir, b.dims)
    consts = {
        n: v for n, v in ir.consts if isinstance(v, int) and not isinstance(v, bool) and v > 1
    }
    what = (
        f"kernel `{kernel.name}` needs {size(need)} of scratch a thread for its tiles,"
        f" {size(limit)} are allowed"
    )
    error = CapacityError(what, _remedy(kernel, b, consts, limit))
    error.tiles = tuple(_table(held[:SHOWN]))
    if len(held) > SHOWN:
        rest = sum(h.bytes for h in held[SHOWN:])
        error.tiles += (f"and {len(held) - SHOWN} more, together {size(rest)}",)
    return mark(error, held[0].loc)


def _remedy(kernel: Kernel, b: Binding, consts: Mapping[str, int], limit: int) -> str:
    """Each constant that helps alone; else how far all that matter must go down together."""
    alone = []
    for name in consts:
        value, need = _halved(kernel, b, consts, (name,), limit)
        if need <= limit:
            alone.append(f"{name} from {consts[name]:,} to {value[name]:,} (then {size(need)})")
    if alone:
        return f"lower {', or '.join(alone)}"
    before = _need(kernel, b, consts)
    matter = [n for n in consts if _need(kernel, b, {**consts, n: consts[n] // 2}) < before]
    value, need = _halved(kernel, b, consts, matter, limit)
    if matter and need <= limit:
        what = ", ".join(f"{n} from {consts[n]:,} to {value[n]:,}" for n in matter)
        return f"lower {what} (then {size(need)})"
    return "no tile size makes it fit: cut the whole axes of its largest tile into blocks"


def _halved(
    kernel: Kernel, b: Binding, consts: Mapping[str, int], names: Any, limit: int
) -> tuple[dict[str, int], float]:
    """The constants with those of `names` halved until the tiles fit or they are all 1, and the
    bytes a thread needs then."""
    value, need = dict(consts), float("inf")
    while need > limit and any(value[n] > 1 for n in names):
        value |= {n: max(value[n] // 2, 1) for n in names}
        need = _need(kernel, b, value)
    return value, need


def _need(kernel: Kernel, b: Binding, consts: Mapping[str, int]) -> float:
    """Bytes of scratch with these constants; infinite where the kernel refuses them."""
    try:
        ir = kernel.specialise(
            b.dtypes, {**b.consts, **consts}, b.present, b.statics, detect().target
        )
        return sum(h.bytes for h in holdings(ir, b.dims))
    except KernelError:
        return float("inf")


def _table(held: list[Held]) -> list[str]:
    rows = []
    for h in held:
        axes = ", ".join(f"{name}={extent}" for name, extent in h.axes)
        line = f"line {h.loc.line}" if h.loc is not None else ""
        rows.append((f"{tile_name(h.loc)} [{axes}]", size(h.bytes), line))
    first, second = (max(len(r[i]) for r in rows) for i in (0, 1))
    return [f"{name:<{first}}  {nbytes:>{second}}  {line}".rstrip() for name, nbytes, line in rows]


def tile_name(loc: Loc | None) -> str:
    """The variable a tile is assigned to, else the expression it comes from."""
    if loc is None:
        return "tile"
    try:
        (stmt,) = ast.parse(loc.text.strip()).body
    except (SyntaxError, ValueError):  # a line of a longer statement
        return snippet(loc)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return snippet(loc)
    whole = ast.get_source_segment(loc.text.strip(), stmt.value) == snippet(loc)
    return ast.unparse(stmt.targets[0]) if whole else snippet(loc)


def size(n: float) -> str:
    """Bytes in MiB or GiB."""
    mib = n / (1 << 20)
    return f"{mib:.1f} MiB" if mib < 1024 else f"{mib / 1024:,.1f} GiB"
