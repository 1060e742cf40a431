"""The object cache: hits, every kind of damage, foreign files, unwritable folders, two at once."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime_phases import run_script

from terrazzo.targets.cpu import cachefile, objcache

CONTENT = b"machine code " * 100
KEY = objcache.make_key("test")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs chown")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TERRAZZO_CACHE", str(tmp_path / "cache"))
    cachefile._warned.clear()
    yield tmp_path / "cache"
    cachefile._warned.clear()


class Builder:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return CONTENT


def stored(cache: Path) -> Path:
    assert objcache.get_or_build(KEY, lambda: CONTENT) == CONTENT
    return cache / "objects" / f"{KEY}.o"


def expect_rebuilt(caplog: pytest.LogCaptureFixture, warning: str) -> None:
    """Rebuilt with one warning, and right again afterwards."""
    build = Builder()
    with caplog.at_level(logging.WARNING, "terrazzo.cache"):
        assert objcache.get_or_build(KEY, build) == CONTENT
        assert objcache.get_or_build(KEY, build) == CONTENT
    assert build.calls == 1
    assert [warning in record.message for record in caplog.records] == [True]


def test_built_once_and_private(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = stored(own_cache)
    build = Builder()
    assert objcache.get_or_build(KEY, build) == CONTENT and build.calls == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert not caplog.records


@pytest.mark.parametrize("length", [0, 1, 40, 63, 64, 65, 700, 1363])
def test_truncated(own_cache: Path, caplog: pytest.LogCaptureFixture, length: int) -> None:
    os.truncate(stored(own_cache), length)
    expect_rebuilt(caplog, "is damaged: ignored, made again")


@pytest.mark.parametrize("at", [0, 7, 8, 12, 16, 23, 24, 55, 56, 63, 64, 700, -1])
def test_any_flipped_bit(own_cache: Path, caplog: pytest.LogCaptureFixture, at: int) -> None:
    path = stored(own_cache)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    expect_rebuilt(caplog, "is damaged")


def test_longer_or_of_another_key(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = stored(own_cache)
    path.write_bytes(path.read_bytes() + b"x")
    expect_rebuilt(caplog, "is damaged")
    other = objcache.make_key("other")
    os.rename(path, path.with_name(f"{other}.o"))
    build = Builder()
    assert objcache.get_or_build(other, build) == CONTENT and build.calls == 1


def test_writable_by_others(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored(own_cache).chmod(0o666)
    expect_rebuilt(caplog, "is writable by other users")


@as_root
def test_file_of_another_user(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.chown(stored(own_cache), 12345, 12345)
    expect_rebuilt(caplog, "belongs to user 12345")


def test_symbolic_link(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = stored(own_cache)
    path.rename(own_cache / "elsewhere")
    path.symlink_to(own_cache / "elsewhere")
    expect_rebuilt(caplog, "ignored, made again")


def test_folder_in_the_file_s_place(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = stored(own_cache)
    path.unlink()
    path.mkdir()
    build = Builder()
    with caplog.at_level(logging.WARNING, "terrazzo.cache"):
        assert objcache.get_or_build(KEY, build) == CONTENT
    assert build.calls == 1 and "is not a plain file" in caplog.text
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]


def test_folder_open_to_others_is_closed(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = stored(own_cache).parent
    folder.chmod(0o777)
    build = Builder()
    assert objcache.get_or_build(KEY, build) == CONTENT and build.calls == 0
    assert folder.stat().st_mode & 0o777 == 0o700 and "closed it" in caplog.text


@as_root
def test_folder_of_another_user(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.chown(stored(own_cache).parent, 12345, 12345)
    build = Builder()
    assert [objcache.get_or_build(KEY, build) for _ in range(3)] == [CONTENT] * 3
    assert build.calls == 3
    assert [r.message.count("belongs to user 12345") for r in caplog.records] == [1]


def test_unwritable_place(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    own_cache.write_text("a file where the folder should be")
    build = Builder()
    assert [objcache.get_or_build(KEY, build) for _ in range(3)] == [CONTENT] * 3
    assert build.calls == 3 and len(caplog.records) == 1
    assert "going on without" in caplog.text
    assert cachefile.entries() == [] and cachefile.clear() == (0, 0)


def test_full_disk(
    own_cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    build = Builder()
    assert [objcache.get_or_build(KEY, build) for _ in range(2)] == [CONTENT] * 2
    assert len(caplog.records) == 1 and "No space left" in caplog.text
    assert list((own_cache / "objects").iterdir()) == []  # no half-written file


def test_failed_build_leaves_nothing(own_cache: Path) -> None:
    def broken() -> bytes:
        raise ValueError("does not compile")

    with pytest.raises(ValueError, match="does not compile"):
        objcache.get_or_build(KEY, broken)
    assert list((own_cache / "objects").iterdir()) == []


def test_two_processes_fill_at_once(own_cache: Path) -> None:
    script = """
