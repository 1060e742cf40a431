"""What stays resident of the tokenizer and of a loaded model, in processes of their own."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

from terrazzo.models import store

MIB = 1 << 20
# Huge pages off: where the system gives them unasked, a touched byte can count as two megabytes.
_BEGIN = """
import ctypes, gc, json, sys
libc = ctypes.CDLL(None)
libc.prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE
def status(name):
    gc.collect()
    libc.malloc_trim(0)
    with open("/proc/self/status") as lines:
        return next(int(x.split()[1]) << 10 for x in lines if x.startswith(name + ":"))
"""
_TOKENIZER = """
from terrazzo.models.gguf import GGUF
from terrazzo.models.tokenizer import Tokenizer
gguf = GGUF.open(sys.argv[1])
before = status("RssAnon")
tokenizer = Tokenizer.from_gguf(gguf)
print(json.dumps(status("RssAnon") - before))
"""
_MODEL = """
from terrazzo.engine import model as engine
imports = status("VmHWM")
model = engine.load(sys.argv[1], threads=2)
weights = model.step.weights.nbytes
loaded = status("VmRSS") - imports - weights
ids = [1 + i % 997 for i in range(300)]
model.generate_ids(ids, 20, ignore_eos=True)
used = model.kv_bytes * (len(ids) + 20) // model.context
print(json.dumps([loaded, status("VmHWM") - imports - weights - used]))
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="needs Linux's /proc and glibc",
)


def measured(script: str) -> list[int] | int:
    path = str(store.pull("smollm2"))
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + script, path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tokenizer() -> None:
    """12 MiB measured: 8 of the library that merges, 0.6 of our vocabulary, 3 of Python's arenas
    that a few objects hold on to. With lists of strings it was 20."""
    growth = measured(_TOKENIZER)
    assert isinstance(growth, int)
    assert growth < 16 * MIB


def test_model() -> None:
    """Beyond imports, weights and the keys and values in use: 23 and 27 MiB measured with LLVM in
    the process. The first run may have to compile and to repack; the second counts."""
    measured(_MODEL)
    second = measured(_MODEL)
    assert isinstance(second, list)
    loaded, peak = second
    assert loaded < 28 * MIB
    assert peak < 32 * MIB
