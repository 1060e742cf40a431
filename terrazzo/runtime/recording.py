"""Recordings: a model step as a list of kernel launches, made once and replayed by one call.

    r = Recording("decode")
    r.append("rms_norm", phases, table, dims={"rows": [9]}, scratch=4096)
    ...
    r.finish(threads=2)
    r.set("rows", 1)
    r.replay()

A table is the int64 array a compiled phase reads its arguments from. Slots 0 to 7 are the runtime's
(0 scratch of thread 0, 1 scratch bytes per thread, 2 control block, 3 work counter, 0 between
phases), slots 8 and up the kernel's (pointers, sizes, strides, f32 bits).
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from terrazzo.errors import Cancelled, KernelFault
from terrazzo.targets.cpu import pool as cpu_pool
from terrazzo.targets.cpu.compile import Compiled

RESERVED_SLOTS = 8


def scratch_stride(size: int) -> int:
    """Bytes from one thread's scratch to the next: whole pages and two lines more, so that equal
    offsets of different threads map to different sets of a cache."""
    return -(-size // 4096) * 4096 + 128 if size else 0


@dataclass(frozen=True)
class LaunchTime:
    """Time of one launch: seconds the slowest thread spent in each phase's body, summed."""

    name: str
    seconds: float
    phases: int