import sys
from terrazzo.targets.cpu import objcache
sys.stdin.readline()
for i in range(200):
    content = bytes([i]) * 5000
    assert objcache.get_or_build(objcache.make_key(str(i)), lambda: content) == content
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
    assert len(list((own_cache / "objects").iterdir())) == 200


def test_list_and_clear(own_cache: Path) -> None:
    path = stored(own_cache)
    (own_cache / "models").mkdir()
    (own_cache / "models" / "model.gguf").write_text("not ours to delete")
    (entry,) = cachefile.entries()
    assert (entry.kind, entry.name, entry.size) == ("objects", path.name, len(CONTENT) + 64)
    assert cachefile.clear() == (1, len(CONTENT) + 64)
    assert cachefile.entries() == [] and (own_cache / "models" / "model.gguf").exists()


def test_keys_tell_parts_apart_and_are_stable() -> None:
    assert objcache.make_key("ab", "c") != objcache.make_key("a", "bc")
    assert len(KEY) == 64
    script = "from terrazzo.targets.cpu import objcache; print(objcache.make_key('test'))"
    again = run_script(script)
    assert again.stdout.strip() == KEY


def test_ctrl_c_as_a_file_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal may come when the file is there and the call that made it has not returned."""
    made = os.open

    def interrupted(*args: Any, **kwargs: Any) -> int:
        os.close(made(*args, **kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), cachefile.replacing(tmp_path / "x.o"):
        pass
    assert not list(tmp_path.iterdir())


def test_the_folder_keeps_to_its_size(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not used for longest goes, once a process, before something is compiled."""
    monkeypatch.setattr(cachefile, "OBJECT_BYTES", 2500)
    folder = stored(own_cache).parent
    for days, name in ((30, "old.o"), (3, "used.o"), (20, "older.o")):
        path = folder / name
        path.write_bytes(bytes(1000))
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - days * 86_400))
    objcache._make_room.cache_clear()
    build = Builder()
    assert objcache.get_or_build(KEY, build) == CONTENT and not build.calls
    assert len(list(folder.iterdir())) == 4  # nothing was built: nothing is looked at
    other = objcache.make_key("other")
    assert objcache.get_or_build(other, build) == CONTENT
    assert {p.name for p in folder.iterdir()} == {"used.o", f"{KEY}.o", f"{other}.o"}
    (folder / "more.o").write_bytes(bytes(9000))
    third = objcache.make_key("third")
    assert objcache.get_or_build(third, build) == CONTENT
    assert (folder / "more.o").exists()  # not again in this process


def test_a_hit_counts_as_use(own_cache: Path) -> None:
    path = stored(own_cache)
    long_ago = path.stat().st_mtime - 40 * 86_400
    os.utime(path, (long_ago, long_ago))
    stored(own_cache)
    assert path.stat().st_mtime > long_ago + 39 * 86_400
