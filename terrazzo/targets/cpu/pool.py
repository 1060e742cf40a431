"""The worker pool: threads that run programs of compiled phases, one native call a program.

One pool a process (`shared()`); workers are made when first needed, by pthread_create on generated
code, so the interpreter never sees them. Any Python thread may call `run`; calls take turns. A
forked child starts without workers and makes its own. Workers are joined at exit, before their code
goes.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import mmap
import os
import signal
import threading
import time
import weakref
from collections.abc import Sequence
from functools import cache

import numpy as np

from terrazzo.errors import OptionError, PlatformError
from terrazzo.targets.cpu import host, jit, objcache
from terrazzo.targets.cpu.builtin import builtin, definition
from terrazzo.targets.cpu.pool_ir import (
    HABITS,
    MAILBOXES,
    MASKS,
    MAX_THREADS,
    POOL_BYTES,
    STRIDE,
    pool_ir,
)

DONE, CANCELLED, FAULT = 0, 1, 2
HUGE_PAGE = 2 << 20

# The most a thread spins: at a barrier, waiting for the others' share of one phase; as an idle
# worker, for the caller's next program (sampling and printing a token take some 100 µs). Past that,
# sleeping gives the core to whoever keeps us waiting; a wake-up costs 5 to 50 µs. Threads learn to
# spin less where it is in vain (pool_ir.py).
BARRIER_SPIN_US = 50.0
IDLE_SPIN_US = 500.0
CROWDED_SPIN_US = 1.0  # more threads than cores: the one we wait for may need ours


_main_ident = threading.main_thread().ident or 0


def private_memory(size: int) -> np.ndarray:
    """`size` zeroed bytes, page aligned, not shared with forked children; uint8[size].

    In pages of 2 MiB, where the system has them, if it is that much: in a virtual machine above all
    walks of page tables are dear (a product of 1,024 cubed with its scratch in pages of 4 KiB takes
    1.1 to 1.25 times as long, attention over such a cache 1.5 times).
    """
    if size >= HUGE_PAGE:
        return large_memory(size)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, max(size, 1), flags=flags), np.uint8)[:size]


def large_memory(size: int) -> np.ndarray:
    """As private_memory, in pages of 2 MiB whatever its size.

    Weights gain nothing by it where the file system keeps files in large folios (decode of 96 MB, a
    Xeon with Linux 6.18: equal to mapped files, 5 to 9 % above 4 KiB pages).
    """
    raw = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):  # a system without them
        raw.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(raw, np.uint8)
    start = -memory.ctypes.data % HUGE_PAGE
    return memory[start : start + size]


class Program:
    """Phases to run in order on all threads, a barrier after each.

    `entries` is int64[count, 2]: address of a phase `void (ptr table, i32 tid, i32 threads)` and of
    its table; both must outlive the program: pass what owns them as `keep`. Table slot 3
    must be 0 at the start and is 0 again after each phase. `control` is int64[2] or more (cancel
    and fault words, fault detail; table slot 2 points at it); made here if None.
    `guarded` programs, run on the main thread, are cancelled by Ctrl-C. Those that `may_shrink`,
    whose results do not depend on the thread count, run on the caller alone while that is faster
    (pool_crowd_ir.py).
    """

    def __init__(
        self,
        entries: np.ndarray | Sequence[tuple[int, int]],
        control: np.ndarray | None = None,
        *,
        guarded: bool = False,
        may_shrink: bool = False,
        keep: object = None,
    ) -> None:
        self.entries = np.ascontiguousarray(entries, np.int64).reshape(-1, 2)
        self.count = len(self.entries)
        self.control = np.zeros(8, np.int64) if control is None else control
        self.threads: int | None = None  # as configured last, and the pool's address
        self.pool = 0
        self._keep = keep
        self._next: Program | None = None
        self._fields = private_memory(17 * 8).view(np.int64)
        self._fields[:6] = (
            self.entries.ctypes.data, self.count, 0, self.control.ctypes.data, 0, guarded,
        )  # fmt: skip
        self._fields[14] = may_shrink
        self.address = self._fields.ctypes.data
        self.launch = builtin(_launch(), self.address)

    def configure(self, pool: int, threads: int, barrier_spin: int, idle_spin: int) -> None:
        """For the pool: sets its address, the thread count and the waits (in pauses)."""
        self._fields[2] = threads
        self._fields[6:9] = (barrier_spin, idle_spin, pool)
        self.threads, self.pool = threads, pool

    def follow(self, other: Program | None) -> None:
        """From now on `other`, configured for the same pool and no more threads, runs right after
        this one; None: nothing does."""
        if other is not self._next:
            self._fields[9] = 0 if other is None else other.address
            self._next = other

    def profile_into(self, stamps: np.ndarray | None) -> None:
        """Until called with None, runs write cycle counts to int64[count, threads, 2] `stamps`."""
        self._fields[4] = 0 if stamps is None else stamps.ctypes.data


@cache
def _code() -> jit.Module:
    return objcache.module(pool_ir(), host.HostIsa())


@cache
def _launch():
    return definition(_code(), "launch")


@cache
def _pause_us() -> float:
    """Length of one pause of this CPU in µs (0.01 to 0.1)."""
    pauses = _code().function("pauses", None, ctypes.c_int64)
    pauses(100)
    best = min(_timed(lambda: pauses(500)) for _ in range(3))
    return max(best / 500 * 1e6, 1e-3)


def _timed(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Pool:
    """Up to `threads` threads, the caller's included. Use `shared()`; own pools are for tests."""

    def __init__(
        self,
        threads: int = 1,
        *,
        barrier_spin_us: float = BARRIER_SPIN_US,
        idle_spin_us: float = IDLE_SPIN_US,
    ) -> None:
        code = _code()
        self._stop = code.function("stop", None, ctypes.c_void_p, ctypes.c_int64)
        self._try_lock = code.function("try_lock", ctypes.c_bool, ctypes.c_void_p)
        self._unlock = code.function("unlock", None, ctypes.c_void_p)
        self.cycles = code.function("cycles", ctypes.c_int64)
        self._worker = ctypes.c_void_p(code.address("worker"))
        self._libc = ctypes.CDLL(None)
        self._cycle_s: float | None = None
        self._spins = (barrier_spin_us, idle_spin_us)
        self._memory = private_memory(POOL_BYTES)
        self._words = self._memory.view(np.int64)
        self._address = self._memory.ctypes.data
        self._reset()
        _pools.add(self)
        if threads > 1:
            self._grow(threads)

    def cycle_s(self) -> float:
        """Seconds a count of `cycles`, which profiles are made of, measured once (20 ms)."""
        if self._cycle_s is None:
            marks: list[tuple[float, int]] = []
            for pause in (0.0, 0.02):
                time.sleep(pause)
                self.cycles()  # a first call after a pause takes long
                marks.append((time.perf_counter(), self.cycles()))
            (t0, c0), (t1, c1) = marks
            self._cycle_s = (t1 - t0) / (c1 - c0)
        return self._cycle_s

    def _reset(self) -> None:
        """The state of a pool without workers; what a forked child starts from."""
        self._memory[:] = 0
        self._words[1:3] = (1, _main_ident)
        habits = self._memory[HABITS:MASKS].view(np.int64)
        for habit in (habits, habits[2:]):
            habit[:: STRIDE // 8] = 1 << 40  # at first every spin goes to its limit
        self._handles: list[ctypes.c_ulong] = []
        self._growing = threading.Lock()
        self._closed = False

    @property
    def workers(self) -> int:
        """Threads there are by now, the caller's included."""
        return int(self._words[1])

    def run(self, program: Program, threads: int) -> int:
        """Runs all of `program` on `threads` threads, then what follows it; blocks, dropping the
        GIL.

        Returns phases done * 4 + (DONE, CANCELLED or FAULT) of the program run last, + 2^48 for
        each one complete before; the phase that faulted is the last done. A set cancel or fault
        word stops the program at the next barrier (at once if set before), and is left set. Raises
        OptionError for a thread count outside 1 .. MAX_THREADS.
        """
        self.prepare(program, threads)
        status = program.launch()
        if status < 0:  # closed meanwhile, by another thread at exit
            raise RuntimeError("the worker pool is closed")
        return status

    def prepare(self, program: Program, threads: int) -> None:
        """What `run` does before it can call `program.launch()`; that then returns -1 if the
        threads are there no more (in a forked child)."""
        if program.threads != threads or program.pool != self._address:
            self._configure(program, threads)
        if threads > self.workers:
            self._grow(threads)

    def _configure(self, program: Program, threads: int) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise OptionError(f"threads is {threads}", f"choose 1 to {MAX_THREADS}")
        barrier, idle = self._spins
        if threads > len(os.sched_getaffinity(0)):
            barrier, idle = min(barrier, CROWDED_SPIN_US), min(idle, CROWDED_SPIN_US)
        pause = _pause_us()
        program.configure(self._address, threads, int(barrier / pause), int(idle / pause))

    def _grow(self, threads: int) -> None:
        with self._growing:
            if self._closed:
                raise RuntimeError("the worker pool is closed")
            self._start(threads)

    def _start(self, threads: int) -> None:
        # Workers inherit the mask: signals stay with Python's threads.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            for tid in range(self.workers, threads):
                offset = MAILBOXES + STRIDE * tid
                mail = self._memory[offset : offset + 24]
                mail.view(np.int32)[2] = tid
                mail.view(np.int64)[2] = self._address
                handle = ctypes.c_ulong()
                mailbox = ctypes.c_void_p(self._address + offset)
                failed = self._libc.pthread_create(
                    ctypes.byref(handle), None, self._worker, mailbox
                )
                if failed:
                    raise PlatformError(
                        f"the system refused worker thread {tid} ({os.strerror(failed)})",
                        f"run with threads={tid}",
                    )
                self._handles.append(handle)
                self._words[1] = tid + 1
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)

    def close(self, timeout: float = -1) -> None:
        """Joins the workers, waiting `timeout` s for a running program (-1: for ever)."""
        began = time.monotonic()
        while not self._closed and not self._try_lock(self._address):
            if 0 <= timeout < time.monotonic() - began:
                return
            time.sleep(0.001)
        if self._closed:
            return
        try:
            self._closed = True
            self._stop(self._address, self.workers)
            for handle in self._handles:
                self._libc.pthread_join(handle, None)
            self._handles = []
            self._words[1] = 0  # whoever calls now learns that it is closed
        finally:
            self._unlock(self._address)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_shared: Pool | None = None
_shared_lock = threading.Lock()


def shared() -> Pool:
    """The process's pool; it grows to whatever thread count is asked of it."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Pool()
        return _shared


def _after_fork() -> None:
    global _shared_lock, _main_ident
    _shared_lock = threading.Lock()
    _main_ident = threading.get_ident()  # the thread that forked is the child's main thread
    for pool in _pools:
        pool._reset()


def _at_exit() -> None:
    # A daemon thread may still be inside a program; its code stays mapped (see jit), so leave it.
    for pool in list(_pools):
        pool.close(timeout=1.0)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
