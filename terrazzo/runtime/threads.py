"""How many threads to run on by default: what the system lets this process use, no more.

The least of: the CPUs of the affinity mask (cpusets narrow it too), the cgroup's CPU quota rounded
down, and physical cores (two SMT siblings share one core's vector units); at least 1.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from terrazzo.runtime import cgroups


@dataclass(frozen=True)
class ThreadLimits:
    """What bounds the thread count. quota: CPUs of the cgroup's limit, None if unlimited."""

    online: int
    allowed: int
    cores: int
    quota: float | None

    @property
    def default(self) -> int:
        quota = self.allowed if self.quota is None else int(self.quota)
        return max(1, min(self.allowed, self.cores, quota))

    def explain(self) -> str:
        """One line for `terrazzo doctor`."""
        quota = "none" if self.quota is None else f"{self.quota:g} CPUs"
        return (
            f"{self.default} threads: {self.online} CPUs online, {self.allowed} allowed to this "
            f"process, {self.cores} physical cores among them, cgroup quota {quota}"
        )


def limits(sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> ThreadLimits:
    """The limits of this process, read afresh (an affinity may change while it runs)."""
    allowed = os.sched_getaffinity(0)
    cores = {_core(sys, cpu) for cpu in allowed}
    return ThreadLimits(
        os.cpu_count() or len(allowed), len(allowed), len(cores), cgroups.cpu_quota(proc)
    )


def default_threads() -> int:
    """The thread count used when none is asked for; cheap to call (µs), follows the affinity."""
    return _default(frozenset(os.sched_getaffinity(0)))


@cache
def _default(allowed: frozenset[int]) -> int:
    return limits().default


def explain() -> str:
    """Why `default_threads` is what it is, in one line."""
    return limits().explain()


def _core(sys: Path, cpu: int) -> str:
    """Name of a CPU's physical core: the list of its SMT siblings (the CPU itself if unknown)."""
    topology = sys / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    try:
        return topology.read_text().strip() or str(cpu)
    except OSError:
        return str(cpu)
