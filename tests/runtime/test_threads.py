"""Thread and memory limits read from made-up /sys and /proc trees, cgroup v1 and v2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from terrazzo.runtime import cgroups, threads


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def version_2(root: Path, group: str = "/a/b", base: str = "/", **files: str) -> Path:
    mount = root / "mounted"
    mount.mkdir()
    return tree(
        root,
        {
            "self/cgroup": f"0::{group}\n",
            "self/mountinfo": f"30 23 0:26 {base} {mount} rw - cgroup2 cgroup2 rw\n"
            "31 23 0:27 / /proc rw - proc proc rw\n",
            **{f"mounted/{name.replace('__', '/').replace('_dot_', '.')}": text
               for name, text in files.items()},
        },
    )  # fmt: skip


def version_1(root: Path, files: dict[str, str]) -> Path:
    lines = []
    for controller in ("cpu,cpuacct", "memory"):
        mount = root / controller
        mount.mkdir()
        lines.append(f"31 23 0:27 / {mount} rw - cgroup cgroup rw,{controller}\n")
    groups = "4:cpu,cpuacct:/job\n3:memory:/job\n0::/\n"
    return tree(root, {"self/cgroup": groups, "self/mountinfo": "".join(lines), **files})


def test_quota_of_version_2_is_the_least_of_the_ancestors(tmp_path: Path) -> None:
    proc = version_2(tmp_path, cpu_dot_max="max 100000\n", a__cpu_dot_max="350000 100000\n",
                     a__b__cpu_dot_max="800000 100000\n")  # fmt: skip
    assert cgroups.cpu_quota(proc) == 3.5


def test_quota_inside_a_container(tmp_path: Path) -> None:
    """The mount shows the container's own group as its top; /proc names it by a path outside."""
    proc = version_2(tmp_path, group="/../other", base="/docker/x", cpu_dot_max="50000 100000\n")
    assert cgroups.cpu_quota(proc) == 0.5


def test_quota_of_version_1(tmp_path: Path) -> None:
    proc = version_1(
        tmp_path,
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "cpu,cpuacct/job/cpu.cfs_quota_us": "250000\n",
            "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cgroups.cpu_quota(proc) == 2.5


def test_memory_left_counts_the_page_cache_as_free(tmp_path: Path) -> None:
    proc = version_2(tmp_path, a__b__memory_dot_max="1000000\n",
                     a__b__memory_dot_current="700000\n",
                     a__b__memory_dot_stat="anon 5\ninactive_file 300000\n",
                     a__memory_dot_max="max\n", a__memory_dot_current="9\n")  # fmt: skip
    assert cgroups.memory_left(proc) == 600_000


def test_memory_left_of_version_1(tmp_path: Path) -> None:
    proc = version_1(
        tmp_path,
        {
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
            "memory/memory.usage_in_bytes": "12345\n",
            "memory/job/memory.limit_in_bytes": "1000\n",
            "memory/job/memory.usage_in_bytes": "900\n",
            "memory/job/memory.stat": "total_inactive_file 50\n",
        },
    )
    assert cgroups.memory_left(proc) == 150


def test_no_cgroups_means_no_limits(tmp_path: Path) -> None:
    assert cgroups.cpu_quota(tmp_path) is None and cgroups.memory_left(tmp_path) is None


@pytest.mark.parametrize(
    ("online", "allowed", "cores", "quota", "expected"),
    [
        (8, 8, 8, None, 8),
        (8, 8, 4, None, 4),
        (8, 2, 2, 7.9, 2),
        (8, 8, 8, 2.9, 2),
        (8, 8, 8, 0.5, 1),
    ],
)
def test_default_is_the_least_limit(
    online: int, allowed: int, cores: int, quota: float | None, expected: int
) -> None:
    limits = threads.ThreadLimits(online, allowed, cores, quota)
    assert limits.default == expected
    words = limits.explain()
    assert words.startswith(f"{expected} threads: {online} CPUs online, {allowed} allowed")
    assert f"{cores} physical cores" in words
    assert words.endswith(f"quota {quota:g} CPUs" if quota else "quota none")


def test_siblings_share_a_core(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    shared = {f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": "0-99\n"
              for cpu in allowed}  # fmt: skip
    assert threads.limits(tree(tmp_path, shared), tmp_path).cores == 1
    assert threads.limits(tmp_path / "none", tmp_path).cores == len(allowed)


def test_default_follows_the_affinity() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert threads.default_threads() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert 1 <= threads.default_threads() <= len(before)
    assert threads.explain().startswith(f"{threads.default_threads()} threads: ")
