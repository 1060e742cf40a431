"""The blob cache: large arrays (repacked weights) on disk, read into huge pages when used again.

A file is `<family>-<key>.bin`:

    4096 header: 8 magic | u32 version | u32 zero | u64 bytes | 32 sha256(key, bytes, check words)
    data, zero-filled to a multiple of 4096
    check words u32[chunks, 8] of the data (checksum.py)

Owner, permissions, exact size and header are always checked, and so is every byte of the data, by a
checksum that runs at the speed of memory on all threads, which shows every flipped bit.

Why not mapped: a file's pages are 4 KiB on most systems, and every step reads all of the data.
From pages of 2 MiB a core streams up to twice as fast, which a single token pays back.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from terrazzo.runtime.checksum import CHUNK, checksum
from terrazzo.targets.cpu import cachefile
from terrazzo.targets.cpu.pool import large_memory

KIND = "weights"
_MAGIC = b"TERRABLB"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQ32s")
_PAGE = 4096


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
    group = hashlib.sha256(family.encode()).hexdigest()[:16]
    path = None if folder is None else folder / f"{group}-{key}.bin"
    view = None if path is None else _load(path, key, size, threads)
    if view is None:
        view = large_memory(_layout(size)[1])
        build(view[_PAGE : _PAGE + size])
        if path is not None and _store(path, key, size, view, threads):
            for old in path.parent.glob(f"{group}-*.bin"):
                if family and old != path:
                    old.unlink(missing_ok=True)
    view.flags.writeable = False
    return view[_PAGE : _PAGE + size]


def _layout(size: int) -> tuple[int, int]:
    """Bytes of the data with its fill, and of the whole file."""
    data = -(-size // _PAGE) * _PAGE
    return data, _PAGE + data + -(-data // CHUNK) * 32


def _header(key: str, size: int, checks: np.ndarray) -> bytes:
    digest = hashlib.sha256(f"{key} {size} ".encode() + checks.tobytes()).digest()
    return _HEADER.pack(_MAGIC, _VERSION, 0, size, digest).ljust(_PAGE, b"\0")


def _load(path: Path, key: str, size: int, threads: int) -> np.ndarray | None:
    """The whole file in memory; None if absent or, with a warning, not what was stored."""
    fd = cachefile.open_own(path)
    if fd is None:
        return None
    try:
        data, whole = _layout(size)
        if os.fstat(fd).st_size != whole:
            cachefile.reject(path, f"has {os.fstat(fd).st_size:,} B of {whole:,} B")
            return None
        view = large_memory(whole)
        if not _read(fd, view, threads):
            cachefile.reject(path, "became shorter while it was read")
            return None
    finally:
        os.close(fd)
    checks = checksum(view[_PAGE : _PAGE + data], threads)
    kept = view[_PAGE + data :].view(np.uint32).reshape(-1, 8)
    if view[:_PAGE].tobytes() != _header(key, size, checks) or not np.array_equal(kept, checks):
        cachefile.reject(path, "is damaged")
        return None
    return view


def _read(fd: int, to: np.ndarray, threads: int) -> bool:
    """Fill `to` from the file's start, a run a thread; False if the file is shorter."""
    step = -(-len(to) // threads)
    done = [False] * threads

    def part(n: int) -> None:
        start, stop = n * step, min((n + 1) * step, len(to))
        while start < stop:
            got = os.preadv(fd, [to[start:stop].data], start)
            if not got:
                return
            start += got
        done[n] = True

    readers = [threading.Thread(target=part, args=(n,)) for n in range(threads)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return all(done)


def _store(path: Path, key: str, size: int, view: np.ndarray, threads: int) -> bool:
    """Writes `view`, the whole file but for its header and check words, which are made here; False
    if the file system does not take it."""
    data, _ = _layout(size)
    checks = checksum(view[_PAGE : _PAGE + data], threads)
    view[:_PAGE] = np.frombuffer(_header(key, size, checks), np.uint8)
    view[_PAGE + data :] = checks.view(np.uint8).reshape(-1)
    try:
        with cachefile.replacing(path) as fd, open(fd, "wb", closefd=False) as file:
            os.posix_fallocate(fd, 0, len(view))  # no room is known before anything is written
            file.write(view.data)
    except OSError as error:
        cachefile.warn_once("write", f"cannot write to the cache ({error}): going on without")
        return False
    return True
