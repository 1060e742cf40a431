"""Which instruction sets we generate for, what differs between them, and which one this machine
gets.

Everything else in the target writes 16-lane vectors; only the micro-kernels ask this table for
widths, register tiles and the integer dot instruction.

TERRAZZO_ISA=NAME in the environment asks for a set by name: the process then generates code that
uses nothing the set does not have, as if this CPU were an older one. It is read once a process.
"""

from __future__ import annotations

import logging
import os
import platform
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from terrazzo.errors import OptionError, PlatformError
from terrazzo.targets.cpu import host, matrix

IntDot = Literal["vnni", "maddubs", "smmla", "sdot", "plain"]


@dataclass(frozen=True)
class Isa:
    """An instruction set as the micro-kernels see it.

    `cpu`, `features`: LLVM's names for the code generator. `lanes`: f32 lanes of the registers f32
    dots are tiled for; `f32_tiles`: (rows, panels of 16) register tiles, most rows first.
    `int_dot`: how products of bytes are summed; `int_lanes`: 32-bit lanes of one such instruction;
    `int_tiles`: (tokens, panels). Both lists end with one row; panels are powers of two.
    `prefetch`: while rows go by low-bit weights, the same place of the tile of panels that comes
    next is read ahead; where `ahead` is not 0, a tile of one panel reads ahead so many bytes in the
    same stream instead, and only every second line.
    `f32_unroll`: steps along K in one block of code (LLVM loads a block's broadcasts first, which
    spills the sums where they fill the registers); `f32_depth`: so many steps of a tile's rows are
    copied side by side (a multiple of 16; 0: they are read where they lie). `scalef`: 2^n is
    multiplied by an instruction. `half`: f16 is converted by one. `matrix`: there are matrix tiles
    (AMX), which sum products of bf16, and of other floats as sums of bf16, in their own order (see
    micro_amx.py). `reason`: why this one was chosen, `masked`: features of this CPU that its code
    may not use; both for `terrazzo doctor`.
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
    ahead: int = 0
    f32_unroll: int = 4
    f32_depth: int = 0
    scalef: bool = False
    half: bool = True
    matrix: bool = False
    reason: str = ""
    masked: tuple[str, ...] = ()

    def instructions(self) -> dict[str, str]:
        """What sums the products of each weight format, in words."""
        libm = " (libm's fmaf where the CPU has none)" if self.name == "plain" else ""
        halves = "an instruction" if self.half else "integer steps"
        dot = f"{_INT_DOTS[self.int_dot]}, {self.int_lanes} lanes"
        signs = {"vnni": ", codes made unsigned", "maddubs": ", signs apart"}.get(self.int_dot, "")
        return {
            "f32": f"multiply-adds of {self.lanes} lanes{libm}",
            "f16": f"widened by {halves}, then as f32",
            "bf16": "widened by shifts, then as f32",
            **(_ON_TILES if self.matrix else {}),
            "q8_0, q6_k": dot + signs,
            "q4_0, q4_1": dot,
        }

    @property
    def target(self) -> str:
        """Whose defaults of constants apply (`tz.by_target`)."""
        return f"cpu.{self.name}"

    def why(self) -> str:
        """One line: the set, the machine's CPU and the reason."""
        return f"{self.name} on {self.cpu}: {self.reason}"


