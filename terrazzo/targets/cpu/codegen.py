"""LLVM IR text to machine code: llvmlite, no C compiler. The one module that imports LLVM, itself
imported only when something is not in the cache.

Goals: one place that talks to LLVM's code generator. Non-goals: an optimiser pipeline (measured: no
gain on our IR, and twice the compile time); deciding anything about the code; loading it (jit.py).
"""

from __future__ import annotations

import os
import threading
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from terrazzo.targets.cpu.host import Facts, TargetIsa

_lock = threading.Lock()  # held around every use of LLVM
_initialized = False


def facts() -> Facts:
    """Asks LLVM; what `host.facts` remembers."""
    with _lock:
        return Facts(
            str(llvm.get_host_cpu_name()),
            str(llvm.get_host_cpu_features().flatten()),
            llvmlite.__version__,
            ".".join(map(str, llvm.llvm_version_info)),
        )


def _initialize() -> None:
    global _initialized
    if not _initialized:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # the runtime's own code holds inline assembly
        _initialized = True


# Machines and modules are closed by `with`: if it were done when they are deleted, Python would
# print and forget a Ctrl-C that comes meanwhile.


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


def compile_object(ir_text: str, isa: TargetIsa, triple: str | None = None) -> bytes:
    """Machine code of `ir_text` for `isa` as a relocatable object for `triple` (default: this
    process's).

    Code generation at level 3, no IR passes: the IR is emitted as it shall run. Raises RuntimeError
    with LLVM's message when the text does not parse or verify (a defect of ours).
    """
    with _lock, _machine(isa, triple) as machine, _module(ir_text, machine) as module:
        return machine.emit_object(module)


def assembly(ir_text: str, isa: TargetIsa, triple: str | None = None) -> str:
    """Assembly text of `ir_text` for `triple` (default: this process's)."""
    with _lock, _machine(isa, triple) as machine, _module(ir_text, machine) as module:
        return machine.emit_assembly(module)


# A fork waits until no thread is inside LLVM: a lock held there would stay locked in the child.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
