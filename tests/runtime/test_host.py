"""What is remembered of this machine, and that a warm start goes without LLVM."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime_phases import run_script

from terrazzo.targets.cpu import cachefile, codegen, host


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TERRAZZO_CACHE", str(tmp_path / "cache"))
    cachefile._warned.clear()
    host.facts.cache_clear()
    yield tmp_path / "cache"
    cachefile._warned.clear()
    host.facts.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows whenever LLVM is asked."""
    times: list[int] = []
    ask = codegen.facts

    def counted() -> host.Facts:
        times.append(1)
        return ask()

    monkeypatch.setattr(codegen, "facts", counted)
    return times


def again() -> host.Facts:
    """As the next process sees it."""
    host.facts.cache_clear()
    return host.facts()


def test_asked_once_and_the_same_afterwards(own_cache: Path, asked: list[int]) -> None:
    truth = codegen.facts()
    asked.clear()
    assert [again() for _ in range(3)] == [truth] * 3
    assert len(asked) == 1
    (file,) = (own_cache / "host").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert host.HostIsa().cpu == truth.cpu and host.HostIsa().features == truth.features
    assert truth.cpu and truth.features.startswith(("+", "-")) and truth.llvm.count(".") == 2


def test_damage_is_asked_again(
    own_cache: Path, asked: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    truth = again()
    (file,) = (own_cache / "host").iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole[:70] + b"?" + whole[71:], whole + b"?"):
        file.write_bytes(damaged)
        asked.clear()
        assert (again(), again()) == (truth, truth) and len(asked) == 1
        assert file.read_bytes() == whole
    assert "is damaged" in caplog.text


def test_another_cpu_or_library_is_another_answer(
    own_cache: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    again()
    for other in (["flags\t: fpu sse\n"], ["flags\t: fpu\n"], ["model\t: 3\n", "flags\t: fpu\n"]):
        monkeypatch.setattr(host, "_cpu", lambda lines=other: iter(lines))
        asked.clear()
        assert again() == again() and len(asked) == 1
    package = tmp_path / "llvmlite"
    (package / "binding").mkdir(parents=True)
    (package / "__init__.py").touch()
    for version, library in ((b"1", b"a"), (b"2", b"a"), (b"2", b"ab")):
        (package / "_version.py").write_bytes(version)
        (package / "binding" / "libllvmlite.so").write_bytes(library)
        found = type("Spec", (), {"origin": str(package / "__init__.py")})
        monkeypatch.setattr(host, "find_spec", lambda name, found=found: found)
        asked.clear()
        assert again() == again() and len(asked) == 1
    assert len(list((own_cache / "host").iterdir())) == 7


def test_works_without_a_cache_and_without_a_description(
    own_cache: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    own_cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "terrazzo.cache"):
        assert again() == again() and len(asked) == 2
    assert "going on without" in caplog.text

    def nothing() -> Iterator[str]:
        raise FileNotFoundError("/proc/cpuinfo")

    own_cache.unlink()
    monkeypatch.setattr(host, "_cpu", nothing)
    asked.clear()
    assert again() == again() and len(asked) == 2 and not own_cache.exists()


def test_the_description_has_no_clock_rates() -> None:
    lines = list(host._cpu())
    assert lines and lines == list(host._cpu())
    assert not [line for line in lines if "MHz" in line or "processor" in line]
    assert len(lines) == len(set(lines))
    if os.uname().machine == "x86_64":
        assert sum(line.startswith("flags") for line in lines) == 1


WARM = """
import sys
import numpy as np
from terrazzo.kernels.norm import rms_norm
from terrazzo.runtime import checksum, machine
from terrazzo.targets.cpu import isa, pool
x, out = np.ones((2, 64), np.float32), np.empty((2, 64), np.float32)
rms_norm(x, np.ones(64, np.float32), out, 1e-5)
pool.shared()
machine.describe()
isa.detect()
SLOW = ("llvmlite", "ml_dtypes", "terrazzo.targets.cpu.codegen")  # to import
print(sorted(m for m in sys.modules if m.startswith(SLOW)))
"""


def test_a_warm_start_needs_no_llvm(own_cache: Path) -> None:
    cold, warm = run_script(WARM), run_script(WARM)
    assert "'llvmlite'" in cold.stdout, cold.stderr
    assert warm.stdout == "[]\n", warm.stderr
