"""The chips: clocks, cores, memories. Sources: CANN's platform files and the vendor's documents;
where two disagree, the one that measurements support.

All of them are of the 2201 generation (A2, A3): separate cube and vector cores that exchange data
through global memory only, no vector registers (the vector unit works from UB to UB).
"""

from __future__ import annotations

from dataclasses import dataclass

from terrazzo.errors import OptionError

KIB = 1024


@dataclass(frozen=True)
class Chip:
    """`mhz`: the cores' clock. `capacity`: bytes a space holds on one core. `hbm_tb_s`: the peak of
    device memory, `l2_bytes` and `hbm_bytes` sizes. `target`: AscendNPU-IR's name."""

    name: str
    target: str
    mhz: int
    cube_cores: int
    l2_bytes: int
    hbm_bytes: int
    hbm_tb_s: float

    @property
    def vector_cores(self) -> int:
        return 2 * self.cube_cores

    def cores(self, kind: str) -> int:
        return self.cube_cores if kind == "cube" else self.vector_cores

    @property
    def capacity(self) -> dict[str, int]:
        return CAPACITY

    def cube_tflops(self, macs_per_cycle: int) -> float:
        """The cube cores' peak, at MACs a cycle and core (`isa.MACS`)."""
        return 2 * macs_per_cycle * self.cube_cores * self.mhz / 1e6


# UB has 192 KiB, of which the run-time system keeps 8 KiB and 256 B unless a compiler is told not
# to; the vendor's AscendNPU-IR compiler plans with all of it, and so do we.
CAPACITY = {
    "UB": 192 * KIB,
    "L1": 512 * KIB,
    "L0A": 64 * KIB,
    "L0B": 64 * KIB,
    "L0C": 128 * KIB,
}
ALIGNMENT = {"GM": 1, "UB": 32, "L1": 32, "L0A": 512, "L0B": 512, "L0C": 64}  # of a start address
BLOCK = 32  # bytes: a data block, the unit of UB and L1
REPEAT = 256  # bytes a vector instruction works on in one repeat
FRACTAL_ROWS = 16  # a fractal is 16 rows of 32 bytes (L0C: 16 rows of 16 elements)
EVENTS = 8  # events a pair of pipes has; the compilers keep to 0..5
CROSS_FLAGS = 11
GIB = 1 << 30
MIB = 1 << 20

_CHIPS = [
    Chip("910b1", "Ascend910B1", 1850, 24, 192 * MIB, 64 * GIB, 1.76),
    Chip("910b2", "Ascend910B2", 1800, 24, 192 * MIB, 64 * GIB, 1.76),
    Chip("910b3", "Ascend910B3", 1800, 20, 192 * MIB, 64 * GIB, 1.76),
    Chip("910b4", "Ascend910B4", 1500, 20, 96 * MIB, 32 * GIB, 0.88),
    Chip("910_9391", "Ascend910_9391", 1850, 24, 192 * MIB, 64 * GIB, 1.76),
    Chip("910_9392", "Ascend910_9392", 1850, 24, 192 * MIB, 64 * GIB, 1.76),
]
CHIPS = {c.name: c for c in _CHIPS}
ALIASES = {"910c": "910_9392", **{c.target.lower(): c.name for c in _CHIPS}}


def chip(name: str) -> Chip:
    """The chip called `name` ("910b2", "Ascend910B2"). Raises OptionError naming those we know."""
    key = name.lower()
    found = CHIPS.get(ALIASES.get(key, key))
    if found is None:
        raise OptionError(f"there is no chip {name!r}", f"choose from {', '.join(CHIPS)}")
    return found
