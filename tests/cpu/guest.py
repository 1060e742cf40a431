"""Runs code for 64-bit ARM here: compiled by LLVM for that machine, linked by Debian's cross tools
to a small C program, run by qemu-user.

The arrays live in one piece of memory at a fixed address. The C program maps a copy of it at the
same address, so that the pointers in it hold there too, calls the code, and writes the copy back.
"""

from __future__ import annotations

import ctypes
import mmap
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import terrazzo.lang as tz
from terrazzo.runtime import launch
from terrazzo.targets.cpu import codegen, compile, micro
from terrazzo.targets.cpu import isa as isas
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.lower import lower

TRIPLE = "aarch64-unknown-linux-gnu"
TOOLS = ("aarch64-linux-gnu-gcc", "qemu-aarch64")
PACKAGES = "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
BASE, SIZE = 0x20_0000_0000, 4 << 20
ISAS = [
    isas.cross("neon_i8mm", "generic", "+neon,+dotprod,+i8mm"),
    isas.cross("neon_dot", "generic", "+neon,+dotprod"),
    isas.cross("plain", "generic"),
]

DRIVER = f"""
#include <stdio.h>
#include <sys/mman.h>
void entry(void);
int main(int count, char **names) {{
  char *memory = mmap((void *){BASE:#x}, {SIZE}, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (memory != (char *){BASE:#x}) return 3;
  FILE *file = fopen(names[1], "r+b");
  if (!file || fread(memory, 1, {SIZE}, file) != {SIZE}) return 4;
  entry();
  rewind(file);
  return fwrite(memory, 1, {SIZE}, file) != {SIZE} || fclose(file);
}}
"""


@cache
def _memory() -> np.ndarray:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    fixed = 0x100000  # MAP_FIXED_NOREPLACE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed
    at = libc.mmap(BASE, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    assert at == BASE, f"address {BASE:#x} is not free"
    return np.ctypeslib.as_array((ctypes.c_uint8 * SIZE).from_address(BASE))


_used = 0


def clear() -> None:
    """Forgets all arrays; what is not given out again reads as 0xFF (NaN)."""
    global _used
    _memory()[:] = 0xFF
    _used = 0


def array(x: np.ndarray) -> np.ndarray:
    """A copy of x in the guest's memory, aligned to 64 bytes."""
    global _used
    start, _used = _used, (_used + x.nbytes + 63) // 64 * 64
    assert _used <= SIZE, "the guest's memory is full"
    out = _memory()[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def run(text: str, isa: Isa, body: str) -> None:
    """Runs `body` (calls of functions of the LLVM IR `text`) as the guest; arrays change."""
    text += f"\ndefine void @entry() {{\n{body}\n  ret void\n}}\n"
    with TemporaryDirectory() as folder:
        at = Path(folder)
        (at / "code.o").write_bytes(codegen.compile_object(text, isa, TRIPLE))
        (at / "driver.c").write_text(DRIVER)
        _memory().tofile(at / "memory")
        for command in (
            [TOOLS[0], "-static", "-o", "program", "driver.c", "code.o", "-lm"],
            [TOOLS[1], "-cpu", "max", "program", "memory"],
        ):
            done = subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, f"{command[0]}: {done.returncode} {done.stderr}"
        _memory()[:] = np.fromfile(at / "memory", np.uint8)


def call(isa: Isa, part: micro.Micro, types: str, *args: Any) -> None:
    """As `micro_harness.call`: `types` is of p pointer (an array of this module), i i64, b i1."""
    names = {"p": "ptr", "i": "i64", "b": "i1"}
    given = [
        f"ptr inttoptr (i64 {a.ctypes.data} to ptr)" if t == "p" else f"{names[t]} {int(a)}"
        for t, a in zip(types, args, strict=True)
    ]
    run(micro.module_text([part]), isa, f"  call void @{part.name}({', '.join(given)})")


def kernel(isa: Isa, kernel: tz.Kernel, **args: Any) -> None:
    """Runs a kernel on arrays of this module, on one thread."""
    prepared = launch.prepare(kernel, (), args)
    table = array(prepared.table)
    scratch = array(np.full(prepared.scratch + 128, 0xFF, np.uint8))
    control = array(np.zeros(8, np.int64))
    table[:4] = scratch.ctypes.data, prepared.scratch, control.ctypes.data, 0
    text, phases, _ = lower(compile.prepare(prepared.code.kernel), isa)
    calls = []
    for n, name in enumerate(phases):
        if n:  # between two phases the pool rewinds the counter of units handed out
            calls.append(f"  store i64 0, ptr inttoptr (i64 {table.ctypes.data + 24} to ptr)")
        at = f"ptr inttoptr (i64 {table.ctypes.data} to ptr)"
        calls.append(f"  call void @{name}({at}, i32 0, i32 1)")
    run(text, isa, "\n".join(calls))
    assert not control[:2].any(), "a fault in the guest"
