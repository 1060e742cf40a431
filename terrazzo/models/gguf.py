"""Reader of GGUF model files (versions 2 and 3, little-endian), over a memory map.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Opening a file reads the header
only (milliseconds) and checks that every tensor lies whole within the file, so that no later access
can fail.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np

from terrazzo.errors import ModelFileError
from terrazzo.models.metadata import Cursor, Metadata

MAX_TENSORS = 1 << 16
MAX_KEYS = 1 << 16
MAX_DIMS = 4

BLOCKS: dict[str, tuple[int, int]] = {
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q8_0": (32, 34), "Q4_0": (32, 18),
    "Q4_1": (32, 20), "Q6_K": (256, 210),
}  # fmt: skip
"""Supported tensor types: values in a block, bytes of a block."""

_TYPE_NAMES: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8",
    25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0",
    39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the file. `shape` is in NumPy's order (the last axis is contiguous, and the one
    that is grouped into blocks; the file itself lists axes the other way round). `type` is a key of
    BLOCKS, `offset` counts bytes from the start of the file, `nbytes` is the size of the packed
    data."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


class Described(Protocol):
    """Whatever can say of each tensor what it is, if not what it holds."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...
    def info(self, name: str) -> TensorInfo: ...


class GGUF:
    """An open model file. The map lives as long as this object or any view from `raw`."""

    def __init__(self, path: Path, file_map: mmap.mmap) -> None:
        self.path = path
        self._map = file_map
        self._data = np.frombuffer(file_map, np.uint8)
        cursor = Cursor(self._data, str(path))
        version, tensors, keys = _counts(cursor)
        self.version = version
        self.metadata = Metadata(cursor, keys)
        infos = _tensor_table(cursor, tensors, self.metadata)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(infos)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUF:
        """Maps the file and reads its header. Raises ModelFileError if it is not a whole, sound
        GGUF file of a kind we read."""
        path = Path(path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not block us
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{path}: cannot open the model file ({_reason(error)})") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
                raise ModelFileError(f"{path}: is {kind}", "give the path of a GGUF file")
            if status.st_size == 0:
                raise ModelFileError(f"{path}: the file is empty (0 bytes)")
            try:
                file_map = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            except OSError as error:
                raise ModelFileError(f"{path}: cannot map the file ({_reason(error)})") from None
        finally:
            os.close(descriptor)
        return cls(path, file_map)

    def raw(self, name: str) -> np.ndarray:
        """The tensor's packed bytes: a read-only u8 view of the map (no copy)."""
        info = self.info(name)
        return self._data[info.offset : info.offset + info.nbytes]

    def info(self, name: str) -> TensorInfo:
        """The tensor `name`; raises ModelFileError if the file has none of that name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelFileError(f"{self.path}: tensor {name!r} is missing") from None

    def release(self, name: str) -> None:
        """Gives the tensor's pages back to the system (once it has been repacked): the process's
        resident size shrinks by them. Reading the tensor again is allowed and reads the file
        again."""
        info = self.info(name)
        start = info.offset - info.offset % mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, start, info.offset + info.nbytes - start)

    def release_all(self) -> None:
        """The same for the whole file, header included; everything can still be read."""
        self._map.madvise(mmap.MADV_DONTNEED)


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _counts(cursor: Cursor) -> tuple[int, int, int]:
    """Magic, version and the two counts at the file's start."""
    path = cursor.path
    magic = cursor.data[:4].tobytes()
    if magic != b"GGUF"[: len(magic)]:
        raise ModelFileError(f"{path}: not a GGUF file (it begins with {magic!r}, not b'GGUF')")
    cursor.take(4, "the magic number")
    version = cursor.u32("the version")
    if version not in (2, 3):
        if int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3):
            raise ModelFileError(
                f"{path}: is a big-endian GGUF file; only little-endian ones are read"
            )
        raise ModelFileError(f"{path}: GGUF version {version} is not supported (2 and 3 are)")
    tensors, keys = cursor.u64("the tensor count"), cursor.u64("the metadata count")
    for count, limit, what in (
        (tensors, MAX_TENSORS, "tensors"),
        (keys, MAX_KEYS, "metadata keys"),
    ):
        if count > limit:
            raise ModelFileError(f"{path}: claims {count:,} {what}, at most {limit:,} are taken")
    return version, tensors, keys


def _tensor_table(cursor: Cursor, count: int, metadata: Metadata) -> dict[str, TensorInfo]:
    """Reads `count` tensor descriptions and places them behind the header; checks every one."""
    path = cursor.path
    alignment = metadata.integer("general.alignment", 32)
    if alignment <= 0 or alignment & (alignment - 1):
        raise ModelFileError(f"{path}: general.alignment is {alignment:,}, not a power of two")
    relative = [_tensor(cursor, f"tensor {i + 1} of {count:,}") for i in range(count)]
    base = -(-cursor.pos // alignment) * alignment
    infos: dict[str, TensorInfo] = {}
    for info in relative:
        if info.name in infos:
            raise ModelFileError(f"{path}: tensor {info.name!r} occurs twice")
        if info.offset % alignment:
            raise ModelFileError(
                f"{path}: tensor {info.name!r} has offset {info.offset:,}, not a multiple of the"
                f" alignment {alignment:,}"
            )
        start = base + info.offset
        if start + info.nbytes > cursor.data.size:
            raise ModelFileError(
                f"{path}: the file is truncated: tensor {info.name!r} lies at bytes {start:,} to"
                f" {start + info.nbytes:,}, the file has {cursor.data.size:,}"
            )
        infos[info.name] = TensorInfo(info.name, info.shape, info.type, start, info.nbytes)
    _check_overlaps(path, infos)
    return infos


def _tensor(cursor: Cursor, what: str) -> TensorInfo:
    """One entry of the tensor table; its offset is still relative to the data section."""
    path = cursor.path
    name = cursor.name(what)
    what = f"tensor {name!r}"
    dims = cursor.u32(what)
    if not 1 <= dims <= MAX_DIMS:
        raise ModelFileError(f"{path}: {what} has {dims:,} axes, 1 to {MAX_DIMS} are valid")
    shape = tuple(cursor.u64(what) for _ in range(dims))[::-1]
    type_id, offset = cursor.u32(what), cursor.u64(what)
    type_name = _TYPE_NAMES.get(type_id, f"number {type_id}")
    if type_name not in BLOCKS:
        raise ModelFileError(
            f"{path}: {what} has type {type_name}, which is not supported ({', '.join(BLOCKS)} are)"
        )
    group, block_bytes = BLOCKS[type_name]
    if 0 in shape or shape[-1] % group:
        raise ModelFileError(
            f"{path}: {what} of type {type_name} has shape {shape}: rows must be a positive"
            f" multiple of {group} values"
        )
    return TensorInfo(name, shape, type_name, offset, math.prod(shape) // group * block_bytes)


def _check_overlaps(path: str, infos: Mapping[str, TensorInfo]) -> None:
    placed = sorted(infos.values(), key=lambda info: info.offset)
    for before, after in pairwise(placed):
        if before.offset + before.nbytes > after.offset:
            raise ModelFileError(
                f"{path}: tensors {before.name!r} and {after.name!r} overlap: one ends at byte"
                f" {before.offset + before.nbytes:,}, the other begins at {after.offset:,}"
            )
