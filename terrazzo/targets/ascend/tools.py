"""The vendor's compiler: where its binaries are, and running its passes on a module.

The route is `bishengir-opt` with the memory-level pipeline: `bishengir-compile` on the same input
crashes at times, swallows messages and can corrupt the module that it hands on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from terrazzo.errors import OptionError

_SECONDS = 120  # of one run; it takes a tenth of a second
# What a compiler of CANN calls itself; anything else makes the passes write a form of old.
HIVMC_VERSION = "0.2.0"
_PLANNED = "convert-hivm-to-std"  # the pass that turns planned operations into library calls


@dataclass(frozen=True)
class Toolchain:
    """The installed wheel. `hivmc`: CANN's code generator, if PATH has one."""

    root: Path
    hivmc: Path | None = None

    @property
    def opt(self) -> Path:
        return self.root / "bin" / "bishengir-opt"

    @property
    def compiler(self) -> Path:
        return self.root / "bin" / "bishengir-compile"

    @property
    def libraries(self) -> tuple[Path, ...]:
        """Bitcode with the functions that lowered modules call, for cube and vector cores."""
        return tuple(self.root / "lib" / f"meta_op.{core}.bc" for core in ("aic", "aiv"))


def find() -> Toolchain:
    """The toolchain of this Python environment. Raises OptionError if it is not installed."""
    spec = find_spec("ascendnpuir")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    hivmc = shutil.which("hivmc")
    for root in map(Path, roots):
        found = Toolchain(root, Path(hivmc) if hivmc else None)
        if found.opt.is_file():
            return found
    raise OptionError(
        "the AscendNPU-IR compiler is not installed", "pip install 'terrazzo[ascend]'"
    )


@dataclass(frozen=True)
class Passed:
    """What the passes made of a module. `planned`: before library calls, in MLIR's generic form
    with places ("" if they did not get there); `lowered`: after them; `messages`: all they said;
    `code`: the exit status, 0 also after some errors; negative: a signal's number."""

    planned: str
    lowered: str
    messages: str
    code: int


def run_passes(text: str, target: str, tools: Toolchain) -> Passed:
    """Runs the vendor's passes for `target` ("Ascend910B2") on `text`, a module of HIVM on memrefs.
    Raises OptionError when the compiler does not finish in time or cannot be run."""
    with tempfile.TemporaryDirectory(prefix="terrazzo-ascend-") as folder:
        # In the module's own folder: that is where a crash leaves what it writes.
        here = Path(folder)
        (here / "kernel.mlir").write_text(text)
        command = [
            str(tools.opt),
            "kernel.mlir",
            "--canonicalize-module",
            f"--hacc-append-device-spec=target={target}",
            "--optimize-hivm-pipeline=disable-hivm-tensor-compile=true "
            f"hivmc-version={HIVMC_VERSION}",
            f"--mlir-print-ir-before={_PLANNED}",
            "--mlir-print-op-generic",
            "--mlir-print-debuginfo",
            "-o",
            "lowered.mlir",
        ]
        done = _run(command, here)
        lowered = here / "lowered.mlir"
        planned, messages = _split(done.stderr)
        return Passed(
            planned, lowered.read_text() if lowered.exists() else "", messages, done.returncode
        )


def _split(output: str) -> tuple[str, str]:
    """The printed module and the messages around it. A dump starts with its own head line; it and
    its places end with the first empty line after the module."""
    head = "// -----// IR Dump"
    if head not in output:
        return "", output
    before, _, rest = output.partition(head)
    _, _, dump = rest.partition("\n")
    module, _, after = dump.partition("\n\n")
    return module + "\n", before + after


@dataclass(frozen=True)
class HandOver:
    """`text`: the module as the code generator gets it. `object`: what it made, if it was there."""

    text: str
    object: bytes | None = None


def hand_over(lowered: str, target: str, tools: Toolchain) -> HandOver:
    """Gives a lowered module to CANN's code generator, if PATH has it. Raises OptionError if that
    fails, or if what is handed over cannot be read back."""
    with tempfile.TemporaryDirectory(prefix="terrazzo-ascend-") as folder:
        here = Path(folder)
        (here / "kernel.mlir").write_text(lowered)
        command = [
            str(tools.compiler),
            "kernel.mlir",
            f"--target={target}",
            "--enable-hivm-compile=false",
            "--enable-hfusion-compile=false",
            f"--save-temps={here}",
            "-o",
            "kernel.o",
        ]
        if tools.hivmc is None:
            command.insert(2, f"--hivmc-version={HIVMC_VERSION}")
        done = _run(command, here)
        handed, made = here / "module.hivm.opt.mlir", here / "kernel.o"
        again = _run([str(tools.opt), handed.name, "-o", "again.mlir"], here)
        if again.returncode:  # the compiler edits the module as text on its way
            raise OptionError(
                f"what bishengir-compile hands on cannot be read ({_last(again.stderr)})",
                "please report it with the kernel",
            )
        if tools.hivmc is None:
            return HandOver(handed.read_text())
        if not made.exists():
            raise OptionError(
                f"hivmc made no object ({_last(done.stderr)})",
                "see its message, or use another CANN",
            )
        return HandOver(handed.read_text(), made.read_bytes())


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    name = Path(command[0]).name
    try:
        return subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OptionError(
            f"{name} did not finish within {_SECONDS} s", "make the kernel smaller"
        ) from None
    except OSError as e:
        raise OptionError(
            f"{command[0]} cannot be run ({e})", "reinstall ascendnpu-ir for this system"
        ) from None


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]
