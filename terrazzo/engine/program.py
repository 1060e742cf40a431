"""What a program of ours takes before it has done anything: Python and what it imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from terrazzo.targets.cpu import apart

_SCRIPT = (
    "import importlib, sys; importlib.import_module(sys.argv[1])\n"
    "print(next(x.split()[1] for x in open('/proc/self/status') if x.startswith('VmRSS:')))"
)


small = apart.compiling
"""Within, nothing is compiled in this process: what LLVM takes is another's."""


@contextmanager
def program_bytes(*modules: str) -> Iterator[Callable[[], int]]:
    """Measures, beside what the block does, the resident bytes of a Python process for each of
    `modules` that has imported it. The call waits for them and gives their sum; at the block's end
    no process is left."""
    running = [
        subprocess.Popen([sys.executable, "-c", _SCRIPT, m], stdout=subprocess.PIPE)
        for m in modules
    ]

    def total() -> int:
        found = [process.communicate()[0] for process in running]
        for process in running:
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, process.args)
        return sum(int(kib) << 10 for kib in found)

    try:
        yield total
    finally:
        for process in running:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
