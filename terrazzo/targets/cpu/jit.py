"""LLVM IR text to machine code, and machine code to callable addresses: llvmlite, no C compiler.

Goals: one place that talks to LLVM's code generator and linker; objects that can be stored and
loaded later by another process. Non-goals: an optimiser pipeline (measured: no gain on our IR, and
twice the compile time); deciding anything about the code.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import llvmlite.binding as llvm


class TargetIsa(Protocol):
    """What the code generator needs to know of an instruction set (see targets/cpu/isa.py)."""

    @property
    def name(self) -> str: ...

    @property
    def cpu(self) -> str: ...

    @property
    def features(self) -> str: ...


class HostIsa:
    """This machine's instruction set as LLVM detects it; for the runtime's own code."""

    def __init__(self) -> None:
        with _lock:
            _initialize()
        self.name = "host"
        self.cpu = str(llvm.get_host_cpu_name())
        self.features = str(llvm.get_host_cpu_features().flatten())


_lock = threading.Lock()  # held around every use of LLVM
_names = itertools.count()
_lljit: llvm.LLJIT | None = None
_initialized = False
_loaded: weakref.WeakSet[Module] = weakref.WeakSet()


def _initialize() -> None:
    global _initialized
    if not _initialized:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # the runtime's own code holds inline assembly
        _initialized = True


def _machine(isa: TargetIsa, triple: str | None) -> Any:
    _initialize()
    if triple is not None:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple or llvm.get_process_triple())
    return target.create_target_machine(
        cpu=isa.cpu, features=isa.features, opt=3, reloc="pic", codemodel="small"
    )


def _module(ir_text: str, machine: Any) -> Any:
    module = llvm.parse_assembly(ir_text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return module


def compile_object(ir_text: str, isa: TargetIsa) -> bytes:
    """Machine code of `ir_text` for `isa` as a relocatable object.

    Code generation at level 3, no IR passes: the IR is emitted as it shall run. Raises RuntimeError
    with LLVM's message when the text does not parse or verify (a defect of ours).
    """
    with _lock:
        machine = _machine(isa, None)
        return machine.emit_object(_module(ir_text, machine))


def assembly(ir_text: str, isa: TargetIsa, triple: str | None = None) -> str:
    """Assembly text of `ir_text` for `triple` (default: this process's)."""
    with _lock:
        machine = _machine(isa, triple)
        return machine.emit_assembly(_module(ir_text, machine))


class Module:
    """A loaded object. Its code is unmapped when the last reference to it is dropped."""

    def __init__(self, jit: llvm.LLJIT, library: str, tracker: Any) -> None:
        _loaded.add(self)
        self._jit = jit
        self._library = library
        self._trackers: list[Any] = [tracker]
        self._addresses: dict[str, int] = {}

    def address(self, symbol: str) -> int:
        """Address of an external symbol of the object; RuntimeError if it has none such."""
        known = self._addresses.get(symbol)
        if known is None:
            with _lock:
                tracker = self._jit.lookup(self._library, symbol)
            self._trackers.append(tracker)
            known = self._addresses[symbol] = int(tracker[symbol])
        return known

    def function(self, symbol: str, restype: Any, *argtypes: Any) -> Callable[..., Any]:
        """`symbol` as a ctypes function (drops the GIL in a call) that keeps this module alive."""
        bound = ctypes.CFUNCTYPE(restype, *argtypes)(self.address(symbol))
        bound.terrazzo_module = self  # type: ignore[attr-defined]
        return bound


def load(obj: bytes) -> Module:
    """Links an object into this process (0.1 to 0.2 ms); symbols of libc and libm resolve.

    Raises RuntimeError when the bytes are no object or a symbol is missing. Thread-safe.
    """
    global _lljit
    with _lock:
        if _lljit is None:
            _initialize()
            _lljit = llvm.create_lljit_compiler()
        library = f"terrazzo{next(_names)}"
        builder = llvm.JITLibraryBuilder().add_object_img(obj).add_current_process()
        return Module(_lljit, library, builder.link(_lljit, library))


def _at_exit() -> None:
    # A daemon thread may still run generated code while the interpreter goes: the code stays mapped
    # until the process ends, by references that are never dropped.
    for kept in (_lljit, *_loaded):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


atexit.register(_at_exit)
# A fork waits until no thread is inside LLVM: a lock held there would stay locked in the child.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
