"""Noting kernel calls down in a recording instead of running them, and planning their buffers.

A buffer asked for with `buffer` has addresses from the start but no memory: when the recording is
finished, all of them are placed in one arena by their lifetimes (first to last launch that uses
them) and the launch tables are rewritten to the new addresses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from terrazzo.ir.lifetimes import Buffer, Plan, plan
from terrazzo.lang.kernel import Kernel
from terrazzo.runtime.arena import Arena
from terrazzo.runtime.launch import Launch, prepare
from terrazzo.runtime.recording import Recording
from terrazzo.targets.cpu.frame import FIRST_SLOT
from terrazzo.targets.cpu.pool import private_memory


@dataclass
class _Buffer:
    """`array` reserves addresses only: its pages are never touched. `uses`: (launch, table
    slot)."""

    array: np.ndarray
    uses: list[tuple[int, int]] = field(default_factory=list)


class Recorder:
    """`add` takes a kernel's arguments as a call does; arrays of the caller's own must stay alive.

    `finish` makes the recording; then `plan` tells how the buffers were placed.
    """

    def __init__(self, name: str, threads: int) -> None:
        self.threads = threads
        self.recording = Recording(name, may_shrink=True)
        self.plan: Plan = plan(())
        self._buffers: list[_Buffer] = []
        self._starts: list[int] = []  # their addresses in order, and the buffers in that order
        self._sorted: list[_Buffer] = []
        self._launches: list[tuple[str, Launch, dict[str, list[int]], dict[str, Any]]] = []

    def buffer(self, shape: Sequence[int], dtype: np.dtype | type) -> np.ndarray:
        """An intermediate result: only kernels of this recording read and write it."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        memory = private_memory(size)
        buffer, start = _Buffer(memory), memory.ctypes.data
        self._buffers.append(buffer)
        at = bisect_right(self._starts, start)
        self._starts.insert(at, start)
        self._sorted.insert(at, buffer)
        return memory.view(dtype).reshape(shape)

    def add(self, kernel: Kernel, vary: Mapping[str, str], **args: Any) -> None:
        """`vary`: kernel dim -> name under which `Recording.set` changes its extent, between 0 and
        the arrays' own; dims the kernel does not have are passed over."""
        launch = prepare(kernel, (), args)
        dims: dict[str, list[int]] = {}
        for dim, name in vary.items():
            if dim in launch.dims:
                dims.setdefault(name, []).extend(launch.dims[dim])
        for slot, s in enumerate(launch.code.slots, FIRST_SLOT):
            if s.kind == "ptr":
                buffer = self._owner(int(launch.table[slot]))
                if buffer is not None:
                    buffer.uses.append((len(self._launches), slot))
        self._launches.append((kernel.name, launch, dims, args))

    def _owner(self, address: int) -> _Buffer | None:
        n = bisect_right(self._starts, address) - 1
        if n >= 0 and address < self._starts[n] + self._sorted[n].array.nbytes:
            return self._sorted[n]
        return None

    def _used(self) -> list[tuple[str, _Buffer]]:
        """The buffers that any launch takes, and their names in the plan."""
        return [(str(n), b) for n, b in enumerate(self._buffers) if b.uses]

    def _place(self, used: Sequence[tuple[str, _Buffer]]) -> Plan:
        return plan([Buffer(n, b.array.nbytes, b.uses[0][0], b.uses[-1][0]) for n, b in used])

    def finish(self) -> Recording:
        """Place the buffers and pack the launches. Raises MemoryShortage."""
        used = self._used()
        self.plan = self._place(used)
        arena = Arena(self.plan, f"the buffers of {self.recording.name}")
        for name, b in used:
            move = arena.memory.ctypes.data + self.plan.offsets[name] - b.array.ctypes.data
            for launch, slot in b.uses:
                self._launches[launch][1].table[slot] += move
        for name, launch, dims, args in self._launches:
            self.recording.append(
                name,
                launch.code.phases,
                launch.table,
                dims,
                scratch=launch.scratch,
                keep=(launch.code, args, arena),
                code=launch.code,
            )
        self._buffers, self._starts, self._sorted, self._launches = [], [], [], []
        self.recording.finish(self.threads)
        return self.recording
