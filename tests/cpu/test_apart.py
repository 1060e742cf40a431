"""Compiling in another process: the same code, nothing of LLVM left here, errors as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from terrazzo.targets.cpu import apart

SCRIPT = """
import sys
import numpy as np
from terrazzo.kernels.math import add
from terrazzo.targets.cpu import apart
x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
with apart.compiling():
    add(x, x, out)
assert (out == 2 * x).all()
print(*sorted(m for m in sys.modules if m.startswith("llvmlite")))
"""


def test_llvm_stays_out(tmp_path: Path) -> None:
    env = {**os.environ, "TERRAZZO_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout.strip(), done
    assert list(tmp_path.rglob("*.o"))


def test_what_fails_there_fails_here() -> None:
    with apart.compiling():
        assert apart.run(partial(bytes, 3)) == b"\0\0\0"
        with pytest.raises(ValueError, match="negative"):
            apart.run(partial(bytes, -1))
        assert apart.run(partial(bytes, 2)) == b"\0\0"


def test_threads_take_turns() -> None:
    with apart.compiling(), ThreadPoolExecutor(8) as threads:
        calls = [partial(bytes, n) for n in range(200)]
        assert list(threads.map(apart.run, calls)) == [bytes(n) for n in range(200)]


def test_it_may_die() -> None:
    with apart.compiling():
        assert apart.run(partial(bytes, 2)) == b"\0\0"
        assert apart._other is not None and apart._other.process is not None
        apart._other.process.kill()
        apart._other.process.wait()
        assert apart.run(partial(bytes, 1)) == b"\0"
    assert apart._other is None
