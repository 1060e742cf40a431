"""The figures as the vendor's profiler writes them: one table a subject, under its column names.

A row stands for all cores of a kind, because what is simulated is the mean over them; `block_id` is
their number. Columns that we have no figure for (cache lines of the instruction cache, hit counts
of L2, scalar traffic) are left out rather than filled with zeros; docs/profile.md lists them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from terrazzo.profile import names
from terrazzo.profile.report import Report
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import CoreKind, Instr, Pipe, views, walk

Row = dict[str, Any]
SHORT: dict[CoreKind, str] = {"cube": "aic", "vector": "aiv"}


def write(report: Report, folder: Path) -> list[Path]:
    """Writes every table to `folder`, which is made if it is not there; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for name, rows in tables(report).items():
        path = folder / f"{name}.csv"
        columns = list(dict.fromkeys(c for row in rows for c in row))
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, restval="NA")
            writer.writeheader()
            writer.writerows({c: _cell(v) for c, v in row.items()} for row in rows)
        out.append(path)
    return out


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def tables(report: Report) -> dict[str, list[Row]]:
    """Table -> rows; a cell is NA where its column means the other kind of core."""
    kinds = list(report.timeline.cores)
    each = {
        "PipeUtilization": _pipes,
        "ArithmeticUtilization": _arithmetic,
        "Memory": _memory,
        "MemoryL0": _memory_l0,
        "MemoryUB": _memory_ub,
        "L2Cache": _l2,
        "ResourceConflictRatio": _conflicts,
    }
    out = {"OpBasicInfo": [_basic(report)]}
    for name, make in each.items():
        out[name] = [_common(report, kind) | make(report, kind) for kind in kinds]
    return out


def _basic(report: Report) -> Row:
    t = report.timeline
    mixed = len(t.cores) > 1
    kind = "MIX" if mixed else SHORT[next(iter(t.cores))].upper()
    return {
        "Op Name": report.program.name,
        "Op Type": f"Terrazzo_{kind}",
        "Task Duration(us)": t.us,
        "Block Dim": t.cores.get("cube", t.cores.get("vector", 0)),
        "Mix Block Dim": t.cores["vector"] if mixed else "NA",
        "Current Freq": t.chip.mhz,
        "Rated Freq": t.chip.mhz,
    }


def _common(report: Report, kind: CoreKind) -> Row:
    t = report.timeline
    return {
        "block_id": t.cores[kind],
        "sub_block_id": kind,
        f"{SHORT[kind]}_time(us)": t.cycles / t.chip.mhz,
        f"{SHORT[kind]}_total_cycles": round(t.cycles),
    }


def _pipes(report: Report, kind: CoreKind) -> Row:
    out: Row = {}
    for pipe in names.PIPES[kind]:
        name = names.prefix(kind, pipe)
        if f"{name}_ratio" in report.figures.pipes:
            out[f"{name}_time(us)"] = report.figures.times[f"{name}_time(us)"]
            out[f"{name}_ratio"] = report.figures.pipes[f"{name}_ratio"]
    moving: tuple[Pipe, ...] = ("MTE1", "MTE2", "MTE3", "FIX")
    for pipe in moving:
        use = report.timeline.pipe(kind, pipe)
        if use and use.busy:
            rate = use.moved / use.busy * report.timeline.chip.mhz / 1e3
            out[f"{names.prefix(kind, pipe)}_active_bw(GB/s)"] = rate
    return out


def _arithmetic(report: Report, kind: CoreKind) -> Row:
    t = report.timeline
    unit: Pipe = "M" if kind == "cube" else "V"
    use = t.pipe(kind, unit)
    ratio = t.ratio(kind, unit)
    number = use.instructions if use else 0
    if kind == "vector":
        shares = _vector_types(report)
        types = {f"aiv_vec_{n}_ratio": ratio * s for n, s in shares.items()}
        return {"aiv_vec_ratio": ratio, **types, "aiv_vec_fops": t.vector_flops / t.cores[kind]}
    whole = t.cube_bits == 8
    return {
        "aic_cube_ratio": ratio,
        "aic_cube_fp16_ratio": ratio if t.cube_bits == 16 else 0.0,
        "aic_cube_int8_ratio": ratio if whole else 0.0,
        "aic_cube_fops": t.flops / t.cores[kind],
        "aic_cube_total_instr_number": number,
        "aic_cube_fp_instr_number": 0 if whole else number,
        "aic_cube_int_instr_number": number if whole else 0,
    }


