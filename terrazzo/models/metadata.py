"""The key/value part of a GGUF header: indexed once, decoded only when a key is read.

A tokenizer's token list and merges are some 100,000 strings; whoever only wants the number of
layers must not pay for them. Indexing therefore only finds where each value lies; string arrays,
whose end is known only by walking them, are walked with NumPy (see `index_strings`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.errors import ModelFileError

Value = bool | int | float | str | list[str] | np.ndarray

MAX_KEY_BYTES = 65_535  # the format's own limit
MAX_STRINGS = 1 << 22  # in one array; the largest vocabularies have 2**18

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: dict[int, tuple[str, np.dtype]] = {
    0: ("u8", np.dtype("<u1")), 1: ("i8", np.dtype("<i1")), 2: ("u16", np.dtype("<u2")),
    3: ("i16", np.dtype("<i2")), 4: ("u32", np.dtype("<u4")), 5: ("i32", np.dtype("<i4")),
    6: ("f32", np.dtype("<f4")), 7: ("bool", np.dtype("<u1")), 10: ("u64", np.dtype("<u8")),
    11: ("i64", np.dtype("<i8")), 12: ("f64", np.dtype("<f8")),
}  # fmt: skip

_u32 = struct.Struct("<I").unpack_from
_u64 = struct.Struct("<Q").unpack_from


class Cursor:
    """Reads little-endian header fields from `data` (u8), each checked against the file's end."""

    def __init__(self, data: np.ndarray, path: str) -> None:
        self.data = data
        self.path = path
        self.pos = 0

    def take(self, count: int, what: str) -> int:
        """Step over `count` bytes of `what`; returns where they begin. Raises if they are not all
        there."""
        start, end = self.pos, self.pos + count
        if end > self.data.size:
            raise ModelFileError(
                f"{self.path}: the file is truncated inside {what}: {end:,} bytes needed,"
                f" the file has {self.data.size:,}"
            )
        self.pos = end
        return start

    def u32(self, what: str) -> int:
        return _u32(self.data.data, self.take(4, what))[0]

    def u64(self, what: str) -> int:
        return _u64(self.data.data, self.take(8, what))[0]

    def name(self, what: str) -> str:
        """A key or tensor name: at most MAX_KEY_BYTES of UTF-8."""
        size = self.u64(what)
        if size > MAX_KEY_BYTES:
            raise ModelFileError(
                f"{self.path}: {what} claims a name of {size:,} bytes, at most"
                f" {MAX_KEY_BYTES:,} are valid"
            )
        start = self.take(size, what)
        return decode(self.data, start, start + size, self.path, what)


def decode(data: np.ndarray, start: int, end: int, path: str, what: str) -> str:
    """Bytes start..end of `data` as UTF-8."""
    try:
        return data[start:end].tobytes().decode()
    except UnicodeDecodeError as error:
        raise ModelFileError(
            f"{path}: {what} is not valid UTF-8 at byte {start + error.start:,}"
        ) from None


@dataclass(frozen=True)
class _Entry:
    """Where a value lies: first byte, element type, element count; None for a scalar. `starts` is
    set for string arrays: see `index_strings`."""

    type: int
    start: int
    count: int | None = None
    starts: np.ndarray | None = None


@dataclass(frozen=True)
class PackedStrings:
    """Strings of UTF-8 as one block, a tenth of what they take as a list. In front of each of them
    `text` has a zero byte; string i is text[bounds[i] : bounds[i + 1] - 1]."""

    text: bytes
    bounds: np.ndarray

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> str:
        """Raises UnicodeDecodeError if the string is not UTF-8, as `all` does."""
        return self.text[self.bounds[index] : self.bounds[index + 1] - 1].decode()

    def all(self) -> list[str]:
        """All strings at once, split at the zeros. One by one (a string holds a zero byte itself)
        it takes five times as long."""
        strings = self.text.decode().split("\0")[1:]
        if len(strings) != len(self):
            strings = [self[i] for i in range(len(self))]
        return strings


