"""The micro-kernels of the CPU's Cube: tile-level functions as LLVM text, one per ISA and element
type.

Each generator returns a `Micro`: an internal function to append to a module (`module_text` joins
several) and call by name. Their docstrings are the contracts of the generated functions.
"""

from terrazzo.targets.cpu.micro_amx import dot_tiles
from terrazzo.targets.cpu.micro_base import Micro, module_text
from terrazzo.targets.cpu.micro_convert import decode_panel, decode_row, quantize_a8
from terrazzo.targets.cpu.micro_f32 import dot_f32
from terrazzo.targets.cpu.micro_q import dot_q
from terrazzo.targets.cpu.planes import pair_panel

__all__ = [
    "Micro", "decode_panel", "decode_row", "dot_f32", "dot_q", "dot_tiles", "module_text",
    "pair_panel", "quantize_a8",
]  # fmt: skip