_ON_TILES = {
    "on tiles": "bf16 with bf16; f32 and f16 of many rows as sums of three and two bf16 (tdpbf16ps)"
}
_INT_DOTS = {
    "vnni": "vpdpbusd",
    "maddubs": "vpmaddubsw",
    "smmla": "smmla (sdot for one token)",
    "sdot": "sdot",
    "plain": "32-bit multiplications",
}
# features of this CPU that would serve and do not: `terrazzo doctor` names them
_UNUSED = ("amx-int8", "amx-bf16", "avx512bf16", "avx512fp16", "bf16", "sve", "sve2")
_VNNI = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "f16c", "fma")
# name -> what the CPU must have, best first
_NEEDS: dict[str, tuple[str, ...]] = {
    "amx": ("amx-tile", "amx-bf16", *_VNNI),
    "avx512vnni": _VNNI,
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "f16c", "fma"),
    "avxvnni": ("avx2", "avxvnni", "f16c", "fma"),
    "avx2": ("avx2", "f16c", "fma"),
    "neon_i8mm": ("neon", "dotprod", "i8mm"),
    "neon_dot": ("neon", "dotprod"),
    "plain": (),
}
# name -> how the features begin that came after the set: masked where it is asked for by name
_LATER: dict[str, tuple[str, ...]] = {
    "amx": (),
    "avx512vnni": ("amx",),
    "avx512": ("avx512vnni", "avx512bf16", "avx512fp16", "avxvnni", "avx10", "amx"),
    "avxvnni": ("avx512", "avxvnniint", "avxifma", "avxneconvert", "avx10", "amx"),
    "avx2": ("avx512", "avxvnni", "avxifma", "avxneconvert", "avx10", "amx"),
    "neon_i8mm": (),
    "neon_dot": ("i8mm", "sve2", "sme"),
    "plain": ("",),
}
_WIDE = ((14, 2), (4, 4), (3, 4), (2, 4), (1, 4))
_WITH_VNNI: dict[str, Any] = {
    "lanes": 16, "f32_tiles": _WIDE, "int_dot": "vnni", "int_lanes": 16,
    "int_tiles": ((6, 2), (5, 2), (4, 2), (3, 2), (2, 4), (1, 4)), "prefetch": True,
    "f32_unroll": 1, "f32_depth": 512, "scalef": True,
}  # fmt: skip
_SHAPES: dict[str, dict[str, Any]] = {
    "amx": {**_WITH_VNNI, "matrix": True},
    "avx512vnni": _WITH_VNNI,
    # without VNNI the 256-bit forms serve: sign transfer (vpsignb) has no 512-bit form
    "avx512": {"lanes": 16, "f32_tiles": _WIDE, "int_dot": "maddubs", "int_lanes": 8,
               "int_tiles": ((4, 1), (2, 2), (1, 4)), "prefetch": True, "f32_unroll": 1,
                   "f32_depth": 512, "scalef": True},
    # not yet measured on a chip without AVX-512
    "avxvnni": {"lanes": 8, "f32_tiles": ((6, 1), (2, 2), (1, 4)), "int_dot": "vnni",
                "int_lanes": 8, "int_tiles": ((4, 1), (2, 2), (1, 4))},
    # Zen 3 streams at its read bandwidth without prefetches and 10 % slower with them
    "avx2": {"lanes": 8, "f32_tiles": ((6, 1), (2, 2), (1, 4)), "int_dot": "maddubs",
             "int_lanes": 8, "int_tiles": ((4, 1), (2, 2), (1, 4))},
    # 32 registers of 4 lanes; chosen by counting registers, not yet measured on a chip
    "neon_i8mm": {"lanes": 4, "f32_tiles": ((6, 1), (2, 2), (1, 2)), "int_dot": "smmla",
                  "int_lanes": 4, "int_tiles": ((4, 1), (2, 1), (1, 2)), "f32_unroll": 1},
    "neon_dot": {"lanes": 4, "f32_tiles": ((6, 1), (2, 2), (1, 2)), "int_dot": "sdot",
                 "int_lanes": 4, "int_tiles": ((2, 1), (1, 2)), "f32_unroll": 1},
    "plain": {"lanes": 16, "f32_tiles": ((4, 1), (1, 2)), "int_dot": "plain", "int_lanes": 16,
              "int_tiles": ((2, 1), (1, 1))},
}  # fmt: skip
# Chips that want other shapes for a set. Zen 4 waits for few lines of memory at a time, those read
# ahead among them; one stream, of which every second line is asked for, lets the prefetcher behind
# L2 bring the rest (decoding 3 to 16 % faster; with every line nothing sure: NOTES.md). It
# stores 512 bits in two cycles, so that sums of six rows, which do not all stay in registers, cost
# more than those of four (4 to 7 %).
_CHIPS: dict[tuple[str, str], dict[str, Any]] = {
    ("avx512vnni", "znver4"): {
        "ahead": 2048, "int_tiles": ((4, 2), (3, 2), (2, 2), (1, 1)),
    },
}  # fmt: skip
NAMES = tuple(_NEEDS)
_log = logging.getLogger(__name__)
SWITCH = "TERRAZZO_ISA"


