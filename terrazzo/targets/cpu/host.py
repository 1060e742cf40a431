"""What LLVM says of this machine and of itself, without asking it: importing LLVM takes 40 MiB and
60 to 90 ms, and its answers do not change.

They are kept in the cache under a key of all they depend on: the CPU as the system describes it,
and the library that answers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from terrazzo.targets.cpu import apart, sealed

KIND = "host"
_VERSION = 1  # of what a file holds: the fields of Facts, one a line
_CPU_LINES = {
    "vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """LLVM's name of this CPU and its features (`+avx2,-avx512f,...`, as far as the system lets us
    use them); versions of llvmlite and LLVM."""

    cpu: str
    features: str
    llvmlite: str
    llvm: str


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
        self.name = "host"
        self.cpu = facts().cpu
        self.features = facts().features


@cache
def facts() -> Facts:
    """Taken from the cache if it can be, asked of LLVM the first time on a machine."""
    key = _key()
    ask = partial(apart.run, _ask)
    told = ask() if key is None else sealed.get_or_build(KIND, f"{key[:32]}.bin", key, ask)
    return Facts(*told.decode().split("\n"))


def _ask() -> bytes:
    from terrazzo.targets.cpu import codegen

    return "\n".join(astuple(codegen.facts())).encode()


def _key() -> str | None:
    """Hash of all that the answers depend on; None if the system does not tell that."""
    package = find_spec("llvmlite")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent
    try:
        library = (folder / "binding" / "libllvmlite.so").stat()
        version = (folder / "_version.py").read_bytes()
        lines = "\n".join(_cpu())
    except OSError:
        return None
    digest = hashlib.sha256(version)
    digest.update(f"{_VERSION} {folder} {library.st_size} {library.st_mtime_ns}\n".encode())
    digest.update(f"{os.uname().machine}\n{lines}".encode())
    return digest.hexdigest()


def _cpu() -> Iterator[str]:
    """What tells one model of CPU from another in the system's description, without clock rates.

    The first processor's part where all are equal (x86); ARM systems may have two kinds.
    """
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        one_is_enough = os.uname().machine == "x86_64"
        seen: set[str] = set()
        for line in file:
            name, _, _ = line.partition(":")
            if name.strip() in _CPU_LINES and line not in seen:
                seen.add(line)
                yield line
            elif one_is_enough and not name.strip():
                return
