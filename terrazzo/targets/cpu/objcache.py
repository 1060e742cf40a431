"""The object cache: machine code on disk, under a key of everything that shaped it.

A file is `<key>.o`: a 64-byte header, then the object.

    8 magic | u32 version | u32 zero | u64 length | 32 sha256(key, object) | 8 zero

This is code that will be executed: it is read only from a file that is ours alone (cachefile.py)
and whose hash is right; the hash covers the key, so a renamed file does not pass either.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from terrazzo.targets.cpu import cachefile, jit

KIND = "objects"
_MAGIC = b"TERRAOBJ"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQ32s8x")


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
    versions = (llvmlite.__version__, ".".join(map(str, llvm.llvm_version_info)))
    for part in (*versions, *parts):
        data = part.encode()
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


def get_or_build(key: str, build: Callable[[], bytes]) -> bytes:
    """The object stored under `key`, else what `build` makes, stored for the next time."""
    folder = cachefile.folder(KIND)
    if folder is None:
        return build()
    path = folder / f"{key}.o"
    stored = _read(path, key)
    if stored is not None:
        return stored
    built = build()
    header = _HEADER.pack(_MAGIC, _VERSION, 0, len(built), _hash(key, built))
    try:
        with cachefile.replacing(path) as fd, open(fd, "wb", closefd=False) as file:
            file.write(header + built)
    except OSError as error:
        cachefile.warn_once("write", f"cannot write to the cache ({error}): going on without")
    return built


def module(ir_text: str, isa: jit.TargetIsa) -> jit.Module:
    """`ir_text` compiled for `isa` (or taken from the cache) and loaded."""
    key = make_key(ir_text, isa.cpu, isa.features)
    return jit.load(get_or_build(key, lambda: jit.compile_object(ir_text, isa)))


def _hash(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()


def _read(path: Path, key: str) -> bytes | None:
    fd = cachefile.open_own(path)
    if fd is None:
        return None
    with open(fd, "rb") as file:
        data = file.read()
    content = data[_HEADER.size :]
    header = data[: _HEADER.size]
    if header != _HEADER.pack(_MAGIC, _VERSION, 0, len(content), _hash(key, content)):
        cachefile.reject(path, "is damaged")
        return None
    return content