def _shape(name: str, cpu: str) -> dict[str, Any]:
    return _SHAPES[name] | _CHIPS.get((name, cpu), {})


def names(arm: bool) -> tuple[str, ...]:
    """The sets of an architecture, best first."""
    return tuple(n for n in NAMES if n == "plain" or n.startswith("neon") == arm)


@cache
def host_features() -> frozenset[str]:
    """LLVM's names of the features this CPU (and its operating system) offers."""
    return frozenset(f[1:] for f in host.facts().features.split(",") if f[:1] == "+")


def lacking(name: str) -> list[str]:
    """What keeps this CPU and its system from running set `name`. Asks Linux for the matrix tiles
    if nothing else is missing."""
    missing = [x for x in _NEEDS[name] if x not in host_features()]
    if missing or "amx-tile" not in _NEEDS[name]:
        return missing
    refused = matrix.refused()
    return [f"leave to use amx-tile ({refused})"] if refused else []


@cache
def detect(force: str = "") -> Isa:
    """The set named by `force`, or else by TERRAZZO_ISA, or else the best this machine runs.

    Code for a set that is named is tuned for this CPU but uses no feature that came after the set:
    the CPU must be able to run it. Raises OptionError for an unknown name or one the CPU lacks
    features of, PlatformError off 64-bit x86 and ARM.
    """
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64", "aarch64", "arm64"):
        raise PlatformError(f"CPU architecture {machine} is not supported", "use x86-64 or aarch64")
    arm = machine in ("aarch64", "arm64")
    cpu, features = host.facts().cpu, host.facts().features
    ours, half = names(arm), arm or "f16c" in host_features()
    name, why = (
        (force, "asked for") if force else (os.environ.get(SWITCH, ""), f"{SWITCH} asks for it")
    )
    if not name:
        best = next(n for n in ours if not lacking(n))
        better = ours[ours.index(best) - 1] if best != ours[0] else ""
        reason = (
            f"{better} needs {' '.join(lacking(better))}" if better else "every feature is there"
        )
        if best == "plain":
            _log.warning("plain code runs, many times slower: %s", reason)
        return Isa(best, cpu, features, half=half, reason=reason, **_shape(best, cpu))
    where = "" if force else f" ({SWITCH})"
    if name not in ours:
        raise OptionError(
            f"unknown instruction set {name!r}{where}", f"choose from {', '.join(ours)}"
        )
    if missing := lacking(name):
        raise OptionError(f"this CPU ({cpu}) lacks {' '.join(missing)} for {name}{where}",
                          "let the set be detected")  # fmt: skip
    masked = tuple(sorted(x for x in host_features() if x.startswith(_LATER[name])))
    if name == "plain":
        cpu, features, half = "generic" if arm else "x86-64", "", arm
    else:
        features = ",".join(f"-{x[1:]}" if x[1:] in masked else x for x in features.split(","))
    return Isa(name, cpu, features, half=half, reason=why, masked=masked, **_shape(name, cpu))


def unused(isa: Isa) -> list[str]:
    """Features of this CPU for such work that are not masked and that no set makes use of."""
    used = _NEEDS[isa.name]
    return [x for x in _UNUSED if x in host_features() and x not in (*isa.masked, *used)]


def runnable() -> tuple[str, ...]:
    """Names of the sets this CPU can run, best first."""
    return tuple(n for n in NAMES if not lacking(n))


def cross(name: str, cpu: str = "", features: str = "", half: bool = True) -> Isa:
    """Set `name` for another machine: to look at its code here, not to run it."""
    return Isa(name, cpu, features, half=half, reason="for another machine", **_shape(name, cpu))
