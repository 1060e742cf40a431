"""What the worker pool's generated code asks of the system: sleep, wake, pause, a cycle counter,
and where a thread runs and may run.

Everything that differs between systems and CPUs is here, as LLVM IR text. Supported are Linux on
x86-64 and aarch64; another system needs another `system_ir` only.
"""

from __future__ import annotations

import platform
import sys

from terrazzo.errors import PlatformError

# Numbers from the kernel's own tables (asm/unistd.h): futex(2) and the two private operations.
_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98}
_SCHED_SETAFFINITY_NUMBER = {"x86_64": 203, "aarch64": 122}
_SCHED_GETAFFINITY_NUMBER = {"x86_64": 204, "aarch64": 123}
_GETTID_NUMBER = {"x86_64": 186, "aarch64": 178}
MASK_BYTES = 128  # of a set of CPUs; on machines with more than 1,024 the calls below fail
_WAIT_PRIVATE = 128
_WAKE_PRIVATE = 129

_SYSTEM_IR = """
declare i64 @syscall(i64, ...)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Sleeps while *word == old; may return early for any reason (signal, spurious wake).
define internal void @futex_wait(ptr %word, i32 %old) nounwind {{
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 {wait}, i32 %old,
                                    ptr null, ptr null, i32 0)
  ret void
}}

declare i32 @sched_getcpu()

; The kernel's number of the calling thread.
define internal i64 @thread_number() nounwind {{
  %r = call i64 (i64, ...) @syscall(i64 {gettid})
  ret i64 %r
}}

; The CPUs that a thread may use, to `mask`; whether the system told.
define internal i1 @get_cpus(i64 %thread, ptr %mask) nounwind {{
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 {mask}, i1 false)
  %r = call i64 (i64, ...) @syscall(i64 {get_cpus}, i64 %thread, i64 {mask}, ptr %mask)
  %ok = icmp sgt i64 %r, 0
  ret i1 %ok
}}

; Refused, nothing changes.
define internal void @set_cpus(i64 %thread, ptr %mask) nounwind {{
  %r = call i64 (i64, ...) @syscall(i64 {set_cpus}, i64 %thread, i64 {mask}, ptr %mask)
  ret void
}}

; Wakes at most `many` sleepers of word.
define internal void @futex_wake(ptr %word, i32 %many) nounwind {{
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i32 {wake}, i32 %many,
                                    ptr null, ptr null, i32 0)
  ret void
}}
"""

_CPU_IR = {
    "x86_64": """
declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()

define internal void @pause() nounwind alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}

define i64 @cycles() nounwind {
  %t = call i64 @llvm.readcyclecounter()
  ret i64 %t
}
""",
    # `isb` waits about as long as x86's pause; `yield` is a no-op on most cores. The cycle counter
    # proper traps in user mode on Linux, the virtual timer count does not.
    "aarch64": """
declare void @llvm.aarch64.isb(i32)
declare i64 @llvm.read_volatile_register.i64(metadata)

define internal void @pause() nounwind alwaysinline {
  call void @llvm.aarch64.isb(i32 15)
  ret void
}

define i64 @cycles() nounwind {
  %t = call i64 @llvm.read_volatile_register.i64(metadata !0)
  ret i64 %t
}

!0 = !{!"cntvct_el0"}
""",
}


def system_ir(system: str = sys.platform, machine: str | None = None) -> str:
    """LLVM IR of @futex_wait, @futex_wake, @thread_number, @get_cpus, @set_cpus, @pause and @cycles
    for this system (or the one named).

    Raises PlatformError where there is none.
    """
    machine = machine or platform.machine()
    if system != "linux" or machine not in _CPU_IR:
        raise PlatformError(
            f"the CPU target does not run on {system} {machine}",
            "it runs on Linux x86_64 and Linux aarch64",
        )
    system_calls = _SYSTEM_IR.format(
        futex=_FUTEX_NUMBER[machine],
        wait=_WAIT_PRIVATE,
        wake=_WAKE_PRIVATE,
        mask=MASK_BYTES,
        gettid=_GETTID_NUMBER[machine],
        get_cpus=_SCHED_GETAFFINITY_NUMBER[machine],
        set_cpus=_SCHED_SETAFFINITY_NUMBER[machine],
    )
    return system_calls + _CPU_IR[machine]
