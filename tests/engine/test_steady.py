"""The steady loop allocates nothing: counted over decode steps, in Python and below it."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator

import pytest

import terrazzo
from terrazzo.engine.model import Model
from terrazzo.engine.options import Sampling
from terrazzo.models import store
from terrazzo.models.llama import Chunk

SAMPLING = Sampling(temperature=0.7, top_p=0.9, seed=1)
WARM, STEPS = 40, 60
# What generated code may call: none of these takes memory, but for an int of Python a call.
HARMLESS = {
    # kernels
    "memcpy", "sched_getcpu", "memset", "memmove", "fmaf", "rintf", "floorf", "ceilf", "roundevenf",
    # the pool
    "syscall", "sigaction", "pthread_self", "clock_gettime", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyLong_AsVoidPtr", "PyLong_FromLongLong",
}  # fmt: skip


class Steps:
    """Decode steps of a sequence, a token each, with sampling in the same call."""

    def __init__(self, model: Model) -> None:
        self.model, self.at = model, 0
        self.choose = model.sampler.choose([SAMPLING], [[1, 2, 3]])

    def run(self, count: int) -> None:
        m = self.model
        for _ in range(count):
            m.step.run([Chunk(m._pages, [5], self.at)], self.choose)
            self.at += 1


@pytest.fixture
def steps() -> Iterator[Steps]:
    model = terrazzo.load(store.pull("smollm2"), threads=2, context=512)
    found = Steps(model)
    found.run(WARM)
    gc.collect()
    gc.disable()
    yield found
    gc.enable()


def test_steps_keep_no_python_memory(steps: Steps) -> None:
    """Not one block more after many steps: growth over twice as many is the same (what the counting
    itself keeps)."""

    def growth(count: int) -> int:
        before = sys.getallocatedblocks()
        steps.run(count)
        return sys.getallocatedblocks() - before

    growth(1)
    few, many = growth(STEPS), growth(2 * STEPS)
    assert abs(few) < 16 and abs(many - few) < 16, f"{few} and {many} blocks"


def test_a_step_passes_through_little(steps: Steps) -> None:
    """Arrays count too: NumPy reports its memory to tracemalloc. The logits alone would be 192 KiB,
    a row of activations 2 KiB; integers and views of a step are less than that."""
    tracemalloc.start()
    try:
        steps.run(4)
        base = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        steps.run(STEPS)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held - base < 2048, f"{held - base} bytes kept after {STEPS} steps"
    assert peak - base < 8192, f"{peak - base} bytes at a time"


def test_a_generation_keeps_its_tokens_only(steps: Steps) -> None:
    tokens = steps.model._tokens([1, 2, 3], 300, SAMPLING, frozenset())
    for _ in range(20):
        next(tokens)
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            next(tokens)
        grown = tracemalloc.get_traced_memory()[0] - base
    finally:
        tracemalloc.stop()
    # an int of 32 bytes and its place in the two lists of the sequence's tokens, which grow by an
    # eighth at a time
    assert grown < 100 * (32 + 2 * 8) + 2048, f"{grown} bytes for 100 tokens"


def test_steps_keep_no_native_memory(steps: Steps) -> None:
    """The C library's allocator hands out nothing more, and the process maps nothing more."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this C library has no mallinfo2")

    class Info(ctypes.Structure):
        _fields_ = [(f"x{n}", ctypes.c_size_t) for n in range(10)]  # see mallinfo(3)

    libc.mallinfo2.restype = Info

    def taken() -> tuple[int, int]:
        info = libc.mallinfo2()  # x7: bytes in use, x4: bytes mapped
        with open("/proc/self/maps") as maps:
            return info.x7 + info.x4, sum(1 for _ in maps)

    taken()
    steps.run(2)
    before = taken()
    steps.run(STEPS)
    after = taken()
    assert after[0] - before[0] < 1024 and after[1] == before[1], f"{before} -> {after}"


_CALLS = """
import json, os, sys
import terrazzo
from terrazzo.targets.cpu import jit
from terrazzo.targets.cpu.elf import UNDEFINED, Object
objects, called, load = 0, set(), jit.load
def noted(obj):
    global objects
    objects += 1
    symbols = Object(obj, jit._MACHINES[os.uname().machine]).symbols
    called.update(s.name for s in symbols if s.section == UNDEFINED and s.name)
    return load(obj)
jit.load = noted
terrazzo.load(sys.argv[1], threads=1, context=64)
print(json.dumps([objects, sorted(called)]))
"""


def test_generated_code_cannot_allocate() -> None:
    """What the code of a step and of the pool calls outside itself: nothing that takes memory."""
    command = [sys.executable, "-c", _CALLS, str(store.pull("smollm2"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    objects, called = json.loads(done.stdout)
    assert objects > 5 and set(called) <= HARMLESS, set(called) - HARMLESS
