"""Build the peer we measure against: llama.cpp, from the source tree inside `llama-cpp-python`'s
sdist.

    python benchmarks/peers.py [--folder .venv-bench] [--jobs N]

makes, once, in FOLDER (a virtual environment; about 0.6 GB, 10 to 20 minutes on two cores):

* `FOLDER/peers/build/bin/llama-bench` (and llama-batched-bench, llama-perplexity, llama-quantize,
  llama-server without its web page), a Release build for this very machine (`-march=native`,
  OpenMP, weight repacking on: the project's own defaults) that works on CPUs with AMX, see HEADER;
* the Python package `llama_cpp`, importable by `FOLDER/bin/python`, on the same libraries. Both use
  one build, so that command and Python API are compared with the same code.

Every step is skipped when its result is there; a folder built with other options is built anew. A
C++ compiler is needed; CMake and Ninja come from PyPI.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

VERSION = "0.3.36"  # of llama-cpp-python; its tree holds ggml 0.25.3
TOOLS = (
    "llama-bench", "llama-batched-bench", "llama-perplexity", "llama-quantize", "llama-server",
)  # fmt: skip
REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_FOLDER = REPOSITORY / ".venv-bench"
# What llama_cpp needs at run time, and what builds it.
PACKAGES = ("cmake", "ninja", "numpy", "typing-extensions", "diskcache", "jinja2")
# Included by every C++ file. ggml 0.25.3 sets its AMX tiles up with _tile_loadconfig, which GCC 12
# takes to read 8 bytes instead of 64: it removes the stores of the others, and the instruction
# faults. A build without AMX has neither tiles for prompts nor, as the repacking of Q4_1 and Q8_0
# depends on AMX too, fast products with one row: it decodes half as fast.
HEADER = """#pragma once
#ifdef __AMX_TILE__
#include <immintrin.h>
#undef _tile_loadconfig
#define _tile_loadconfig(p) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(p)))
#endif
"""
CMAKE_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_C_FLAGS=",  # a build folder remembers what was once given
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_UI=OFF",  # its web page: neither built by npm
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # nor downloaded
)


@dataclass(frozen=True)
class Peers:
    """Where the built peer is: an interpreter that can `import llama_cpp`, and the command-line
    tools."""

    python: Path
    tools: Path

    @property
    def llama_bench(self) -> Path:
        return self.tools / "llama-bench"

    @property
    def llama_server(self) -> Path:
        return self.tools / "llama-server"


def find(folder: Path = DEFAULT_FOLDER) -> Peers | None:
    """The peer in `folder`, or None where it is not (or only partly) built."""
    peers = Peers(folder / "bin" / "python", folder / "peers" / "build" / "bin")
    package = _source(folder) / "llama_cpp" / "lib" / "libllama.so"
    built = all((peers.tools / tool).is_file() for tool in TOOLS)
    same = _configured(folder) == _configuration(folder)
    return peers if peers.python.exists() and package.exists() and built and same else None


def require(folder: Path = DEFAULT_FOLDER) -> Peers:
    """The same, or SystemExit saying how to get it."""
    peers = find(folder)
    if peers is None:
        raise SystemExit("llama.cpp is not built, or not as it is now: python benchmarks/peers.py")
    return peers


def build(folder: Path = DEFAULT_FOLDER, jobs: int = 2) -> Peers:
    """Build what is missing in `folder` and return it. Raises SystemExit with the failing step's
    command."""
    folder = folder.resolve()
    python = folder / "bin" / "python"
    if not python.exists():
        _say(f"virtual environment {folder}")
        venv.create(folder, with_pip=True)
    binaries = folder / "bin"
    if not (binaries / "cmake").exists() or not (binaries / "ninja").exists():
        _run("tools from PyPI", [python, "-m", "pip", "install", "-q", *PACKAGES])
    source = _source(folder)
    if not (source / "pyproject.toml").is_file():
        _unpack(_download(python, folder / "peers"), folder / "peers")
    target = folder / "peers" / "build"
    wanted = _configuration(folder)
    if _configured(folder) != wanted:
        header = _header(folder)
        if not header.is_file() or header.read_text() != HEADER:  # newer files compile anew
            header.write_text(HEADER)
        ninja = f"-DCMAKE_MAKE_PROGRAM={binaries / 'ninja'}"
        trees = ["-S", source / "vendor" / "llama.cpp", "-B", target]
        _run("configure", [binaries / "cmake", "-G", "Ninja", ninja, *trees, *wanted.split("\n")])
    _run("compile", [binaries / "ninja", "-C", target, f"-j{jobs}", "libllama.so", *TOOLS])
    _options(folder).write_text(wanted)
    _expose(python, source, target / "bin")
    peers = find(folder)
    if peers is None:
        raise SystemExit(f"peers: built, but {TOOLS} or libllama.so are not all under {folder}")
    return peers


def _source(folder: Path) -> Path:
    return folder / "peers" / f"llama_cpp_python-{VERSION}"


def _header(folder: Path) -> Path:
    return folder.resolve() / "peers" / "tile_config.h"


def _options(folder: Path) -> Path:
    return folder / "peers" / "build" / "options.txt"


def _configuration(folder: Path) -> str:
    """CMake's options, a line each."""
    return "\n".join((*CMAKE_OPTIONS, f"-DCMAKE_CXX_FLAGS=-include {_header(folder)}"))


def _configured(folder: Path) -> str | None:
    """Those of the build in `folder`; None where there is none."""
    file = _options(folder)
    return file.read_text() if file.is_file() else None


def _download(python: Path, into: Path) -> Path:
    """The sdist, fetched by pip (which verifies its hash against the index)."""
    archive = into / f"llama_cpp_python-{VERSION}.tar.gz"
    if not archive.is_file():
        options = ["--no-deps", "--no-binary", "llama-cpp-python", "-d", into]
        pip = [python, "-m", "pip", "download", "-q"]
        _run("source", [*pip, *options, f"llama-cpp-python=={VERSION}"])
    return archive


def _unpack(archive: Path, into: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="data")


def _expose(python: Path, source: Path, binaries: Path) -> None:
    """Make the sdist's Python package importable, on the libraries just built."""
    libraries = source / "llama_cpp" / "lib"
    if not libraries.exists():
        libraries.symlink_to(os.path.relpath(binaries, libraries.parent))
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout
    (Path(site.strip()) / "llama_cpp_source.pth").write_text(f"{source}\n")
    _run("import", [python, "-c", "import llama_cpp; print('llama_cpp', llama_cpp.__version__)"])


def _say(text: str) -> None:
    print(f"peers: {text}", file=sys.stderr, flush=True)


def _run(step: str, command: list[object]) -> None:
    arguments = [str(part) for part in command]
    _say(f"{step}: {' '.join(arguments)}")
    start = time.perf_counter()
    if subprocess.run(arguments, check=False, stdout=sys.stderr).returncode != 0:
        raise SystemExit(f"peers: step '{step}' failed: {' '.join(arguments)}")
    _say(f"{step}: {time.perf_counter() - start:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    peers = build(options.folder, options.jobs)
    print(f"python with llama_cpp: {peers.python}")
    for tool in TOOLS:
        print(f"{tool}: {peers.tools / tool}")


if __name__ == "__main__":
    main()
