"""Which instruction sets we generate for, what differs between them, and which one this machine
gets.

Everything else in the target writes 16-lane vectors; only the micro-kernels ask this table for
widths, register tiles and the integer dot instruction.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from terrazzo.errors import OptionError, PlatformError
from terrazzo.targets.cpu import host

IntDot = Literal["vnni", "maddubs", "plain"]


@dataclass(frozen=True)
class Isa:
    """An instruction set as the micro-kernels see it.

    `cpu`, `features`: LLVM's names for the code generator. `lanes`: f32 lanes of the registers f32
    dots are tiled for; `f32_tiles`: (rows, panels of 16) register tiles, most rows first.
    `int_dot`: how u8 x i8 products are summed; `int_lanes`: 32-bit lanes of one such instruction;
    `int_tiles`: (tokens, panels). Both lists end with one row. `prefetch`: while one row streams
    low-bit weights, the tile of panels that comes next is read ahead. `half`: f16 is converted by
    an instruction. `reason`: why this one was chosen, for `terrazzo doctor`.
    """

    name: str
    cpu: str
    features: str
    lanes: int
    f32_tiles: tuple[tuple[int, int], ...]
    int_dot: IntDot
    int_lanes: int
    int_tiles: tuple[tuple[int, int], ...]
    prefetch: bool = False
    half: bool = True
    reason: str = ""

    def why(self) -> str:
        """One line: the set, the machine's CPU and the reason."""
        return f"{self.name} on {self.cpu}: {self.reason}"


# name -> (what the CPU must have, fields of Isa)
_NEEDS: dict[str, tuple[str, ...]] = {
    "avx512vnni": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "f16c", "fma"),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "f16c", "fma"),
    "avx2": ("avx2", "f16c", "fma"),
    "plain": (),
}
_WIDE = ((6, 4), (2, 4), (1, 4))
_SHAPES: dict[str, dict[str, Any]] = {
    "avx512vnni": {"lanes": 16, "f32_tiles": _WIDE, "int_dot": "vnni", "int_lanes": 16,
                   "int_tiles": ((6, 2), (2, 4), (1, 4)), "prefetch": True},
    # without VNNI the 256-bit forms serve: sign transfer (vpsignb) has no 512-bit form
    "avx512": {"lanes": 16, "f32_tiles": _WIDE, "int_dot": "maddubs", "int_lanes": 8,
               "int_tiles": ((4, 1), (2, 2), (1, 4)), "prefetch": True},
    # Zen 3 streams at its read bandwidth without prefetches and 10 % slower with them
    "avx2": {"lanes": 8, "f32_tiles": ((6, 1), (2, 2), (1, 4)), "int_dot": "maddubs",
             "int_lanes": 8, "int_tiles": ((4, 1), (2, 2), (1, 4))},
    "plain": {"lanes": 16, "f32_tiles": ((4, 1), (1, 2)), "int_dot": "plain", "int_lanes": 16,
              "int_tiles": ((2, 1), (1, 1))},
}  # fmt: skip
NAMES = tuple(_NEEDS)


@cache
def host_features() -> frozenset[str]:
    """LLVM's names of the features this CPU (and its operating system) offers."""
    return frozenset(f[1:] for f in host.facts().features.split(",") if f[:1] == "+")


@cache
def detect(force: str = "") -> Isa:
    """The best set this machine runs, or the one named by `force`.

    Code for a forced set is generated for this machine's CPU, so it must be able to run it. Raises
    OptionError for an unknown name or one the CPU lacks features of, PlatformError off 64-bit x86
    and ARM.
    """
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64", "aarch64", "arm64"):
        raise PlatformError(f"CPU architecture {machine} is not supported", "use x86-64 or aarch64")
    cpu, features = host.facts().cpu, host.facts().features
    lacking = {n: [x for x in need if x not in host_features()] for n, need in _NEEDS.items()}
    half = machine in ("aarch64", "arm64") or "f16c" in host_features()
    if not force:
        best = next(n for n in NAMES if not lacking[n])
        better = NAMES[NAMES.index(best) - 1] if best != NAMES[0] else ""
        reason = (
            f"{better} needs {' '.join(lacking[better])}" if better else "every feature is there"
        )
        return Isa(best, cpu, features, half=half, reason=reason, **_SHAPES[best])
    if force not in _NEEDS:
        raise OptionError(f"unknown instruction set {force!r}", f"choose from {', '.join(NAMES)}")
    if lacking[force]:
        raise OptionError(f"this CPU ({cpu}) lacks {' '.join(lacking[force])} for {force}",
                          "let the set be detected")  # fmt: skip
    return Isa(force, cpu, features, half=half, reason="asked for", **_SHAPES[force])


def cross(name: str, cpu: str = "", features: str = "", half: bool = True) -> Isa:
    """Set `name` for another machine: to look at its code here, not to run it."""
    return Isa(name, cpu, features, half=half, reason="for another machine", **_SHAPES[name])
