"""Machine code, as an object in memory, to callable addresses in this process.

Goals: objects of this process or of an earlier one, without LLVM. Memory is never writable and
executable at once. Non-goals: making code (codegen.py); keeping it (objcache.py).
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from terrazzo.errors import PlatformError
from terrazzo.targets.cpu import relocate
from terrazzo.targets.cpu.elf import Object
from terrazzo.targets.cpu.link import Image

_loaded: weakref.WeakSet[Module] = weakref.WeakSet()
_MACHINES = {"x86_64": relocate.X86_64, "aarch64": relocate.AARCH64}


class Module:
    """A loaded object. Its code is unmapped when the last reference to it is dropped."""

    def __init__(self, memory: mmap.mmap, addresses: dict[str, int]) -> None:
        _loaded.add(self)
        self._memory = memory
        self._addresses = addresses

    def address(self, symbol: str) -> int:
        """Address of an external symbol of the object; RuntimeError if it has none such."""
        known = self._addresses.get(symbol)
        if known is None:
            raise RuntimeError(f"the object has no symbol `{symbol}`")
        return known

    def function(self, symbol: str, restype: Any, *argtypes: Any) -> Callable[..., Any]:
        """`symbol` as a ctypes function (drops the GIL in a call) that keeps this module alive."""
        bound = ctypes.CFUNCTYPE(restype, *argtypes)(self.address(symbol))
        bound.terrazzo_module = self  # type: ignore[attr-defined]
        return bound


def load(obj: bytes) -> Module:
    """Links an object into this process (0.2 ms); symbols of Python, libc and libm resolve.

    Raises RuntimeError when the bytes are no object that we link or a symbol is missing,
    PlatformError where the system refuses memory for code. Thread-safe.
    """
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise PlatformError(f"CPU architecture {machine} is not supported", "use x86-64 or aarch64")
    parts = Image(Object(obj, _MACHINES[machine]))
    try:
        memory = mmap.mmap(-1, max(parts.size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        image = parts.link(base, _external)
        memory[: len(image)] = bytes(image)
        for span in parts.spans:
            _protect(base + span.offset, span.size, span.protection)
    except OSError as error:
        raise PlatformError(
            f"the system refuses {parts.size:,} bytes of memory for machine code ({error})",
            "allow this program executable memory",
        ) from error
    if machine == "aarch64":
        _clear_cache()(base, base + len(image))
    return Module(memory, {name: base + offset for name, offset in parts.exports.items()})


@cache
def _external(symbol: str) -> int | None:
    """Address of a symbol that the program or a library it was started with defines."""
    try:
        found = ctypes.CDLL(None)[symbol]
    except (AttributeError, ValueError):
        return None
    return ctypes.cast(found, ctypes.c_void_p).value


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _protect(address: int, size: int, protection: int) -> None:
    if _libc().mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), protection):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _clear_cache() -> Callable[[int, int], None]:
    """Makes instruction fetches see what was written, on machines where they do not by themselves:
    the function of the compiler's runtime, which is in the program or in a library of its own."""
    for library in (None, "libgcc_s.so.1"):
        try:
            clear = ctypes.CDLL(library)["__clear_cache"]
        except (OSError, AttributeError):
            continue
        clear.restype, clear.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
        return clear
    raise PlatformError("`__clear_cache` is in no library of this system", "install libgcc")


def _at_exit() -> None:
    # A daemon thread may still run generated code while the interpreter goes: the code stays mapped
    # until the process ends, by references that are never dropped.
    for kept in tuple(_loaded):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


atexit.register(_at_exit)
