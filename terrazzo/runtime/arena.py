"""One block of memory for all the buffers of a step, laid out by `ir.lifetimes` before memory is
asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from terrazzo.errors import MemoryShortage
from terrazzo.ir.lifetimes import Plan
from terrazzo.lang import source
from terrazzo.runtime import cgroups
from terrazzo.targets.cpu.pool import private_memory


def available_memory() -> int:
    """Bytes this process may still take: the system's free memory, within the cgroup's limit."""
    with open("/proc/meminfo") as info:
        fields = dict(line.split(":", 1) for line in info)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    left = cgroups.memory_left()
    return free if left is None else min(free, left)


def check_memory(needed: int, what: str) -> None:
    """Raises MemoryShortage, with both numbers, if `needed` bytes for `what` are not available."""
    available = available_memory()
    if needed > available:
        raise MemoryShortage(
            f"{what} needs {needed:,} B of device memory, {available:,} B are available",
            "choose a shorter context or a smaller model, or free memory",
        )


def give_back() -> None:
    """Let go of the kernels' parsed sources, and return freed heap memory to the system where the C
    library can (glibc): what building a tokenizer or compiling took for a moment shall not count
    against the model for good."""
    source.forget()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


class Arena:
    """The block of a plan: zeroed, page aligned, one mapping; lives as long as any view of it."""

    def __init__(self, layout: Plan, what: str = "the step") -> None:
        """Raises MemoryShortage before anything is asked for."""
        check_memory(layout.size, what)
        self.plan = layout
        self.memory = private_memory(layout.size)

    def view(self, name: str, shape: Sequence[int], dtype: np.dtype | type) -> np.ndarray:
        """The buffer's first bytes as an array (C order). Raises ValueError if it is too small."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        start = self.plan.offsets[name]
        if size > self.plan.sizes[name]:
            raise ValueError(f"buffer {name} has {self.plan.sizes[name]} B, {size} B asked for")
        return self.memory[start : start + size].view(dtype).reshape(shape)
