"""The object cache: machine code on disk, under a key of everything that shaped it.

A file is `<key>.o`, sealed (sealed.py): this is code that will be executed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from terrazzo.targets.cpu import apart, cachefile, host, jit, sealed

KIND = "objects"


@cache
def source_hash() -> bytes:
    """Hash of the compiler's own sources: terrazzo/{ir,lang,targets/cpu}, names and contents."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for part in ("ir", "lang", "targets/cpu"):
        for path in sorted(package.joinpath(part).rglob("*.py")):
            text = path.read_bytes()
            digest.update(f"{path.relative_to(package)} {len(text)}\n".encode())
            digest.update(text)
    return digest.digest()


def make_key(*parts: str) -> str:
    """Key of `parts`, all that shapes the object (IR text, instruction set): 64 hex digits.

    Adds the compiler's sources and LLVM's version; does not depend on the Python in use.
    """
    digest = hashlib.sha256(source_hash())
    for part in (host.facts().llvmlite, host.facts().llvm, *parts):
        data = part.encode()
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


def get_or_build(key: str, build: Callable[[], bytes]) -> bytes:
    """The object stored under `key`, else what `build`, a picklable call, makes, stored for the
    next time."""

    def build_in_room() -> bytes:
        _make_room()
        return apart.run(build)

    return sealed.get_or_build(KIND, f"{key}.o", key, build_in_room)


@cache
def _make_room() -> None:
    """Once a process, and only if it compiles at all."""
    cachefile.trim(KIND, cachefile.OBJECT_BYTES)


def module(ir_text: str, isa: host.TargetIsa) -> jit.Module:
    """`ir_text` compiled for `isa` (or taken from the cache) and loaded."""

    return jit.load(
        get_or_build(make_key(ir_text, isa.cpu, isa.features), partial(_compile, ir_text, isa))
    )


def _compile(ir_text: str, isa: host.TargetIsa) -> bytes:
    from terrazzo.targets.cpu import codegen

    return codegen.compile_object(ir_text, isa)
