"""Scheduled programs of the published measurements, made by the compiler from a row's params.

Where a source is silent, the choice is said here. New sizes, tiles, stages, core counts and
placements need no new code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

import davinci_kernels as kernels

from terrazzo.ir.types import DTYPES
from terrazzo.kernels.linear import matmul
from terrazzo.kernels.math import add
from terrazzo.lang.kernel import Kernel
from terrazzo.targets.davinci.chips import CAPACITY, Chip
from terrazzo.targets.davinci.expr import Scalar, make, mul
from terrazzo.targets.davinci.expr import add as plus
from terrazzo.targets.davinci.lowering.lower import Options, lower
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    For,
    Gm,
    If,
    Instr,
    Phase,
    Program,
    Stmt,
    View,
    walk,
)
from terrazzo.targets.davinci.scheduling.schedule import schedule

Params = Mapping[str, Any]
KIB = 1024


def lowered(
    kernel: Kernel, dims: Mapping[str, int], types: Mapping[str, str], chip: Chip,
    options: Options, **consts: Any,
) -> Program:  # fmt: skip
    """At the buffer level; blocks are as large as the row says."""
    bound = {name: DTYPES[t] for name, t in types.items()}
    ir = kernel.specialise(bound, consts, set(), dims, "davinci")
    return lower(ir, dims, chip, replace(options, balance=False))


def add_rows(p: Params, chip: Chip, cores: int) -> Program:
    """z = x + y in flat tiles, `buffers` slots each, inputs past L2 or not."""
    dtype = p.get("dtype", "f16")
    n, tile = p["rows"] * p["cols"], p["tile_bytes"] // DTYPES[dtype].bytes
    bypass = frozenset("ab") if p.get("l2") == "bypass" else frozenset()
    o = Options(vector_cores=cores, slots=p["buffers"], bypass=bypass)
    made = schedule(lowered(add, {"n": n}, {"T": dtype}, chip, o, TILE=tile), chip)
    return placed(made, p["bank_conflict"])


def add_in_ub(p: Params, chip: Chip, cores: int) -> Program:
    """Additions of tiles in UB, one after the other."""
    n = p["elements"]
    made = lowered(kernels.add_repeated, {"rows": n}, {"T": p.get("dtype", "f32")}, chip,
                   Options(vector_cores=cores, slots=1), ROWS=n, TIMES=p["repeats"])  # fmt: skip
    return placed(schedule(made, chip), p["bank_conflict"])


def copy_gm_ub(p: Params, chip: Chip, cores: int) -> Program:
    """GM -> UB tile by tile; what would be done with the data is left out. `reads` passes over the
    whole tensor, or over slices of it (the text in `l2` gives their MB), each read so often in a
    row. "same address": all cores read the same part of the tensor."""
    dtype = p.get("dtype", "f16")
    height, width = p["rows"], p["cols"]
    h, w = p.get("tile", [16, 1024])
    options, tile = Options(vector_cores=cores), {"ROWS": h, "COLS": w}
    if "same address" in p.get("pattern", ""):
        dims = {"times": cores, "rows": ceil(height / cores), "cols": width}
        made = lowered(kernels.copy_same, dims, {"T": dtype}, chip, options, **tile)
    else:
        megabytes = re.search(r"slices of (\d+) MB", p.get("l2", ""))
        total = height * width * DTYPES[dtype].bytes
        slices = max(1, round(total / 1e6 / int(megabytes[1]))) if megabytes else 1
        dims = {"rows": ceil(height / slices), "cols": width}
        parts = [
            lowered(kernels.copy, dims, {"T": dtype}, chip, options, **tile) for _ in range(slices)
        ]
        made = replace(parts[0], gm=tuple(gm for part in parts for gm in part.gm),
                       phases=tuple(part.phases[0] for part in parts))  # fmt: skip
    return passes(reads_only(made, "x"), p.get("reads", 1), chip)


def copy_gm_l1_nd2nz(p: Params, chip: Chip, cores: int) -> Program:
    """GM -> L1 into the NZ layout, rows of tiles dealt out; the product is left out."""
    h, w = p.get("tile", [64, 1024])
    dims = {"rows": p["rows"], "cols": p["cols"], "few": 16}
    dtype = p.get("dtype", "f16")
    made = lowered(kernels.copy_nz, dims, {"T": dtype, "R": dtype}, chip, Options(cores=cores),
                   ROWS=h, COLS=w)  # fmt: skip
    return passes(reads_only(made, "x"), p.get("reads", 1), chip)


def gemm(p: Params, chip: Chip, cores: int) -> Program:
    """c = a · b. L1 tiles of a and b are equally deep: the shallower of the two in `base`."""
    if "base" in p:
        bm, bn, bk = p["base"]
        deep = bk * min(p.get("step_ka", p.get("step_k", 4)), p.get("step_kb", p.get("step_k", 4)))
    else:
        bm, bn, deep = p["l1_tile"]
    kernel = kernels.matmul_bt if p.get("b_transposed") else matmul
    dims = {x: p[x] for x in "mnk"}
    made = lowered(kernel, dims, {"T": p["a"], "R": p["c"]}, chip, Options(cores=cores),
                   M=bm, N=bn, K=deep)  # fmt: skip
    if p.get("b_layout") == "zN":
        made = in_fractals(made, "b")
    return schedule(made, chip)


def flash_attention(p: Params, chip: Chip, cores: int) -> Program:
    """Every query over all keys; blocks of 128 keys, three ahead (the source is silent)."""
    dims = {"heads": p["batch"] * p["heads"], "s": p["q_tokens"], "t": p["kv_tokens"],
            "d": p["head_dim"]}  # fmt: skip
    o = Options(cores=cores, ahead=3)
    types = {"T": p["dtype"], "R": p["dtype"]}
    made = lowered(kernels.attention, dims, types, chip, o, BQ=p["q_rows_per_core"], STEP=128)
    return schedule(made, chip)


def grouped_gemm_int8_gelu(p: Params, chip: Chip, cores: int) -> Program:
    """Tiles of 128 x 256, `stages` of them in the workspace; a vector core takes 24 rows at a time.
    b in fractals; one group (the source has 8, in equal shares)."""
    ratio = int(p["cube_to_vector"].split(":")[1])
    o = Options(cores=cores, ratio=ratio, ahead=p["stages"] - 1, part=24)
    dims = {x: p[x] for x in "mnk"}
    made = lowered(kernels.matmul_i8_gelu, dims, {"R": "f16"}, chip, o)
    return schedule(in_fractals(made, "b"), chip)


BUILDERS: dict[str, Callable[[Params, Chip, int], Program]] = {
    "add": add_rows,
    "add_in_ub": add_in_ub,
    "copy_gm_ub": copy_gm_ub,
    "copy_gm_l1_nd2nz": copy_gm_l1_nd2nz,
    "gemm": gemm,
    "flash_attention": flash_attention,
    "grouped_gemm_int8_gelu": grouped_gemm_int8_gelu,
}


# -- what the measurements do to a compiled program ------------------------------------------------


def mapped(program: Program, change: Callable[[Stmt], Stmt | None]) -> Program:
    """Every statement changed, those that become None left out."""

    def body(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out = []
        for s in statements:
            if isinstance(s, (For, If)):
                s = replace(s, body=body(s.body))
            new = change(s)
            if new is not None:
                out.append(new)
        return tuple(out)

    def function(fn: CoreFn) -> CoreFn:
        return replace(fn, body=body(fn.body))

    phases = tuple(replace(ph, functions=tuple(map(function, ph.functions)))
                   for ph in program.phases)  # fmt: skip
    return replace(program, phases=phases)


def reads_only(program: Program, tensor: str) -> Program:
    """Only the transfers out of `tensor`."""
    return mapped(program, lambda s: None if isinstance(s, Instr) and _reads(s) != tensor else s)


def _reads(s: Stmt) -> str:
    """The tensor that an instruction loads from, or ""."""
    if not isinstance(s, Instr):
        return ""
    names = [v.memory.name for v in s.ins if isinstance(v, View) and isinstance(v.memory, Gm)]
    return names[0] if names else ""


def passes(program: Program, times: int, chip: Chip) -> Program:
    """Every phase `times` in a row, scheduled."""
    made = schedule(program, chip)
    return replace(made, phases=tuple(ph for ph in made.phases for _ in range(times)))


def in_fractals(program: Program, tensor: str) -> Program:
    """`tensor` lies in fractals, as L1 has them."""
    return mapped(program, lambda s: _from_fractals(s) if _reads(s) == tensor else s)


def _from_fractals(s: Stmt) -> Stmt:
    """A move of [rows, columns] to the NZ layout, of a tensor that lies in fractals already:
    element (r, c) at (c // c0) · rows of the tensor · c0 + r · c0 + c % c0."""
    assert isinstance(s, Instr)
    (source,) = (v for v in s.ins if isinstance(v, View))
    gm = source.memory
    assert isinstance(gm, Gm)
    c0 = 256 // gm.dtype.bits
    height, width = gm.shape
    row, column = make("div", source.offset, width), make("mod", source.offset, width)
    rows, columns = source.sizes
    across = make("div", plus(columns, c0 - 1), c0)
    offset = plus(mul(row, c0), mul(make("div", column, c0), height * c0))
    sizes: tuple[Scalar, ...] = (across, mul(rows, c0))
    there = View(gm, sizes, (height * c0, 1), offset)
    here = replace(s.out, sizes=sizes, strides=(s.out.strides[1], 1), fractal=0)
    return Instr("load_nz", here, (there,), s.attrs, s.loc)


def placed(program: Program, conflict: str) -> Program:
    """The buffers of an addition where the measurement has them: the sources half the bank groups
    apart without a conflict, in the same groups with one."""
    (fn,) = program.phases[0].functions
    (op,) = {s.op: s for s in walk(fn.body) if isinstance(s, Instr) and s.op == "vadd"}.values()
    buffers = [v.memory for v in (*op.ins, op.out) if isinstance(v, View)]
    x, y, z = (b for b in buffers if isinstance(b, Buffer))
    third = CAPACITY["UB"] // 3
    apart = 0 if conflict.startswith("read-read") else 256
    moved = {
        b: replace(b, addresses=tuple(start + i * b.bytes for i in range(b.slots)))
        for b, start in {x: 0, y: third + apart, z: 2 * third}.items()
    }
    if z is x:
        moved[x] = replace(x, addresses=(0,))
    return with_buffers(program, moved)


def with_buffers(program: Program, moved: Mapping[Buffer, Buffer]) -> Program:
    def view(v: Any) -> Any:
        if isinstance(v, View) and v.memory in moved:
            return replace(v, memory=moved[v.memory])  # type: ignore[index]
        return v

    def change(s: Stmt) -> Stmt:
        if not isinstance(s, Instr):
            return s
        return Instr(s.op, view(s.out), tuple(map(view, s.ins)), s.attrs, s.loc)

    out = mapped(program, change)
    phases = tuple(
        Phase(tuple(replace(fn, buffers=tuple(moved.get(b, b) for b in fn.buffers))
                    for fn in ph.functions), ph.ratio)
        for ph in out.phases
    )  # fmt: skip
    return replace(out, phases=phases)
