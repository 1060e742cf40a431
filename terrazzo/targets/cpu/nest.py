"""Nest IR: what the CPU runs. Row loops around column loops, packed operands, micro-kernel calls.

A tile value is *virtual* (recomputed where it is used) unless a statement here writes it to a
buffer:
* `Nest`: for every point of its row axes, its levels in order; a level is one loop over a column
axis in
  steps of 16 lanes (or none: scalars of that row) that evaluates its roots together.
* `Dot`: the Cube operation on packed operands.
* `ForLoop`: a sequential loop. `Phase`: one top-level grid, its blocks split over the threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from terrazzo.ir.ops import Carry, Expect, Kernel, Load, Loop, Op, Store
from terrazzo.ir.types import Value


@dataclass(frozen=True)
class Buf:
    """Scratch of one thread: f32/i32 elements, row-major over `axes`; the last axis padded to 16
    lanes.

    kind "tile": every element of the axes; "row": one row, reused by each row in flight (axes =
    column); "panels": B operand, [axes[1]/16][cap of axes[0]][16] (k-major panels of 16 columns);
    "pairs": the same as sums of so many `planes` of bf16, k-rows in pairs, for matrix tiles (see
    micro_amx.py); "a8": rows of the format a8, the last axis as in memory.
    """

    name: str
    axes: tuple[str, ...]
    kind: Literal["tile", "row", "panels", "pairs", "a8"] = "tile"
    planes: int = 1


@dataclass(frozen=True)
class Root:
    """A value to be produced. store: to global memory; mat: to a buffer; reduce: a row's reduction,
    to a buffer; pack: elements of a B operand, to panels; quantize: a row buffer to a packed
    tensor, or to the buffer `packed`; decode: a row of a packed tensor to a row buffer; expect: a
    condition that must hold."""

    kind: Literal["store", "mat", "reduce", "pack", "quantize", "decode", "expect"]
    value: Value
    buf: Buf | None = None
    store: Store | None = None
    packed: Buf | None = None
    expect: Expect | None = None


@dataclass(frozen=True)
class Level:
    """One column loop (axis `col`), or row scalars if col is None."""

    col: str | None
    roots: tuple[Root, ...]


@dataclass(frozen=True)
class Nest:
    rows: tuple[str, ...]
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class OperandA:
    """rows x k, f32 or a8 in `buf`, or read in place from global memory (`load`). For matrix tiles
    its values are sums of so many `planes` of bf16, and in memory f32, f16 or bf16."""

    buf: Buf | None = None
    load: Load | None = None
    planes: int = 0


@dataclass(frozen=True)
class Ahead:
    """Pages that a loop reads next, their addresses listed in `buf`; `wraps`: in its next trip."""

    load: Load
    buf: Buf
    wraps: bool


@dataclass(frozen=True)
class OperandB:
    """Panels of 16 columns. kind "panels": packed in `buf`; "p16": a weight tensor in layout p16,
    read in place (decoded into `buf` first if the activations are f32 and the weights low-bit, or
    for matrix tiles);
    "rows": a tensor whose rows along k lie in memory as they are read; "paged_k" and "paged_v":
    pages of a KV cache read in place, their addresses listed in `buf`; `page` is the page length,
    `ahead` what is brought near meanwhile.
    """

    kind: Literal["panels", "p16", "rows", "paged_k", "paged_v"]
    buf: Buf | None = None
    load: Load | None = None
    page: int = 0
    ahead: Ahead | None = None


@dataclass(frozen=True)
class Dot:
    """c[m.., n] (+)= a[m.., k] · b[k, n]. `first`: "always" starts from zero, "never" adds to c,
    "trip" starts from zero on the first trip of the enclosing loop."""

    op: Op
    a: OperandA
    b: OperandB
    c: Buf
    m: tuple[str, ...]
    n: str
    k: str
    first: Literal["always", "never", "trip"]


@dataclass(frozen=True)
class Copy:
    """dst = src, whole buffers."""

    src: Buf
    dst: Buf


@dataclass(frozen=True)
class ForLoop:
    """`scalars`: carries kept in registers. `empty`: run this only if the loop makes no trip."""

    loop: Loop
    body: tuple[NestStmt, ...]
    scalars: tuple[Carry, ...] = ()
    empty: tuple[NestStmt, ...] = ()


NestStmt = Nest | Dot | Copy | ForLoop


@dataclass(frozen=True)
class Phase:
    """One grid (None: statements outside any grid, run by one thread). `dynamic`: all units are
    handed out by a counter, because their costs differ. `before`: every thread does this for
    itself first."""

    grid: Loop | None
    body: tuple[NestStmt, ...]
    dynamic: bool = False
    before: tuple[NestStmt, ...] = ()

    @property
    def products(self) -> bool:
        """Whether units hold products: then a few columns are work enough for a unit."""
        return _multiplies(self.body)


def _multiplies(body: tuple[NestStmt, ...]) -> bool:
    return any(isinstance(s, Dot) or (isinstance(s, ForLoop) and _multiplies(s.body)) for s in body)


@dataclass
class Program:
    """`placed[value id] -> Buf` is the memory plan; `views` are the buffers by name."""

    kernel: Kernel
    phases: tuple[Phase, ...]
    bufs: tuple[Buf, ...]
    placed: dict[int, Buf] = field(default_factory=dict)


def _root(r: Root) -> str:
    if r.kind == "store" and r.store is not None:
        return f"store {r.store.param} <- {r.value}"
    if r.kind == "quantize":
        to = r.store.param if r.store else r.packed.name if r.packed else ""
        return f"quantize {to} <- {r.value}"
    if r.expect is not None:
        return f"expect {r.value} {r.expect.text!r}"
    return f"{r.kind} {r.buf.name if r.buf else ''} <- {r.value}"


def _format(body: tuple[NestStmt, ...], pad: str, out: list[str]) -> None:
    for s in body:
        if isinstance(s, Nest):
            out.append(f"{pad}rows {' '.join(s.rows) or '-'} {{")
            for level in s.levels:
                roots = "; ".join(_root(r) for r in level.roots)
                out.append(f"{pad}  {'cols ' + level.col if level.col else 'scalar'}: {roots}")
            out.append(f"{pad}}}")
        elif isinstance(s, Dot):
            a = s.a.buf.name if s.a.buf else f"{s.a.load.param} in place" if s.a.load else "?"
            b = s.b.buf.name if s.b.buf else ""
            b = f"{s.b.kind} {s.b.load.param if s.b.load else ''} {b}".strip()
            c = f"{s.c.name}[{' '.join(s.m)}, {s.n}] (first={s.first})"
            near = f", {s.b.ahead.load.param} ahead" if s.b.ahead else ""
            out.append(f"{pad}dot {c} += {a} . {b} over {s.k}{near}")
        elif isinstance(s, Copy):
            out.append(f"{pad}copy {s.dst.name} <- {s.src.name}")
        else:
            v = s.loop.vars[0]
            carried = ", ".join(f"{c.var}={c.init}->{c.next}" for c in s.scalars)
            out.append(
                f"{pad}loop {v.name} from {v.lo} to {v.hi} step {v.step or 1} ({carried}) {{"
            )
            _format(s.body, pad + "  ", out)
            out.append(f"{pad}}}")


def format(program: Program) -> str:
    """The nest IR as text, for `explain` and golden tests."""
    out = [f"nest {program.kernel.name}"]
    for b in program.bufs:
        out.append(f"  buffer {b.name}: {b.kind}[{', '.join(b.axes)}]")
    for n, p in enumerate(program.phases):
        if p.grid is None:
            out.append(f"phase {n} (one thread) {{")
        else:
            axes = ", ".join(f"{v.name} step {v.step or 1}" for v in p.grid.vars)
            out.append(f"phase {n} grid {axes}{' dynamic' if p.dynamic else ''} {{")
        if p.before:
            out.append("  every thread {")
            _format(p.before, "    ", out)
            out.append("  }")
        _format(p.body, "  ", out)
        out.append("}")
    return "\n".join(out) + "\n"
