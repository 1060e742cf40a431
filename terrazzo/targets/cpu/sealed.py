"""Files of the cache that are read whole, under a header that tells whether they are what was
written.

A 64-byte header, then the content:

    8 magic | u32 version | u32 zero | u64 length | 32 sha256(key, content) | 8 zero

What is in them will be executed or believed: they are read only from a file that is ours alone
(cachefile.py) and whose hash is right; the hash covers the key, so a renamed file does not pass
either.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

from terrazzo.targets.cpu import cachefile

_MAGIC = b"TERRAOBJ"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQ32s8x")


def get_or_build(kind: str, name: str, key: str, build: Callable[[], bytes]) -> bytes:
    """The content of file `name` in the cache's folder `kind` if it was stored under `key`, else
    what `build` makes, stored for the next time."""
    folder = cachefile.folder(kind)
    if folder is None:
        return build()
    path = folder / name
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


def _hash(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()


def _read(path: Path, key: str) -> bytes | None:
    fd = cachefile.open_own(path)
    if fd is None:
        return None
    with open(fd, "rb") as file:
        cachefile.touch(fd)
        data = file.read()
    content = data[_HEADER.size :]
    header = data[: _HEADER.size]
    if header != _HEADER.pack(_MAGIC, _VERSION, 0, len(content), _hash(key, content)):
        cachefile.reject(path, "is damaged")
        return None
    return content
