"""What is wrong with a scheduled program before it runs: addresses, spaces, types."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from terrazzo.ir.types import bf16, bool_, f16
from terrazzo.targets.davinci.checking.finding import Finding
from terrazzo.targets.davinci.chips import ALIGNMENT, BLOCK, FRACTAL_ROWS, Chip
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    Instr,
    Program,
    Space,
    View,
    views,
    walk,
)

NARROW = (f16, bf16)
_REACH: dict[str, tuple[Space, ...]] = {
    "vector": ("GM", "UB"), "cube": ("GM", "L1", "L0A", "L0B", "L0C"),
}  # fmt: skip
_PIPES = {"vector": ("S", "V", "MTE2", "MTE3"), "cube": ("S", "M", "MTE1", "MTE2", "FIX")}
_MOVES = ("load", "store", "nd2nz", "load_nz", "l1_to_l0a", "l1_to_l0b")
_PRODUCTS = ("mmad", "mmad_l1")  # which also take: is it the first?
_SHOWN = 8  # tiles in a capacity error's table


def inspect(program: Program, chip: Chip, found: Callable[[Finding], None]) -> frozenset[Instr]:
    """Tells `found` about every mistake. Returns the instructions that cannot run as they are."""
    bad: set[Instr] = set()
    for phase in program.phases:
        for f in phase.functions:
            for b in f.buffers:
                for finding in _buffer(b):
                    found(finding)
            for space in dict.fromkeys(b.space for b in f.buffers):
                for finding in _capacity(f, space, chip):
                    found(finding)
            for s in walk(f.body):
                if isinstance(s, Instr):
                    finding = _instr(f, s)
                    if finding is not None:
                        found(finding)
                        if finding.kind != "narrow":
                            bad.add(s)
    return frozenset(bad)


def _buffer(b: Buffer) -> Iterator[Finding]:
    if not b.addresses and b.dtype != bool_:  # masks keep no address in the vendor's plan
        yield Finding("misuse", f"the tile `{b.tile or b.name}` has no address", "schedule the"
                      " program first", b.loc)  # fmt: skip
    unit = ALIGNMENT[b.space]
    for a in b.addresses:
        if a % unit:
            yield Finding("alignment", f"the tile `{b.tile or b.name}` begins at byte {a} of"
                          f" {b.space}, which is no multiple of {unit}",
                          f"place it at {a // unit * unit}", b.loc)  # fmt: skip


def _capacity(f: CoreFn, space: str, chip: Chip) -> Iterator[Finding]:
    """The first tile that reaches past the end, with a table of the largest ones."""
    room = chip.capacity[space]
    tiles = [b for b in f.buffers if b.space == space and b.addresses]
    over = [b for b in tiles if max(b.addresses) + b.bytes > room or min(b.addresses) < 0]
    if not over:
        return
    b = over[0]
    end = max(b.addresses) + b.bytes
    text = (f"the tile `{b.tile or b.name}` of {b.bytes} bytes, {len(b.addresses)} of them, reaches"
            f" byte {end} of {space}, which has {room}")  # fmt: skip
    table = [
        f"{t.bytes:>8} bytes x {len(t.addresses)}  `{t.tile or t.name}`"
        + (f"  line {t.loc.line}" if t.loc else "")
        for t in sorted(tiles, key=lambda t: -t.bytes * len(t.addresses))
    ]
    fits = (room - min(b.addresses)) // b.dtype.bytes // len(b.addresses)
    yield Finding("capacity", text, f"make tiles smaller: `{b.tile or b.name}` fits with"
                  f" {max(fits, 0)} elements", b.loc, table=tuple(table[:_SHOWN]))  # fmt: skip


def _instr(f: CoreFn, s: Instr) -> Finding | None:
    spec = TABLE.get(s.op)
    if spec is None:
        return None  # it is told where it is issued
    through = "hand the data over through global memory"
    if spec.pipe not in _PIPES[f.kind]:
        return Finding("space", f"{s.op} runs on the pipe {spec.pipe}, which a {f.kind} core does"
                       " not have", f"move it to the other kind of core, and {through}",
                       s.loc)  # fmt: skip
    for v in views(s):
        if v.space not in _REACH[f.kind]:
            return Finding("space", f"{s.op} touches `{_name(v)}` in {v.space}, which a {f.kind}"
                           " core does not reach", through, s.loc)  # fmt: skip
    for x, space in zip((s.out, *s.ins), spec.spaces, strict=False):
        if isinstance(x, View) and x.space != space:
            return Finding("space", f"{s.op} takes `{_name(x)}` in {space}, and it lies in"
                           f" {x.space}", f"move it to {space} first", s.loc)  # fmt: skip
    takes = len(spec.spaces) - 1 + (s.op in _PRODUCTS)
    if len(s.ins) != takes:
        return Finding("misuse", f"{s.op} takes {takes} operands and has {len(s.ins)}", "see"
                       " isa.TABLE", s.loc)  # fmt: skip
    return _types(s) or _layout(s)


def _name(v: View) -> str:
    return v.memory.tile or v.memory.name if isinstance(v.memory, Buffer) else v.memory.name


def _types(s: Instr) -> Finding | None:
    spec = TABLE[s.op]
    allowed = (*spec.dtypes, bool_) if s.op in ("vand", "vor", "vxor", "vnot") else spec.dtypes
    ins = [x for x in s.ins if isinstance(x, View)]
    if s.op == "vsel":
        ins = ins[1:]
    for v in ins:
        if v.dtype not in allowed:
            return Finding("dtype", f"{s.op} takes no {v.dtype}: `{_name(v)}`", "cast it to one of"
                           f" {', '.join(map(str, allowed))}", s.loc)  # fmt: skip
    if s.op in _MOVES and ins and s.out.dtype != ins[0].dtype:
        return Finding("dtype", f"{s.op} moves `{_name(ins[0])}` of {ins[0].dtype} to"
                       f" `{_name(s.out)}` of {s.out.dtype}", "a move does not convert: use one"
                       " type", s.loc)  # fmt: skip
    if len({v.dtype for v in ins}) > 1:
        return Finding("dtype", f"{s.op} of {' and '.join(str(v.dtype) for v in ins)}", "cast them"
                       " to one type", s.loc)  # fmt: skip
    if s.op in _PRODUCTS and s.out.dtype in NARROW:
        return Finding("narrow", f"the product is summed up in {s.out.dtype}", "sum in f32 and cast"
                       " on the way out", s.loc)  # fmt: skip
    return None


def _layout(s: Instr) -> Finding | None:
    """Operands in L1 and L0 are NZ: blocks of columns 32 bytes wide (L0C: 16 elements), each of
    whole fractals."""
    for v in views(s):
        if v.space in ("GM", "UB"):
            continue
        wide = FRACTAL_ROWS if v.space == "L0C" else BLOCK // v.dtype.bytes
        if v.fractal != wide or v.strides[0] != wide:
            return Finding("alignment", f"`{_name(v)}` has blocks of {v.fractal or 'no'} columns in"
                           f" {v.space}", f"use the NZ layout with {wide}", s.loc)  # fmt: skip
        pitch = v.strides[1]
        if isinstance(pitch, int) and pitch % (FRACTAL_ROWS * wide):
            return Finding("alignment", f"the column blocks of `{_name(v)}` are {pitch // wide}"
                           " rows apart", f"pad rows to a multiple of {FRACTAL_ROWS}",
                           s.loc)  # fmt: skip
    return None
