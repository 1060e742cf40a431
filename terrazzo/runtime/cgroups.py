"""CPU and memory limits of the control groups this process is in (v1 and v2); see cgroups(7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def cpu_quota(proc: Path = Path("/proc")) -> float | None:
    """CPUs' worth of time the cgroup may use (least over its ancestors), or None if unlimited."""
    quotas: list[float] = []
    for folder in _folders(proc, "cpu"):
        words = _words(folder / "cpu.max")  # v2: "max 100000" or "150000 100000"
        if not words:
            words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(words) == 2 and words[0] not in ("max", "-1") and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_left(proc: Path = Path("/proc")) -> int | None:
    """Bytes the cgroup may still take (least over its ancestors), or None if unlimited.

    Its page cache counts as free: the kernel drops that before refusing memory.
    """
    left: list[int] = []
    for folder in _folders(proc, "memory"):
        for limit_name, used_name, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = _words(folder / limit_name), _words(folder / used_name)
            # v1 writes "no limit" as a number near 2^63
            if limit and used and limit[0] != "max" and int(limit[0]) < 1 << 60:
                stat = dict(zip(*[iter(_words(folder / "memory.stat"))] * 2, strict=False))
                left.append(max(0, int(limit[0]) - int(used[0]) + int(stat.get(cache_name, 0))))
    return min(left, default=None)


def _folders(proc: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's group and its ancestors, for v1's `controller` and for v2."""
    groups: dict[str, str] = {}  # controller ("" for v2) -> path
    for line in _lines(proc / "self/cgroup"):
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    for line in _lines(proc / "self/mountinfo"):
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        name = {"cgroup": controller, "cgroup2": ""}.get(kind)
        if name is None or name not in groups or (name and name not in options.split(",")):
            continue
        base, mount = left.split(" ")[3:5]
        # In a container the group's path may lie outside what is mounted: then the mount is ours.
        inside = groups[name].removeprefix(base) if groups[name].startswith(base) else ""
        folder = Path(mount, inside.strip("/"))
        while not folder.is_dir() and folder != Path(mount):
            folder = folder.parent
        yield folder
        while folder != Path(mount):
            folder = folder.parent
            yield folder


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()
