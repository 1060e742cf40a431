"""`terrazzo doctor`: what this machine offers, and what was chosen because of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from terrazzo.cli import options, terminal

SMALL, LARGE = 256 << 10, 96 << 20  # working sets: a core's own cache, and beyond the shared ones


def command(threads: options.Threads = None, json: options.Json = False) -> None:
    """Say what CPU features, threads and memory there are, measure them, and name folders and
    versions."""
    with terminal.progress("measuring this machine"):
        found = examine(threads)
    terminal.print_json(found) if json else report(found)


def examine(threads: int | None) -> dict[str, Any]:
    """The facts and the figures."""
    from terrazzo import __version__
    from terrazzo.models import store
    from terrazzo.runtime import machine
    from terrazzo.runtime import threads as thread_count
    from terrazzo.targets.ascend.device import survey
    from terrazzo.targets.cpu import cachefile, isa

    npu = survey()
    best = isa.detect()
    count = thread_count.default_threads() if threads is None else threads
    peaks = machine.measure(count, (SMALL, LARGE))
    return {
        "terrazzo": __version__,
        "machine": machine.describe().as_dict(),
        "features": sorted(isa.host_features()),
        "isa": {
            "name": best.name,
            "why": best.why(),
            "f32_lanes": best.lanes,
            "f32_tiles": [list(tile) for tile in best.f32_tiles],
            "int_dot": best.int_dot,
            "int_lanes": best.int_lanes,
            "int_tiles": [list(tile) for tile in best.int_tiles],
            "formats": best.instructions(),
            "masked": list(best.masked),
            "unused": isa.unused(best),
        },
        "threads": {"default": thread_count.default_threads(), "why": thread_count.explain()},
        "measured": {
            "threads": peaks.threads,
            "read_bytes_per_s": {str(size): rate * 1e9 for size, rate in peaks.read_gb_s.items()},
            "f32_flop_per_s": peaks.f32_gflop_s * 1e9,
            "int8_op_per_s": None if peaks.int8_gop_s is None else peaks.int8_gop_s * 1e9,
        },
        "ascend": {
            "npus": npu.count,
            "soc": npu.soc or None,
            "why_none": npu.why or None,
            "hivmc": shutil.which("hivmc"),
        },
        "folders": {
            name: {"path": str(path), "state": _state(path)}
            for name, path in (("cache", cachefile.root()), ("models", store.models_folder()))
        },
    }


def _state(folder: Path) -> str:
    """Whether a folder can be used; it may well not be there yet."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return f"cannot be made: {place} is no folder"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"cannot be written: {place} belongs to somebody else"
    return "writable" if place == folder else "made when first needed"


# Of the dozens of features a CPU lists, those that decide something here.
TELLING = (
    "sse4.2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avxvnni",
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512vl",
    "avx512vnni",
    "avx512bf16",
    "avx512fp16",
    "amx-int8",
    "amx-bf16",
    "neon",
    "dotprod",
    "i8mm",
    "bf16",
    "sve",
)


def report(r: dict[str, Any]) -> None:
    """The same for a person, a line a fact."""
    m, isa, measured = r["machine"], r["isa"], r["measured"]
    has = [name for name in TELLING if name in r["features"]]
    rates = ", ".join(
        f"{rate / 1e9:.1f} GB/s from {terminal.nbytes(int(size))}"
        for size, rate in measured["read_bytes_per_s"].items()
    )
    ints = measured["int8_op_per_s"]
    peak = f"{measured['f32_flop_per_s'] / 1e9:.0f} GFLOP/s in f32"
    peak += f", {ints / 1e9:.0f} GOP/s in int8" if ints else ", no integer dot product"
    rows = [
        ("terrazzo", r["terrazzo"]),
        ("CPU", f"{m['cpu']} ({m['architecture']}, {m['system']})"),
        ("features", " ".join(has) or "none that is used"),
        ("chosen", isa["why"]),
        ("masked", " ".join(isa["masked"]) or "nothing"),
        ("unused", " ".join(isa["unused"]) or "nothing"),
        (
            "micro-kernels",
            f"f32: {isa['f32_lanes']} lanes, tiles {_tiles(isa['f32_tiles'])} (rows × panels of"
            f" 16); low-bit: {isa['int_dot']}, {isa['int_lanes']} lanes, tiles"
            f" {_tiles(isa['int_tiles'])}",
        ),
        *(("  " + name, how) for name, how in isa["formats"].items()),
        ("threads", r["threads"]["why"]),
        ("reads", f"{rates}, on {measured['threads']} threads"),
        ("peak", f"{peak}, on {measured['threads']} threads"),
        (
            "memory",
            f"{terminal.nbytes(m['memory_available'])} available of"
            f" {terminal.nbytes(m['memory_total'])}",
        ),
        ("NPU", _npu(r["ascend"])),
        *((name, f"{at['path']} ({at['state']})") for name, at in r["folders"].items()),
        (
            "versions",
            f"Python {m['python']}, NumPy {m['numpy']}, llvmlite {m['llvmlite']}"
            f" (LLVM {m['llvm']})",
        ),
    ]
    for name, text in rows:
        print(f"{name:<15}{text}")


def _npu(found: dict[str, Any]) -> str:
    npus = f"{found['npus']} × {found['soc']}" if found["npus"] else f"none: {found['why_none']}"
    return f"{npus}; CANN's hivmc: {found['hivmc'] or 'not on PATH'}"


def _tiles(tiles: list[list[int]]) -> str:
    return " ".join("×".join(map(str, tile)) for tile in tiles)