def _vector_types(report: Report) -> dict[str, float]:
    """How the program's vector instructions divide by type, each counted once."""
    counts = {"fp32": 0, "fp16": 0, "int32": 0, "misc": 0}
    spelt: Mapping[str, str] = {"f32": "fp32", "f16": "fp16", "i32": "int32", "u32": "int32"}
    for phase in report.program.phases:
        for fn in phase.functions:
            for s in walk(fn.body):
                if isinstance(s, Instr) and TABLE[s.op].pipe == "V":
                    widest = max(views(s), key=lambda v: v.dtype.bits).dtype.name
                    counts[spelt.get(widest, "misc")] += 1
    total = sum(counts.values()) or 1
    return {n: c / total for n, c in counts.items()}


def _path(report: Report, *paths: str) -> tuple[float, float, float]:
    """KB over all cores, GB/s of one core, percent of the peak, of some paths together."""
    found = [x for x in report.figures.traffic if x.path in paths]
    cores = report.timeline.cores.get("vector" if "UB" in paths[0] else "cube", 1)
    return (
        sum(x.bytes for x in found) / 1024,
        sum(x.gb_s for x in found) / cores,
        100 * max((x.share for x in found), default=0.0),
    )


def _memory(report: Report, kind: CoreKind) -> Row:
    out: Row = {}
    short = SHORT[kind]
    reads = "GM->UB" if kind == "vector" else "GM->L1"
    writes = "UB->GM" if kind == "vector" else "L0C->GM"
    if kind == "vector":
        out["aiv_ub_to_gm_bw(GB/s)"] = _path(report, writes)[1]
        out["aiv_gm_to_ub_bw(GB/s)"] = _path(report, reads)[1]
    else:
        out["aic_l1_read_bw(GB/s)"] = _path(report, "L1->L0A", "L1->L0B")[1]
        out["aic_l1_write_bw(GB/s)"] = _path(report, reads)[1]
    out[f"{short}_main_mem_read_bw(GB/s)"] = _path(report, reads)[1]
    out[f"{short}_main_mem_write_bw(GB/s)"] = _path(report, writes)[1]
    for pipe in names.PIPES[kind]:
        use = report.timeline.pipe(kind, pipe)
        if use and pipe.startswith("MTE"):
            name = names.prefix(kind, pipe)
            out[f"{name}_instructions"] = use.instructions
            out[f"{name}_ratio"] = report.timeline.ratio(kind, pipe)
    out["read_main_memory_datas(KB)"] = _path(report, reads)[0]
    out["write_main_memory_datas(KB)"] = _path(report, writes)[0]
    for path in (reads, writes):
        kb, _, percent = _path(report, path)
        out[f"{path.replace('->', '_to_')}_datas(KB)"] = kb
        out[f"{path.replace('->', '_to_')}_bw_usage_rate(%)"] = percent
    return out


def _memory_l0(report: Report, kind: CoreKind) -> Row:
    """What the Cube reads of L0A and L0B is what was moved there; it reads and writes all of an
    accumulator with every step, which no figure of ours counts."""
    if kind == "vector":
        return {}
    return {
        "aic_l0a_write_bw(GB/s)": _path(report, "L1->L0A")[1],
        "aic_l0b_write_bw(GB/s)": _path(report, "L1->L0B")[1],
        "aic_l0c_read_bw(GB/s)": _path(report, "L0C->GM")[1],
    }


def _memory_ub(report: Report, kind: CoreKind) -> Row:
    if kind == "cube":
        return {}
    return {
        "aiv_ub_read_bw_mte(GB/s)": _path(report, "UB->GM")[1],
        "aiv_ub_write_bw_mte(GB/s)": _path(report, "GM->UB")[1],
    }


def _l2(report: Report, kind: CoreKind) -> Row:
    """The share of the bytes that reach no device memory; over both kinds of cores together."""
    moved = sum(b for p, b in report.timeline.traffic.items() if "GM" in p.split("->"))
    hit = 1 - min(report.timeline.hbm_bytes / moved, 1.0) if moved else 0.0
    return {f"{SHORT[kind]}_total_hit_rate(%)": 100 * hit}


def _conflicts(report: Report, kind: CoreKind) -> Row:
    t = report.timeline
    out: Row = {}
    waiting: tuple[tuple[str, Pipe], ...] = (
        ("cube" if kind == "cube" else "vec", "M" if kind == "cube" else "V"),
        ("mte1", "MTE1"), ("mte2", "MTE2"), ("mte3", "MTE3"),
    )  # fmt: skip
    for name, pipe in waiting:
        use = t.pipe(kind, pipe)
        if use:
            out[f"{SHORT[kind]}_{name}_wait_ratio"] = sum(use.waits.values()) / t.cycles
    if kind == "vector":
        out["aiv_vec_total_cflt_ratio"] = report.figures.conflict_ratio
    return out
