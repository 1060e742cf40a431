"""Small compiled phases for the runtime's tests, written straight in LLVM IR."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np

from terrazzo.targets.cpu import codegen, host, jit

# Kernel slots: 8 is a pointer, 9 a number.
PHASES = """
define void @noop(ptr %t, i32 %tid, i32 %n) nounwind { ret void }

; out[tid] += 1; touches the work counter
define void @count(ptr %t, i32 %tid, i32 %n) nounwind {
  %c = getelementptr i64, ptr %t, i64 3
  %x = atomicrmw add ptr %c, i64 1 monotonic
  %o = getelementptr i64, ptr %t, i64 8
  %base = load ptr, ptr %o
  %t64 = zext i32 %tid to i64
  %p = getelementptr i64, ptr %base, i64 %t64
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  ret void
}

; out[tid] = the CPU it runs on
declare i32 @sched_getcpu()
define void @where(ptr %t, i32 %tid, i32 %n) nounwind {
  %cpu = call i32 @sched_getcpu()
  %cpu64 = sext i32 %cpu to i64
  %o = getelementptr i64, ptr %t, i64 8
  %base = load ptr, ptr %o
  %t64 = zext i32 %tid to i64
  %p = getelementptr i64, ptr %base, i64 %t64
  store i64 %cpu64, ptr %p
  ret void
}

; out[tid] += 1; a share of a million loads; thread 1 then sleeps for slot 9 µs, if not 0
declare i32 @usleep(i32)
define void @laggard(ptr %t, i32 %tid, i32 %n) nounwind {
entry:
  call void @count(ptr %t, i32 %tid, i32 %n)
  %m = getelementptr i64, ptr %t, i64 9
  %us = load i64, ptr %m
  %us32 = trunc i64 %us to i32
  %share = udiv i32 1000000, %n
  br label %next
next:
  %i = phi i32 [ 0, %entry ], [ %j, %next ]
  %x = load volatile i64, ptr %m
  %j = add i32 %i, 1
  %more = icmp slt i32 %j, %share
  br i1 %more, label %next, label %done
done:
  %second = icmp eq i32 %tid, 1
  %late = icmp ne i64 %us, 0
  %rest = and i1 %second, %late
  br i1 %rest, label %sleep, label %out
sleep:
  %r = call i32 @usleep(i32 %us32)
  br label %out
out:
  ret void
}

; units of work by the shared counter: out[unit] += 1 for unit < slot 9
define void @dynamic(ptr %t, i32 %tid, i32 %n) nounwind {
entry:
  %c = getelementptr i64, ptr %t, i64 3
  %o = getelementptr i64, ptr %t, i64 8
  %base = load ptr, ptr %o
  %m = getelementptr i64, ptr %t, i64 9
  %units = load i64, ptr %m
  br label %next
next:
  %u = atomicrmw add ptr %c, i64 1 monotonic
  %more = icmp slt i64 %u, %units
  br i1 %more, label %work, label %out
work:
  %p = getelementptr i64, ptr %base, i64 %u
  %v = load i64, ptr %p
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %p
  br label %next
out:
  ret void
}

; every thread reads what its neighbour wrote in the phase before: out[n*parity + tid] =
; in[n*(1-parity) + (tid+1)%n] + 1, parity = slot 9; wrong if a barrier leaks
define void @shift(ptr %t, i32 %tid, i32 %n) nounwind {
  %o = getelementptr i64, ptr %t, i64 8
  %base = load ptr, ptr %o
  %m = getelementptr i64, ptr %t, i64 9
  %parity = load i64, ptr %m
  %n64 = zext i32 %n to i64
  %t64 = zext i32 %tid to i64
  %next = add i64 %t64, 1
  %wrapped = urem i64 %next, %n64
  %other = sub i64 1, %parity
  %ro = mul i64 %other, %n64
  %ri = add i64 %ro, %wrapped
  %rp = getelementptr i64, ptr %base, i64 %ri
  %v = load i64, ptr %rp
  %v1 = add i64 %v, 1
  %wo = mul i64 %parity, %n64
  %wi = add i64 %wo, %t64
  %wp = getelementptr i64, ptr %base, i64 %wi
  store i64 %v1, ptr %wp
  ret void
}

; spins slot 9 times
define void @busy(ptr %t, i32 %tid, i32 %n) nounwind {
entry:
  %m = getelementptr i64, ptr %t, i64 9
  %times = load i64, ptr %m
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %j, %next ]
  %x = load volatile i64, ptr %m
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %times
  br i1 %more, label %next, label %out
out:
  ret void
}

; thread 0 reports fault 1 with detail slot 9
define void @fault(ptr %t, i32 %tid, i32 %n) nounwind {
entry:
  %first = icmp eq i32 %tid, 0
  br i1 %first, label %report, label %out
report:
  %c = getelementptr i64, ptr %t, i64 2
  %control = load ptr, ptr %c
  %m = getelementptr i64, ptr %t, i64 9
  %detail = load i64, ptr %m
  %dp = getelementptr i8, ptr %control, i64 8
  store i64 %detail, ptr %dp
  %wp = getelementptr i8, ptr %control, i64 4
  store atomic i32 1, ptr %wp monotonic, align 4
  br label %out
out:
  ret void
}

; scratch[tid * stride] = tid + 1; out[tid] = the address written
define void @scratch(ptr %t, i32 %tid, i32 %n) nounwind {
  %base = load ptr, ptr %t
  %sp = getelementptr i64, ptr %t, i64 1
  %stride = load i64, ptr %sp
  %t64 = zext i32 %tid to i64
  %off = mul i64 %t64, %stride
  %mine = getelementptr i8, ptr %base, i64 %off
  %v = add i64 %t64, 1
  store i64 %v, ptr %mine
  %o = getelementptr i64, ptr %t, i64 8
  %out = load ptr, ptr %o
  %p = getelementptr i64, ptr %out, i64 %t64
  %address = ptrtoint ptr %mine to i64
  store i64 %address, ptr %p
  ret void
}
"""


@cache
def phases() -> jit.Module:
    return jit.load(codegen.compile_object(PHASES, host.HostIsa()))


def phase(name: str) -> int:
    """Address of one of the phases above."""
    return phases().address(name)


def table(pointer: int = 0, number: int = 0) -> np.ndarray:
    """A table for one of the phases above."""
    slots = np.zeros(16, np.int64)
    slots[8:10] = pointer, number
    return slots


def run_script(text: str, timeout: float = 30.0) -> subprocess.CompletedProcess[str]:
    """Runs `text` in a fresh interpreter that can import us and this module."""
    here = Path(__file__).parent
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(here.parent.parent), str(here)]))
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=timeout, env=env
    )
