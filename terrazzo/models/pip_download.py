"""Fetching a wheel with pip as the client, as a child process that does not outlive us."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from terrazzo.errors import DownloadError

_POLL_S = 0.1
_STOP_S = 5.0

# Runs pip so that the kernel ends it when we are killed (PR_SET_PDEATHSIG = 1, SIGKILL = 9):
# nothing else could, and it would go on fetching for nobody.
_RUN_PIP = (
    "import ctypes, runpy; ctypes.CDLL(None).prctl(1, 9);"
    " runpy.run_module('pip', run_name='__main__', alter_sys=True)"
)


def download(package: str, version: str, folder: Path, report: Callable[[int], None]) -> Path:
    """Fetches the wheel of `package`==`version` (without dependencies) into `folder`; returns its
    path.

    `report` is called about every 0.1 s with the bytes that are here. All of pip's temporary files
    lie in `folder` too. Raises DownloadError with pip's own reason. On any exception pip is stopped
    first.
    """
    log = folder / "pip.log"
    command = [
        sys.executable, "-c", _RUN_PIP, "download", f"{package}=={version}", "--dest", str(folder),
        "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input",
        "--progress-bar", "off", "--disable-pip-version-check",
    ]  # fmt: skip
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        try:
            while True:
                try:
                    process.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    report(_largest_wheel(folder))
        finally:
            _stop(process)
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        reason = last_line(log.read_text(errors="replace"))
        raise DownloadError(
            f"pip could not fetch {package} {version}: {reason}",
            "check the network and pip's settings (`pip config list`)",
        )
    return wheels[0]


def last_line(output: str) -> str:
    """The line of pip's output that says what went wrong: its last error, else its last words."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    spoken = [line for line in lines if not line.startswith(("WARNING:", "[notice]"))]
    return (errors or spoken or lines or ["it said nothing"])[-1]


def _largest_wheel(folder: Path) -> int:
    """Bytes of the wheel so far. pip fetches into a folder of its own and moves the file at the
    end."""
    sizes = [0]
    for wheel in folder.rglob("*.whl"):
        try:
            sizes.append(wheel.stat().st_size)
        except FileNotFoundError:  # moved in between
            continue
    return max(sizes)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
