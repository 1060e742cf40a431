"""Private folders on disk for what is expensive to make again; files are trusted after checks only.

A cache must never change a result or stop a run: anything doubtful (another owner, open
permissions, a wrong size or hash) counts as absent and is made again, and a folder that cannot be
used means going on without one. Each kind of trouble is reported once a process on the logger
`terrazzo.cache`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger("terrazzo.cache")
_warned: set[str] = set()
_TEMPORARY = ".part"
KINDS = ("objects", "weights", "host")  # the folders; pulled models are no cache and live elsewhere
OBJECT_BYTES = 512 << 20  # of machine code, kept at most: every version of a kernel is a file
_DAY_S = 86_400.0


def warn_once(trouble: str, text: str) -> None:
    """Logs `text` unless this kind of `trouble` was reported before in this process."""
    if trouble not in _warned:
        _warned.add(trouble)
        _log.warning(text)


def root() -> Path:
    """$TERRAZZO_CACHE, or terrazzo under $XDG_CACHE_HOME, or ~/.cache/terrazzo."""
    own = os.environ.get("TERRAZZO_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "terrazzo"


def folder(kind: str) -> Path | None:
    """The folder of one kind of file, made if need be; None (with a warning) if it cannot be used.

    It is the user's alone: mode 0700. A folder of ours with wider permissions is closed again; one
    that belongs to somebody else is not used.
    """
    path = root() / kind
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
        if found.st_uid != os.geteuid():
            warn_once("folder", f"cache folder {path} belongs to user {found.st_uid}: not used")
            return None
        if found.st_mode & 0o077:
            path.chmod(0o700)
            warn_once("mode", f"cache folder {path} was open to other users: closed it")
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        warn_once("folder", f"cache folder {path} cannot be used ({error}): going on without")
        return None
    return path


def open_own(path: Path) -> int | None:
    """A descriptor for reading `path`; None if absent, or (with a warning) not safely ours."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        reject(path, str(error))
        return None
    found = os.fstat(fd)
    if found.st_uid != os.geteuid():
        problem = f"belongs to user {found.st_uid}"
    elif found.st_mode & 0o022:
        problem = "is writable by other users"
    elif not stat.S_ISREG(found.st_mode):
        problem = "is not a plain file"
    else:
        return fd
    os.close(fd)
    reject(path, problem)
    return None


def reject(path: Path, problem: str) -> None:
    """Says that a cache file is ignored and will be made again."""
    warn_once("file", f"cache file {path} {problem}: ignored, made again")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[int]:
    """Descriptor (read and write) of a temporary file that becomes `path` if the block succeeds.

    On any exception nothing is left behind. Two processes may do this at once: the later one wins.
    """
    temporary = path.parent / f"{os.urandom(8).hex()}{_TEMPORARY}"
    try:
        # Named before it is there: Ctrl-C may come between the file's making and the next line.
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            yield fd
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def touch(fd: int) -> None:
    """Notes that a file is in use, to the day: `trim` takes those first that have long not been."""
    if os.fstat(fd).st_mtime < time.time() - _DAY_S:
        os.utime(fd)


def trim(kind: str, most: int) -> int:
    """Deletes files of a folder until `most` bytes are left, those not used for longest first;
    returns how many."""
    files: list[tuple[float, int, Path]] = []
    for path in _files(kind):
        with contextlib.suppress(OSError):
            info = path.stat()
            files.append((info.st_mtime, info.st_size, path))
    over, count = sum(size for _, size, _ in files) - most, 0
    for _, size, path in sorted(files):
        if over <= 0:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            over, count = over - size, count + 1
    return count


@dataclass(frozen=True)
class Entry:
    """A file in the cache: its kind (folder), name, size in bytes and when it was last used (Unix
    s, to the day)."""

    kind: str
    name: str
    size: int
    used: float


def entries() -> list[Entry]:
    """What the cache holds, largest first."""
    found: list[Entry] = []
    for path in _files(*KINDS):
        with contextlib.suppress(FileNotFoundError):
            info = path.stat()
            found.append(Entry(path.parent.name, path.name, info.st_size, info.st_mtime))
    return sorted(found, key=lambda entry: -entry.size)


def clear() -> tuple[int, int]:
    """Deletes the cache's files; returns how many and their bytes.

    Running programs are not disturbed: what they have loaded or mapped stays theirs.
    """
    count = size = 0
    for path in _files(*KINDS):
        with contextlib.suppress(OSError):
            info = path.stat()
            path.unlink()
            count, size = count + 1, size + info.st_size
    return count, size


def _files(*kinds: str) -> list[Path]:
    folders = [root() / kind for kind in kinds]
    return [p for d in folders if d.is_dir() for p in d.iterdir() if p.is_file()]
