"""The instructions of a DaVinci core: one table for the checker, the simulator and the printer.

Moves and the cube have rules of their own (their entry says which operands they take); everything
on the V pipe works element by element on views in UB, at one to seven cycles a repeat of 256 bytes.
Cycles are those without bank conflicts; sources: the vendor's measured tables for 910B1 and B3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.ir.types import DType, bf16, bool_, f16, f32, i8, i16, i32, u8, u32
from terrazzo.targets.davinci.program import Pipe, Space

Array = Any  # an ndarray


@dataclass(frozen=True)
class Spec:
    """`spaces`: where (out, in …) lie; a scalar operand may stand for the last input of a V
    instruction whose `scalar` is true (for any one of vsub and vdiv, for both values of vsel).
    `dtypes`: of the inputs; the output has the same unless `result` says another. `meaning`: NumPy
    arrays, broadcast to the output's sizes -> array, in the output's type after rounding; None
    where the simulator has rules (moves, cube, reductions).
    `cycles`: per repeat, by bytes of the widest element. `hivm`: AscendNPU-IR's operation.
    """

    pipe: Pipe
    spaces: tuple[Space, ...]
    dtypes: tuple[DType, ...]
    meaning: Callable[..., Array] | None = None
    cycles: dict[int, float] | None = None
    scalar: bool = False
    result: DType | None = None
    hivm: str = ""


# Multiply-adds a cycle of one cube core, by the bits of an input element.
MACS = {8: 8192, 16: 4096, 32: 1024}
VECTOR_HEAD = 24.4  # cycles before the first repeat of a V instruction that starts an idle pipe

_FLOATS = (f16, f32)
_NUMBERS = (f16, f32, i16, i32)
_WORDS = (i16, i32, u32)
_ALL = (f16, bf16, f32, i8, u8, i16, i32, u32)
_ONE = {2: 1.0, 4: 1.0, 1: 1.0}


def _v1(meaning: Callable[..., Array], hivm: str, dtypes: tuple[DType, ...] = _FLOATS,
        cycles: dict[int, float] = _ONE) -> Spec:  # fmt: skip
    return Spec("V", ("UB", "UB"), dtypes, meaning, cycles, hivm=hivm)


def _v2(meaning: Callable[..., Array], hivm: str, dtypes: tuple[DType, ...] = _NUMBERS,
        cycles: dict[int, float] = _ONE, result: DType | None = None) -> Spec:  # fmt: skip
    return Spec(
        "V", ("UB", "UB", "UB"), dtypes, meaning, cycles, scalar=True, result=result, hivm=hivm
    )


def _bits(meaning: Callable[..., Array], hivm: str, cycles: dict[int, float] = _ONE) -> Spec:
    return Spec("V", ("UB", "UB", "UB"), (*_WORDS, bool_), meaning, cycles, hivm=hivm)


def _arithmetic_right(a: Array, b: Array) -> Array:
    signed = a.view(np.int32) if a.dtype == np.uint32 else a
    return (signed >> b.astype(signed.dtype)).view(a.dtype)


TABLE: dict[str, Spec] = {
    # Moves. `load`, `store`: up to three dimensions, the innermost of stride 1; conversion none.
    "load": Spec("MTE2", ("UB", "GM"), (f16, bf16, f32, i8, u8, i32, u32), hivm="load"),
    "store": Spec("MTE3", ("GM", "UB"), (f16, bf16, f32, i8, u8, i32, u32), hivm="store"),
    # GM rows [r, c] -> L1 NZ [r, c]; columns past the source's are left as they are.
    "nd2nz": Spec("MTE2", ("L1", "GM"), (f16, bf16, f32, i8), hivm="nd2nz"),
    # GM that is NZ already (a fractal view) -> L1.
    "load_nz": Spec("MTE2", ("L1", "GM"), (f16, bf16, f32, i8), hivm="load"),
    # L1 NZ [m, k] -> L0A [m, k]; L1 NZ [k, n], or [n, k] with `transpose`, -> L0B [k, n].
    "l1_to_l0a": Spec("MTE1", ("L0A", "L1"), (f16, bf16, f32, i8)),
    "l1_to_l0b": Spec("MTE1", ("L0B", "L1"), (f16, bf16, f32, i8)),
    # L0C [m, n] -> GM [m, n]; casts to the output's type; attrs: relu, scale (i32 -> f16).
    "fixpipe": Spec("FIX", ("GM", "L0C"), (f32, i32), hivm="fixpipe"),
    # Cube. out[m, n] (+)= a[m, k] · b[k, n]; ins = a, b, first: 1 starts the sum anew. attrs of
    # mmad_l1: transpose_a (a is [k, m]), transpose_b (b is [n, k]).
    "mmad_l1": Spec("M", ("L0C", "L1", "L1"), (f16, bf16, f32, i8), hivm="mmadL1"),
    "mmad": Spec("M", ("L0C", "L0A", "L0B"), (f16, bf16, f32, i8)),
    # Vector, one source.
    "vexp": _v1(np.exp, "vexp", cycles={2: 3.9, 4: 2.0}),
    "vln": _v1(np.log, "vln", cycles={2: 3.9, 4: 2.0}),
    "vabs": _v1(np.abs, "vabs"),
    "vrec": _v1(np.reciprocal, "vrec"),
    "vrsqrt": _v1(lambda a: 1 / np.sqrt(a), "vrsqrt"),
    "vsqrt": _v1(np.sqrt, "vsqrt", cycles={2: 4.0, 4: 2.0}),
    "vrelu": _v1(lambda a: np.maximum(a, 0), "vrelu", _NUMBERS),
    "vnot": _v1(np.bitwise_not, "vnot", (*_WORDS, bool_)),
    "vcopy": _v1(lambda a: a, "copy", (*_ALL, bool_)),
    # out = a in the output's type. attrs: round ("rint", "trunc", "floor", "round").
    "vcast": _v1(lambda a: a, "vcast", (*_ALL, bool_)),
    # out = the scalar, or the one source, repeated along dimensions where the source has 1.
    "vbrc": Spec(
        "V",
        ("UB", "UB"),
        _ALL,
        lambda a: a,
        _ONE,
        scalar=True,
        hivm="vbrc",
    ),  # fmt: skip
    # out[i, …] = start + i along the innermost dimension; ins = start (a scalar).
    "varange": Spec("V", ("UB", "UB"), (i32, f32), None, _ONE, scalar=True, hivm="varange"),
    # Two sources, the second one perhaps a scalar.
    "vadd": _v2(np.add, "vadd"),
    "vsub": _v2(np.subtract, "vsub"),
    "vmul": _v2(np.multiply, "vmul"),
    "vmax": _v2(np.maximum, "vmax"),
    "vmin": _v2(np.minimum, "vmin"),
    "vdiv": _v2(np.divide, "vdiv", _FLOATS, {2: 4.1, 4: 4.0}),
    # The distance of a shift is a scalar; vshr repeats the sign's bit, of a u32 too.
    "vshl": _v2(np.left_shift, "vshl", _WORDS),
    "vshr": _v2(_arithmetic_right, "vshr", _WORDS),
    # Both are views. vxor (as vcmp and vsel) repeats nothing: its operands have the output's sizes.
    "vand": _bits(np.bitwise_and, "vand"),
    "vor": _bits(np.bitwise_or, "vor"),
    "vxor": _bits(np.bitwise_xor, "vxor", {2: 4.0, 4: 4.0, 1: 4.0}),
    # Comparison of floats, or of i32 and u32 for eq and ne: attrs: mode (lt le gt ge eq ne). The
    # output has a bit an element: `bool` of the tile IR, kept by the simulator as one byte an
    # element, counted as one bit.
    "vcmp": Spec(
        "V",
        ("UB", "UB", "UB"),
        (f16, f32, i32, u32),
        None,
        _ONE,
        scalar=True,
        result=bool_,
        hivm="vcmp",
    ),  # fmt: skip
    # out = ins[0] ? ins[1] : ins[2].
    "vsel": Spec(
        "V",
        ("UB", "UB", "UB", "UB"),
        (f16, bf16, f32, i16, i32, u32),
        None,
        _ONE,
        scalar=True,
        hivm="vsel",
    ),  # fmt: skip
    # Reduction of the innermost dimension: out has 1 there. attrs: kind (sum, max, min).
    "vreduce": Spec("V", ("UB", "UB"), _NUMBERS, None, {2: 7.0, 4: 3.0}, hivm="vreduce"),
}