@dataclass(frozen=True)
class Profile:
    """One timed replay.

    wall_s: the whole call; body_s: time inside kernel bodies of the thread that spent most there;
    dispatch_s: the rest of the wall time (hand-over, barriers, waiting for slower threads).
    """

    launches: tuple[LaunchTime, ...]
    threads: int
    barriers: int
    wall_s: float
    body_s: float

    @property
    def dispatch_s(self) -> float:
        return self.wall_s - self.body_s

    def by_kernel(self) -> dict[str, float]:
        """Seconds per kernel name over all its launches, longest first."""
        total: dict[str, float] = {}
        for launch in self.launches:
            total[launch.name] = total.get(launch.name, 0.0) + launch.seconds
        return dict(sorted(total.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class _Launch:
    name: str
    phases: tuple[int, ...]
    table: np.ndarray
    dims: Mapping[str, tuple[int, ...]]
    scratch: int
    code: Compiled | None


class Recording:
    """Launches appended in order, then `finish`ed; afterwards only `set`, `replay`, `cancel`.

    A recording belongs to one caller: `set` and `replay` are not for two threads at once (replays
    of different recordings take turns by themselves). `cancel` may be called from anywhere.
    """

    def __init__(self, name: str, *, may_shrink: bool = False) -> None:
        """`may_shrink`: see `pool.Program`."""
        self.name, self._may_shrink = name, may_shrink
        self.scratch_bytes = 0  # per thread, the largest any launch asked for
        self._launches: list[_Launch] = []
        self._keep: list[object] = []
        self._values: dict[str, int] = {}
        self._slots: dict[str, np.ndarray] = {}
        self._program: cpu_pool.Program | None = None
        self._next: Recording | None = None
        self._ready = False  # the program is configured for `threads` threads

    def append(
        self,
        name: str,
        phases: Sequence[int],
        table: np.ndarray,
        dims: Mapping[str, Iterable[int]] | None = None,
        *,
        scratch: int = 0,
        keep: object = None,
        code: Compiled | None = None,
    ) -> None:
        """Adds one launch of kernel `name`.

        `phases`: code addresses, run in order with a barrier after each. `table`: int64[slots],
        copied; slots 0 to 3 are filled by `finish`. `dims`: for each named value the slots it
        stands in. `scratch`: bytes per thread. `keep`: anything that must live as long as the
        recording (the loaded module, arrays the table points at). `code`: where the phases come
        from, to say what a fault of theirs means.
        """
        if self._program is not None:
            raise RuntimeError(f"recording {self.name} is finished")
        if not phases or table.ndim != 1 or len(table) < RESERVED_SLOTS:
            raise ValueError(f"launch {name}: {len(phases)} phases, table of shape {table.shape}")
        slots = {dim: tuple(where) for dim, where in (dims or {}).items()}
        for dim, where in slots.items():
            if any(not RESERVED_SLOTS <= slot < len(table) for slot in where):
                raise ValueError(f"launch {name}: {dim} names slots {where} of {len(table)}")
        copy = np.array(table, np.int64)
        self._launches.append(_Launch(name, tuple(phases), copy, slots, scratch, code))
        self.scratch_bytes = max(self.scratch_bytes, scratch)
        self._keep.append(keep)

    def finish(self, threads: int, scratch: np.ndarray | None = None) -> None:
        """Packs the tables; makes scratch for up to `threads` threads, or takes uint8 `scratch`.

        All replays of a process take turns, so recordings may share a scratch of the largest
        `scratch_size(threads)` bytes.
        """
        if self._program is not None:
            raise RuntimeError(f"recording {self.name} is finished")
        self.threads = threads
        if scratch is None:
            scratch = cpu_pool.private_memory(self.scratch_size(threads))
        elif scratch.nbytes < self.scratch_size(threads):
            raise ValueError(f"scratch of {scratch.nbytes} B, need {self.scratch_size(threads)} B")
        padded = [-(-len(launch.table) // 8) * 8 for launch in self._launches]
        starts = np.concatenate(([0], np.cumsum(padded, dtype=np.int64)))
        self._tables = cpu_pool.private_memory(int(starts[-1]) * 8).view(np.int64)
        self._control = cpu_pool.private_memory(64).view(np.int64)
        self._cancel = self._control.view(np.int32)[:1]
        entries: list[tuple[int, int]] = []
        self._owner: list[int] = []  # of each entry: its launch
        slots: dict[str, list[int]] = {}
        for index, launch in enumerate(self._launches):
            start = int(starts[index])
            table = self._tables[start : start + len(launch.table)]
            table[:] = launch.table
            table[:4] = (scratch.ctypes.data, self._stride(), self._control.ctypes.data, 0)
            entries += [(phase, table.ctypes.data) for phase in launch.phases]
            self._owner += [index] * len(launch.phases)
            for dim, where in launch.dims.items():
                slots.setdefault(dim, []).extend(start + slot for slot in where)
        self._slots = {dim: np.array(where, np.int64) for dim, where in slots.items()}
        self._counters = starts[:-1] + 3
        self._starts = starts
        self._keep.append(scratch)
        self._pool = cpu_pool.shared()
        _alive.add(self)
        self._program = cpu_pool.Program(
            entries, self._control, guarded=True, may_shrink=self._may_shrink
        )
        self._launch = self._program.launch

    def _stride(self) -> int:
        return scratch_stride(self.scratch_bytes)

    def scratch_size(self, threads: int) -> int:
        """Bytes of scratch that `threads` threads need for this recording."""
        return self._stride() * threads

    @property
    def launches(self) -> tuple[str, ...]:
        """Kernel names in order."""
        return tuple(launch.name for launch in self._launches)

    @property
    def barriers(self) -> int:
        """Phases of one replay: as many barriers when it runs on more than one thread."""
        return sum(len(launch.phases) for launch in self._launches)

    @property
    def names(self) -> tuple[str, ...]:
        """The values `set` takes."""
        return tuple(self._slots)

    def set(self, name: str, value: int) -> None:
        """Writes `value` (a size, a pointer, f32 bits) to every slot `name` stands in."""
        if self._values.get(name) != value:
            self._tables[self._slots[name]] = value
            self._values[name] = value

    def then(self, other: Recording | None) -> None:
        """From now on a replay runs `other` right after this one, in the same call; None: nothing.

        `other` has as many threads; it may have a follower of its own.
        """
        mine = self._finished()
        if other is self._next:
            return
        if other is None:
            mine.follow(None)
        elif other.threads != self.threads:
            raise ValueError(f"{other.name} has {other.threads} threads, not {self.threads}")
        else:
            self._pool.prepare(other._finished(), other.threads)
            mine.follow(other._program)
        self._next = other

    def _finished(self) -> cpu_pool.Program:
        if self._program is None:
            raise RuntimeError(f"recording {self.name} is not finished")
        return self._program

    def _chain(self) -> list[Recording]:
        return [self, *(self._next._chain() if self._next is not None else ())]

    def replay(self, threads: int | None = None) -> None:
        """Runs the step on `threads` threads (default and most: those of `finish`); one call.

        Raises Cancelled when `cancel` or Ctrl-C stopped it (Python's own handler for Ctrl-C runs
        first and normally raises KeyboardInterrupt instead), KernelFault naming the launch that
        reported one. After either the buffers hold an unfinished step.
        """
        if threads is None and self._ready:
            status = self._launch()
            if not status & 3:
                return
            if status >= 0:
                self._report(status)
        status = self._run(threads)
        if status & 3:
            self._report(status)

    def _run(self, threads: int | None) -> int:
        threads = self._prepare(threads)
        return self._pool.run(self._finished(), threads)

    def _prepare(self, threads: int | None) -> int:
        """Makes the pool ready for this recording and what follows; returns the thread count."""
        self._finished()
        if threads is None:
            threads = self.threads
        elif threads > self.threads:
            raise ValueError(f"recording {self.name} has scratch for {self.threads} threads")
        for part in self._chain():
            self._pool.prepare(part._finished(), threads)
            part._ready = threads == part.threads
        return threads

    def _recover(self) -> None:
        """In a forked child: another thread may have been in the middle of a replay at the fork."""
        self._tables[self._counters] = 0
        self._control[:] = 0

    def _report(self, status: int) -> None:
        before, status = status >> 48, status & (1 << 48) - 1
        if before:
            return self._chain()[before]._report(status)
        done, code = status >> 2, status & 3
        launches = len(self._launches)
        if code == cpu_pool.CANCELLED:
            self._cancel[0] = 0
            at = self._owner[done] if done < len(self._owner) else launches
            raise Cancelled(f"{self.name} was cancelled after {at} of {launches} kernels")
        fault, detail = int(self._control.view(np.int32)[1]), int(self._control[1])
        self._control[:2] = 0
        index = self._owner[max(done - 1, 0)]
        launch, of = self._launches[index], f" (number {index + 1} of {launches} in {self.name})"
        if launch.code is None:
            raise KernelFault(f"kernel {launch.name}{of} reported fault {fault} (detail {detail})")
        from terrazzo.runtime.faults import explain

        table = self._tables[self._starts[index] :]
        raise explain(launch.code, table, fault, detail, of)

    def cancel(self) -> None:
        """Stops the running replay at its next barrier, or the next one before it starts.

        From any thread or signal handler. Takes effect once: the replay it stops clears it; so does
        `resume`.
        """
        self._cancel[0] = 1

    def resume(self) -> None:
        """Takes back a `cancel` that has not stopped anything yet."""
        self._cancel[0] = 0

    def profile(self, threads: int | None = None) -> Profile:
        """Replays once with a clock around every phase, what follows included; raises like
        `replay`."""
        return self.profiles(1, threads)[0]

    def profiles(self, count: int, threads: int | None = None) -> list[Profile]:
        """The same `count` times, one right after the other, as the steps of a generation are."""
        threads = self._prepare(threads)
        chain = self._chain()
        stamps = [
            [np.zeros((max(r._finished().count, 1), threads, 2), np.int64) for r in chain]
            for _ in range(count)
        ]
        walls: list[float] = []
        try:
            for one in stamps:
                for r, s in zip(chain, one, strict=True):
                    r._finished().profile_into(s)
                start = time.perf_counter()
                status = self._launch()
                walls.append(time.perf_counter() - start)
                if status & 3:
                    self._report(status)
        finally:
            for r in chain:
                r._finished().profile_into(None)
        return [self._profile(w, one) for w, one in zip(walls, stamps, strict=True)]

    def _profile(self, wall: float, stamps: list[np.ndarray]) -> Profile:
        chain, cycle = self._chain(), self._pool.cycle_s()
        spent = [(s[:, :, 1] - s[:, :, 0]) * cycle for s in stamps]
        times = tuple(
            time for r, s in zip(chain, spent, strict=True) for time in r._times(s.max(axis=1))
        )
        threads = spent[0].shape[1]
        barriers = sum(r.barriers for r in chain) if threads > 1 else 0
        body = float(np.sum([s.sum(axis=0) for s in spent], axis=0).max())
        return Profile(times, threads, barriers, wall, body)

    def _times(self, phases: np.ndarray) -> list[LaunchTime]:
        """Of each launch, by the seconds of each phase."""
        seconds = np.zeros(len(self._launches))
        np.add.at(seconds, self._owner, phases[: len(self._owner)])
        return [
            LaunchTime(launch.name, float(seconds[i]), len(launch.phases))
            for i, launch in enumerate(self._launches)
        ]


_alive: weakref.WeakSet[Recording] = weakref.WeakSet()


def _after_fork() -> None:
    for recording in _alive:
        recording._recover()


os.register_at_fork(after_in_child=_after_fork)
