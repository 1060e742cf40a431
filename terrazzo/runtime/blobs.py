"""The blob cache: large arrays (repacked weights) on disk, mapped and not read when used again.

A file is `<family>-<key>.bin`:

    4096 header: 8 magic | u32 version | u32 zero | u64 bytes | 32 sha256(key, bytes, check words)
    data, zero-filled to a multiple of 4096
    check words u32[chunks, 8] of the data (checksum.py)

Owner, permissions, exact size and header are always checked, and so is every byte of the data, by a
checksum that runs at the speed of memory on all threads: it costs about what touching the pages for
the first time costs, which the first token would pay anyway, and shows every flipped bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from terrazzo.runtime.checksum import CHUNK, checksum
from terrazzo.targets.cpu import cachefile
from terrazzo.targets.cpu.pool import private_memory

KIND = "weights"
_MAGIC = b"TERRABLB"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQ32s")
_PAGE = 4096
_POPULATE_READ = 22  # Linux 5.14, MADV_POPULATE_READ; not in Python's mmap yet


def get_or_build(
    key: str,
    size: int,
    build: Callable[[np.ndarray], None],
    *,
    family: str = "",
    threads: int = 1,
) -> np.ndarray:
    """The blob stored under `key` as read-only uint8[size]; `build` fills it the first time.

    `key`: hex digits of a hash over all that shapes the bytes. `build` gets writable zeroed
    uint8[size] and must fill it within the call. `family` (a model's path, say): storing a blob
    deletes older ones of its family. Where the cache cannot be used the blob lives in memory only.
    """
    folder = cachefile.folder(KIND)
    if folder is not None:
        group = hashlib.sha256(family.encode()).hexdigest()[:16]
        path = folder / f"{group}-{key}.bin"
        stored = _map(path, key, size, threads)
        if stored is not None:
            return stored
        made = _store(path, key, size, build, threads)
        if made is not None:
            for old in folder.glob(f"{group}-*.bin"):
                if family and old != path:
                    old.unlink(missing_ok=True)
            return made
    memory = private_memory(size)
    build(memory)
    memory.flags.writeable = False
    return memory


def _layout(size: int) -> tuple[int, int]:
    """Bytes of the data with its fill, and of the whole file."""
    data = -(-size // _PAGE) * _PAGE
    return data, _PAGE + data + -(-data // CHUNK) * 32


def _header(key: str, size: int, checks: np.ndarray) -> bytes:
    digest = hashlib.sha256(f"{key} {size} ".encode() + checks.tobytes()).digest()
    return _HEADER.pack(_MAGIC, _VERSION, 0, size, digest).ljust(_PAGE, b"\0")


def _map(path: Path, key: str, size: int, threads: int) -> np.ndarray | None:
    fd = cachefile.open_own(path)
    if fd is None:
        return None
    try:
        data, whole = _layout(size)
        if os.fstat(fd).st_size != whole:
            cachefile.reject(path, f"has {os.fstat(fd).st_size:,} B of {whole:,} B")
            return None
        view = _mapping(fd, whole, mmap.PROT_READ)
    finally:
        os.close(fd)
    checks = checksum(view[_PAGE : _PAGE + data], threads)
    kept = view[_PAGE + data :].view(np.uint32).reshape(-1, 8)
    if view[:_PAGE].tobytes() != _header(key, size, checks) or not np.array_equal(kept, checks):
        cachefile.reject(path, "is damaged")
        return None
    return view[_PAGE : _PAGE + size]


def _mapping(fd: int, size: int, allowed: int) -> np.ndarray:
    """The file's pages, of 2 MiB where the file system has such (what is in memory in smaller ones
    stays so): in a virtual machine decoding takes 6 % less time than where half of the pages are
    small, 15 % less than where all are. All are there before the first is used."""
    raw = mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=allowed)
    for advice in (getattr(mmap, "MADV_HUGEPAGE", 0), _POPULATE_READ):
        with contextlib.suppress(AttributeError, OSError):  # an older system
            raw.madvise(advice)
    return np.frombuffer(raw, np.uint8)


def _store(
    path: Path, key: str, size: int, build: Callable[[np.ndarray], None], threads: int
) -> np.ndarray | None:
    """Builds straight into the file's pages; None if the file system does not take it.

    Not for errors of `build` itself: those pass through, and leave nothing behind.
    """
    data, whole = _layout(size)
    try:
        with cachefile.replacing(path) as fd:
            # Space first: running out of it while writing to a mapping would end the process.
            os.posix_fallocate(fd, 0, whole)
            view = _mapping(fd, whole, mmap.PROT_READ | mmap.PROT_WRITE)
            try:
                build(view[_PAGE : _PAGE + size])
            except OSError as error:
                raise _BuildError(error) from error
            checks = checksum(view[_PAGE : _PAGE + data], threads)
            view[:_PAGE] = np.frombuffer(_header(key, size, checks), np.uint8)
            view[_PAGE + data :] = checks.view(np.uint8).reshape(-1)
    except _BuildError as failed:
        raise failed.cause from None
    except OSError as error:
        cachefile.warn_once("write", f"cannot write to the cache ({error}): going on without")
        return None
    made = view[_PAGE : _PAGE + size]
    made.flags.writeable = False
    return made


class _BuildError(Exception):
    """Carries an OSError of `build` past the handling of the cache's own."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause)
        self.cause = cause
