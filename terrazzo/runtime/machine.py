"""What this machine can do, measured: read bandwidth at a working set, peak of multiply-adds.

Each figure takes 20 to 200 ms; other work on the machine lowers it. Used by `terrazzo doctor`, and
by `terrazzo bench` to say what share of the machine a step gets.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np

from terrazzo.runtime import arena, probes
from terrazzo.targets.cpu import host, jit, objcache, pool
from terrazzo.targets.cpu import isa as cpu_isa

_AIM_S = 0.012  # of one timed run
_RUNS = 5


@dataclass(frozen=True)
class Peaks:
    """Measured at `threads` threads. GB/s = 1e9 bytes/s; GFLOP/s, GOP/s count a multiply-add as 2.

    read_gb_s: by working set in bytes (all threads together). int8_gop_s: u8 x i8 by the
    instruction the micro-kernels use, None where there is none.
    """

    threads: int
    read_gb_s: dict[int, float]
    f32_gflop_s: float
    int8_gop_s: float | None


def read_bandwidth(working_set: int, threads: int) -> float:
    """GB/s of reading `working_set` bytes over and over, split over the threads; best of 5 runs.

    Raises MemoryShortage if the working set does not fit.
    """
    unit = probes.READ_STEP
    share = max(working_set // threads // unit, 1) * unit
    arena.check_memory(share * threads, "measuring the bandwidth")
    data = pool.large_memory(share * threads)
    data[:: os.sysconf("SC_PAGE_SIZE")] = 1  # untouched pages are all one page of zeros
    seconds = _best(_code("read", probes.read_ir()), "read", threads, data, share)
    return share * threads / seconds / 1e9


def stream_bandwidth(inputs: int, size: int, threads: int) -> float:
    """GB/s of a loop that reads `inputs` arrays of `size` bytes and writes one, reads and writes
    counted once each; the better one of plain stores and stores that bypass the caches.

    Raises MemoryShortage if the arrays do not fit.
    """
    unit = probes.READ_STEP
    share = max(size // threads // unit, 1) * unit
    apart = share * threads
    arena.check_memory(apart * (inputs + 1), "measuring the bandwidth")
    data = pool.large_memory(apart * (inputs + 1))
    data[:: os.sysconf("SC_PAGE_SIZE")] = 1
    codes = [_code(f"stream{n}", probes.stream_ir(inputs, n == 1)) for n in range(2)]
    seconds = min(_best(code, "stream", threads, data, share, apart) for code in codes)
    return apart * (inputs + 1) / seconds / 1e9


def f32_peak(threads: int) -> float:
    """GFLOP/s of fused multiply-adds in registers, at the widest vectors used."""
    text, work = probes.fma_ir(cpu_isa.detect())
    return work * threads / _best(_code("fma", text), "fma", threads) / 1e9


def int8_peak(threads: int) -> float | None:
    """GOP/s of the micro-kernels' integer dot in registers; None where it has no instruction."""
    found = probes.int_dot_ir(cpu_isa.detect())
    if found is None:
        return None
    text, work = found
    return work * threads / _best(_code("int_dot", text), "int_dot", threads) / 1e9


def dispatch_floor(phases: int, body_s: float, threads: int, runs: int = 15) -> float:
    """Seconds beyond those inside its phases that a recording of so many takes, median of `runs`.

    All phases are equal work in registers, `body_s` together: what remains is the machine's own
    unrest (interrupts, other guests of the host) and the barriers.
    """
    from terrazzo.runtime.recording import Recording

    text, _ = probes.fma_ir(cpu_isa.detect())
    code = _code("fma", text)
    sinks, table = pool.private_memory(64 * threads), np.zeros(16, np.int64)
    turns = max(round(body_s / phases / _best(code, "fma", threads)), 1)
    table[10:12] = turns, sinks.ctypes.data
    steps = Recording("equal phases")
    for _ in range(phases):
        steps.append("fma", [code.address("fma")], table, keep=(code, sinks))
    steps.finish(threads)
    return statistics.median(p.dispatch_s for p in steps.profiles(runs))


def measure(threads: int, working_sets: tuple[int, ...] = (256 << 10, 96 << 20)) -> Peaks:
    """All figures; about 0.5 s."""
    return Peaks(
        threads,
        {size: read_bandwidth(size, threads) for size in working_sets},
        f32_peak(threads),
        int8_peak(threads),
    )


@cache
def _code(name: str, text: str) -> jit.Module:
    return objcache.module(text, cpu_isa.detect())


def _best(
    code: jit.Module,
    phase: str,
    threads: int,
    data: np.ndarray | None = None,
    share: int = 0,
    apart: int = 0,
) -> float:
    """Seconds of one repetition of `phase`, the least of several timed runs."""
    sinks = pool.private_memory(64 * threads)
    table = np.zeros(16, np.int64)
    table[8:13] = 0 if data is None else data.ctypes.data, share, 1, sinks.ctypes.data, apart
    steps = pool.Program([(code.address(phase), table.ctypes.data)], keep=(code, table, sinks))

    def run() -> None:
        pool.shared().run(steps, threads)

    repetitions = 1
    while True:
        # The least of three: one that lost its core for a while would look long enough.
        took = min(_timed(run) for _ in range(3))
        if took > _AIM_S / 2:
            break
        repetitions = int(min(max(2.0, _AIM_S / max(took, 1e-7)), 1000.0) * repetitions)
        table[10] = repetitions
    return min(took, *(_timed(run) for _ in range(_RUNS - 3))) / repetitions


def _timed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Machine:
    """Facts of this machine and the software on it; memory in bytes."""

    cpu: str
    architecture: str
    system: str
    memory_total: int
    memory_available: int
    python: str
    numpy: str
    llvmlite: str
    llvm: str

    def as_dict(self) -> dict[str, str | int]:
        return asdict(self)


def describe() -> Machine:
    """Reads the facts; measures nothing."""
    return Machine(
        _cpu_model(),
        platform.machine(),
        f"{platform.system()} {platform.release()}",
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        arena.available_memory(),
        sys.version.split()[0],
        np.__version__,
        host.facts().llvmlite,
        host.facts().llvm,
    )


def _cpu_model() -> str:
    """The CPU's name as the kernel has it; LLVM's name where it has none (most ARM systems)."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return host.facts().cpu
