"""Mapped blobs and their checksum: every byte counts, damage is rebuilt, nothing is left behind."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrazzo.runtime import blobs
from terrazzo.runtime.checksum import CHUNK, PRIME, SEEDS, checksum
from terrazzo.targets.cpu import cachefile

SIZE = 600_001
KEY = "0123abcd"
DATA = np.random.default_rng(7).integers(0, 256, SIZE, np.uint8)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TERRAZZO_CACHE", str(tmp_path / "cache"))
    cachefile._warned.clear()
    yield tmp_path / "cache"
    cachefile._warned.clear()


class Builder:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, memory: np.ndarray) -> None:
        self.calls += 1
        memory[:] = DATA


def get(build: Builder, threads: int = 1) -> np.ndarray:
    found = blobs.get_or_build(KEY, SIZE, build, threads=threads)
    assert np.array_equal(found, DATA) and not found.flags.writeable
    return found


def stored(cache: Path) -> Path:
    get(Builder())
    (path,) = (cache / "weights").iterdir()
    return path


def by_numpy(data: np.ndarray) -> np.ndarray:
    """The checksum as its docstring defines it."""

    def turn(h: np.ndarray, x: np.ndarray) -> np.ndarray:
        s = h + x
        return ((s << np.uint32(13)) | (s >> np.uint32(19))) * np.uint32(PRIME)

    rows = []
    for start in range(0, len(data), CHUNK):
        h = np.repeat(np.array(SEEDS, np.uint32)[:, None], 8, axis=1)
        for words in data[start : start + CHUNK].view(np.uint32).reshape(-1, 4, 8):
            h = turn(h, words)
        joined = h[0]
        for other in h[1:]:
            joined = turn(joined, other)
        rows.append(joined)
    return np.array(rows, np.uint32).reshape(-1, 8)


@pytest.mark.parametrize("size", [0, 128, 4096, CHUNK, CHUNK + 128, 2 * CHUNK])
@pytest.mark.parametrize("threads", [1, 3])
def test_checksum_is_the_defined_one(size: int, threads: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert np.array_equal(checksum(data, threads), by_numpy(data))


@given(st.lists(st.integers(0, 8 * 1280 - 1), min_size=1, max_size=6, unique=True))
def test_checksum_sees_flipped_bits(bits: list[int]) -> None:
    """Few flips are always seen here (one word: by construction; more: 2^-32 chances of a miss)."""
    data = np.zeros(1280, np.uint8)
    before = checksum(data)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    assert not np.array_equal(checksum(data), before)


def test_checksum_refuses_other_arrays() -> None:
    for wrong in (np.zeros(127, np.uint8), np.zeros(256, np.int8), np.zeros(512, np.uint8)[::2]):
        with pytest.raises(ValueError, match="multiple of 128"):
            checksum(wrong)


@pytest.mark.parametrize("threads", [1, 2])
def test_built_once_then_read(own_cache: Path, threads: int) -> None:
    build = Builder()
    first = get(build, threads=threads)
    again = get(build, threads=threads)
    assert build.calls == 1
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 1
    path = stored(own_cache)
    assert path.stat().st_mode & 0o777 == 0o600
    cachefile.clear()  # what is loaded stays
    assert np.array_equal(first, DATA) and np.array_equal(again, DATA)


@pytest.mark.parametrize("size", [0, 1, 4096])
def test_small_blobs(size: int) -> None:
    def build(memory: np.ndarray) -> None:
        memory[:] = 5

    for _ in range(2):
        assert blobs.get_or_build(KEY, size, build).tolist() == [5] * size


@pytest.mark.parametrize("where", [0, 9, 20, 50, 4095, 4096, 300_000, 604_096, 605_000, -33, -1])
def test_any_flipped_bit(own_cache: Path, caplog: pytest.LogCaptureFixture, where: int) -> None:
    """In every region: header and its fill, data first, middle and last, its fill, check words."""
    path = stored(own_cache)
    content = bytearray(path.read_bytes())
    content[where] ^= 0x40
    path.write_bytes(content)
    build = Builder()
    with caplog.at_level(logging.WARNING, "terrazzo.cache"):
        get(build)
        get(build)
    assert build.calls == 1 and ["is damaged" in r.message for r in caplog.records] == [True]


@pytest.mark.parametrize("length", [0, 10, 4096, 500_000, 606_303, 606_305])
def test_wrong_length(own_cache: Path, caplog: pytest.LogCaptureFixture, length: int) -> None:
    path = stored(own_cache)
    os.truncate(path, length)
    build = Builder()
    get(build)
    get(build)
    assert build.calls == 1 and f"has {length:,} B of" in caplog.text


def test_another_users_or_open_file(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = stored(own_cache)
    path.chmod(0o662)
    build = Builder()
    get(build)
    assert build.calls == 1 and "is writable by other users" in caplog.text
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        get(build)
        assert build.calls == 2


def test_unwritable_cache_goes_on_in_memory(
    own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own_cache.write_text("in the way")
    build = Builder()
    get(build)
    get(build)
    assert build.calls == 2 and len(caplog.records) == 1


def test_no_space(
    own_cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    build = Builder()
    get(build)
    assert build.calls == 1 and "No space left" in caplog.text
    assert list((own_cache / "weights").iterdir()) == []


@pytest.mark.parametrize("error", [OSError(5, "model file unreadable"), KeyboardInterrupt()])
def test_failed_build_leaves_nothing(own_cache: Path, error: BaseException) -> None:
    def broken(memory: np.ndarray) -> None:
        memory[:10] = 1
        raise error

    with pytest.raises(type(error)):
        blobs.get_or_build(KEY, SIZE, broken)
    assert list((own_cache / "weights").iterdir()) == []


def test_a_family_keeps_one_blob(own_cache: Path) -> None:
    build = Builder()
    for key, family in (("aa", "m1"), ("bb", "m2"), ("cc", "m1"), ("dd", ""), ("ee", "")):
        blobs.get_or_build(key, SIZE, build, family=family)
    keys = sorted(path.stem.split("-")[1] for path in (own_cache / "weights").iterdir())
    assert keys == ["bb", "cc", "dd", "ee"]


def test_two_processes_fill_at_once(own_cache: Path) -> None:
    script = """
import sys
from terrazzo.runtime import blobs
sys.stdin.readline()
for i in range(20):
    def build(memory): memory[:] = i
    assert (blobs.get_or_build(f"{i:04x}", 300_000, build) == i).all()
print("ok")
"""
    env = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]))
    fillers = [
        subprocess.Popen(
            [sys.executable, "-c", script], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    for filler in fillers:
        assert filler.stdin
        filler.stdin.write("go\n")
        filler.stdin.flush()
    assert [filler.communicate(timeout=60) for filler in fillers] == [("ok\n", "")] * 2
    assert len(list((own_cache / "weights").iterdir())) == 20