class Metadata(Mapping[str, Value]):
    """The file's metadata. Numbers arrive as bool, int, float; strings as str; arrays of numbers as
    NumPy arrays, of strings as list[str]. Reading a key may raise ModelFileError (say, for invalid
    UTF-8)."""

    def __init__(self, cursor: Cursor, count: int) -> None:
        """Indexes `count` pairs at `cursor`, which is left behind the last."""
        self._data, self.path = cursor.data, cursor.path
        self._entries: dict[str, _Entry] = {}
        for index in range(count):
            key = cursor.name(f"metadata key {index + 1} of {count:,}")
            if key in self._entries:
                raise ModelFileError(f"{self.path}: metadata key {key!r} occurs twice")
            self._entries[key] = self._index(cursor, f"metadata key {key!r}")

    def _index(self, cursor: Cursor, what: str) -> _Entry:
        kind = cursor.u32(what)
        if kind != _ARRAY:
            return self._index_scalar(cursor, kind, what)
        kind, count = cursor.u32(what), cursor.u64(what)
        if kind == _STRING:
            if count > MAX_STRINGS:
                raise ModelFileError(
                    f"{self.path}: {what} claims {count:,} strings, at most"
                    f" {MAX_STRINGS:,} are taken"
                )
            start = cursor.pos
            cursor.take(8 * count, what)  # the lengths alone must fit: cheap before walking
            cursor.pos = start
            starts = index_strings(cursor, count, what)
            return _Entry(kind, start, count, starts)
        if kind not in _SCALARS:
            raise ModelFileError(
                f"{self.path}: {what} is an array of elements of unknown type {kind}"
            )
        return _Entry(kind, cursor.take(count * _SCALARS[kind][1].itemsize, what), count)

    def _index_scalar(self, cursor: Cursor, kind: int, what: str) -> _Entry:
        if kind == _STRING:
            size = cursor.u64(what)
            return _Entry(kind, cursor.take(size, what) - 8)
        if kind not in _SCALARS:
            raise ModelFileError(f"{self.path}: {what} has unknown type {kind}")
        return _Entry(kind, cursor.take(_SCALARS[kind][1].itemsize, what))

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries  # without decoding the value, which Mapping's own would do

    def __getitem__(self, key: str) -> Value:
        entry = self._entries[key]
        if entry.type == _STRING:
            return self._string(key, entry) if entry.starts is None else self._strings(key)
        dtype = _SCALARS[entry.type][1]
        end = entry.start + dtype.itemsize * (1 if entry.count is None else entry.count)
        array = np.frombuffer(self._data[entry.start : end].tobytes(), dtype)
        if entry.type == _BOOL:
            if array.size and array.max() > 1:
                raise ModelFileError(
                    f"{self.path}: metadata key {key!r} is a bool with the byte {array.max()}"
                )
            array = array.astype(np.bool_)
        return array if entry.count is not None else array[0].item()

    def _string(self, key: str, entry: _Entry) -> str:
        start = entry.start + 8
        end = start + _u64(self._data.data, entry.start)[0]
        return decode(self._data, start, end, self.path, f"metadata key {key!r}")

    def packed_strings(self, key: str) -> PackedStrings:
        """The array of strings at `key` in one block; raises ModelFileError if there is none."""
        if key not in self._entries:
            raise ModelFileError(f"{self.path}: metadata key {key!r} is missing")
        starts = self._entries[key].starts
        if starts is None:
            raise ModelFileError(f"{self.path}: metadata key {key!r} must be an array of strings")
        blob = self._data[starts[0] - 8 : starts[-1] - 8]
        inner = starts[:-1] - starts[0] + 8
        keep = np.ones(blob.size, np.bool_)
        for back in range(2, 9):  # of each length one byte stays, as the zero
            keep[inner - back] = False
        marked = blob.copy()
        marked[inner - 1] = 0
        text = marked[keep].tobytes()
        bounds = starts - starts[0] + 8 - 7 * np.arange(1, starts.size + 1)
        return PackedStrings(text, bounds.astype(np.min_scalar_type(len(text) + 1)))

    def _strings(self, key: str) -> list[str]:
        try:
            return self.packed_strings(key).all()
        except UnicodeDecodeError:
            raise ModelFileError(f"{self.path}: metadata key {key!r} holds invalid UTF-8") from None

    def length(self, key: str) -> int | None:
        """Element count of the array at `key` without decoding it; None if there is no such
        array."""
        entry = self._entries.get(key)
        return None if entry is None else entry.count

    def text(self, key: str, default: str | None = None) -> str:
        return self._typed(key, default, str, "a string")

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._typed(key, default, bool, "a bool")

    def integer(self, key: str, default: int | None = None) -> int:
        return self._typed(key, default, int, "an integer")

    def number(self, key: str, default: float | None = None) -> float:
        return float(self._typed(key, default, (int, float), "a number"))

    def _typed(self, key: str, default: Any, kind: type | tuple[type, ...], expected: str) -> Any:
        """The value at `key`, or `default` if the key is absent; no default means the key is
        required."""
        if key not in self._entries:
            if default is None:
                raise ModelFileError(f"{self.path}: metadata key {key!r} is missing")
            return default
        count = self._entries[key].count
        value = None if count is not None else self[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            got = f"an array of {count:,}" if count is not None else f"{value!r:.60}"
            raise ModelFileError(f"{self.path}: metadata key {key!r} must be {expected}, not {got}")
        return value


_WINDOW = 1 << 17  # bytes looked at by one vectorised step
_STEPS = 512  # strings walked one by one where the vectorised step finds nothing


def index_strings(cursor: Cursor, count: int, what: str) -> np.ndarray:
    """Where the `count` strings (u64 length, bytes) at `cursor` begin; moves `cursor` behind the
    last.

    Returns count + 1 offsets (int64): string i is starts[i] .. starts[i + 1] - 8; the last entry is
    the end of the array + 8. A length below 65,536 ends in six zero bytes while text has none, so
    the places where a run of zeros ends are nearly always the strings' starts. They are found for a
    window at once and accepted as far as each follows from the one before (start + length + 8),
    which proves them right; where that fails (empty strings, zeros in text) the strings are walked
    one by one.
    """
    data = cursor.data
    found: list[np.ndarray] = []
    left = count
    while left:
        starts = _guess(data[cursor.pos : cursor.pos + _WINDOW])[:left] if left > 8 else _NONE
        if starts.size:
            starts = starts + cursor.pos
        else:
            steps = []
            for _ in range(min(left, _STEPS)):
                cursor.take(8, what)
                steps.append(cursor.pos)
                cursor.take(_u64(data.data, cursor.pos - 8)[0], what)
            starts = np.array(steps, np.int64)
        found.append(starts)
        left -= starts.size
        cursor.pos = int(starts[-1])
        cursor.take(_u64(data.data, cursor.pos - 8)[0], what)
    return np.concatenate([*found, np.array([cursor.pos + 8], np.int64)])


_NONE = np.empty(0, np.int64)


def _guess(window: np.ndarray) -> np.ndarray:
    """Starts of the strings in `window`, which begins with a length, as far as they are proven
    right."""
    zero = window == 0
    starts = np.flatnonzero(zero[:-1] > zero[1:]) + 1
    starts = starts[starts >= 8]
    if not starts.size or starts[0] != 8:
        return _NONE
    right = zero[starts - 2]
    for back in range(3, 7):
        right &= zero[starts - back]
    ends = starts + window[starts - 8] + (window[starts - 7].astype(np.int64) << 8)
    right[1:] &= starts[1:] == ends[:-1] + 8
    return starts if right.all() else starts[: int(right.argmin())]
