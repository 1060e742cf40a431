"""Leave to use AMX's tile registers: Linux gives their 8 KiB of state to processes that ask.

One request serves all threads of a process and what it forks. Nothing else is needed: a thread's
tiles are configured by the code that uses them (micro_amx.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

_ARCH_PRCTL = 158  # the system call's number on x86-64
_REQ_XCOMP_PERM = 0x1023
_TILE_DATA = 18  # the state's number (Intel SDM, vol. 1, 13.1)


@cache
def refused() -> str:
    """Asks the system; "" if this process may use tiles, else why not."""
    if sys.platform != "linux":
        return f"only known on Linux, this is {sys.platform}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _REQ_XCOMP_PERM, _TILE_DATA) == 0:
        return ""
    number = ctypes.get_errno()
    return f"arch_prctl: {os.strerror(number)}"
