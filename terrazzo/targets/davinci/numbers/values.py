"""What each instruction does to memory: numbers, one NumPy operation a region.

Rounding: floats of 16 bits widen to f32, the operation is f32's, and one rounding follows. Sums
(`vreduce`, the cube) accumulate in f32, or i32 for integers, and round once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from terrazzo.targets.davinci.chips import BLOCK
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.numbers.memory import POISON, Array, Piece, Region
from terrazzo.targets.davinci.program import Instr

Input = Region | int | float
_EXACT = 1024  # products of two i8 that f32 adds up exactly: 2^10 · 2^14 = 2^24


def execute(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    """Runs one instruction. Regions lie within their memories and their sizes agree
    (`shapes.disagreement`); `out` is not empty. Raises ValueError for an attribute without a
    meaning."""
    rule = _RULES.get(s.op, _elementwise)
    rule(s, out, ins)


def wide(a: Array) -> Array:
    """A 16-bit float as f32 (exact); anything else unchanged."""
    return a.astype(np.float32) if a.dtype.itemsize == 2 and a.dtype.kind not in "iu" else a


def cast(a: Array, to: np.dtype, how: str = "rint") -> Array:
    """`a` converted to `to`. `how`: "rint" (ties to even), "trunc", "floor", "round" (ties away
    from zero): to an integer it is rounded like this and saturated, NaN gives 0. To a float:
    nearest, ties to even. Integers wrap. Raises ValueError for another rounding."""
    if how not in _ROUNDINGS:
        raise ValueError(f"vcast: no rounding is called {how!r}")
    a = wide(a)
    if a.dtype.kind == "f" and to.kind in "iu":
        bounds = np.iinfo(to)
        whole = np.clip(_ROUNDINGS[how](a.astype(np.float64)), bounds.min, bounds.max)
        return np.where(np.isnan(a), 0, whole).astype(to)
    return a.astype(np.float32).astype(to) if to.itemsize == 2 else a.astype(to)


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "rint": np.rint,
    "trunc": np.trunc,
    "floor": np.floor,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}
_COMPARE: dict[object, Callable[..., Array]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_REDUCE: dict[object, Callable[..., Array]] = {
    "sum": np.add.reduce, "max": np.maximum.reduce, "min": np.minimum.reduce,
}  # fmt: skip


def _named(s: Instr, attr: str, table: dict[object, Callable[..., Array]]) -> Callable[..., Array]:
    name = s.attr(attr)
    if name not in table:
        raise ValueError(f"{s.op}: {attr}={name!r} is none of {', '.join(map(str, table))}")
    return table[name]


def _region(s: Instr, x: Input) -> Region:
    if not isinstance(x, Region):
        raise ValueError(f"{s.op} takes no scalar in the place of {x}")
    return x


def _values(ins: Sequence[Input]) -> list[Array]:
    """The operands as arrays; scalars in the type of the first operand in memory, widened."""
    kind = next((x.numpy for x in ins if isinstance(x, Region)), np.dtype(np.float32))
    return [
        wide(x.read()) if isinstance(x, Region) else wide(np.asarray(x).astype(kind)) for x in ins
    ]


def _elementwise(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    meaning = TABLE[s.op].meaning
    if meaning is None:
        raise ValueError(f"{s.op} has no meaning")
    out.write(np.asarray(meaning(*_values(ins))).astype(out.numpy, copy=False))


def _cast(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    out.write(cast(_region(s, ins[0]).read(), out.numpy, str(s.attr("round", "rint"))))


def _fill(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    a = ins[0]
    out.write(a.read() if isinstance(a, Region) else np.asarray(a).astype(out.numpy))


def _arange(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    start: Any = ins[0]
    if isinstance(start, Region):
        raise ValueError("varange starts at a scalar")
    out.write((start + np.arange(out.shape[-1])).astype(out.numpy))


def _compare(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    out.write(_named(s, "mode", _COMPARE)(*_values(ins)))


def _select(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    condition, *rest = ins
    yes, no = (x.read() if isinstance(x, Region) else np.asarray(x).astype(out.numpy) for x in rest)
    out.write(np.where(_region(s, condition).read(), yes, no))


def _reduce(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    (a,) = _values(ins)
    axis: Any = s.attr("axis", -1)
    total = _named(s, "kind", _REDUCE)(a, axis=axis, keepdims=True, dtype=a.dtype)
    out.write(total.astype(out.numpy))


def _move(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    value = _region(s, ins[0]).read()
    if value.dtype != out.numpy:  # vcopy with bits=1: the same bytes under another type
        value = value.view(out.numpy)
    out.write(value.T if s.attr("transpose") else value)


def _load(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    """A transfer fills whole blocks of 32 bytes: what lies behind a row is lost."""
    tail = row_tails(out)
    if tail is not None:
        np.ndarray(tail.shape, np.uint8, out.memory.data, tail.start, tail.strides)[...] = POISON  # type: ignore[arg-type]
    _move(s, out, ins)


def row_tails(out: Region) -> Piece | None:
    """The bytes between the ends of a load's rows in UB and their last 32-byte blocks' ends; None
    if there are none, or no room for them. They are part of the row's slot."""
    if not out.runs:
        return None
    run = out.runs[0]
    tail = -run.shape[-1] % BLOCK
    outer = run.strides[:-1]
    start = run.start + run.shape[-1]
    last = start + sum((n - 1) * s for n, s in zip(run.shape[:-1], outer, strict=True))
    if (
        not tail
        or last + tail > len(out.memory.data)
        or any(s < run.shape[-1] + tail for s in outer[-1:])
    ):
        return None
    return Piece(start, (*run.shape[:-1], tail), (*outer, 1))


def _fixpipe(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    value = _region(s, ins[0]).read()
    scale: Any = s.attr("scale")
    if scale is not None:
        value = value.astype(np.float32) * np.float32(scale)
    if s.attr("relu"):
        value = np.maximum(value, 0)
    out.write(cast(value, out.numpy))


def _product(s: Instr, out: Region, ins: Sequence[Input]) -> None:
    left, right, first = _region(s, ins[0]).read(), _region(s, ins[1]).read(), ins[2]
    left = left.T if s.attr("transpose_a") else left
    right = right.T if s.attr("transpose_b") else right
    integer = left.dtype.kind in "iu"
    k = left.shape[1]
    step = _EXACT if integer else max(k, 1)
    left, right = left.astype(np.float32), right.astype(np.float32)
    total = np.zeros(out.shape, out.numpy) if first else out.read()
    for i in range(0, k, step):
        part = left[:, i : i + step] @ right[i : i + step]
        total = (wide(total) + part.astype(wide(total).dtype)).astype(out.numpy)
    out.write(total)


_RULES: dict[str, Callable[[Instr, Region, Sequence[Input]], None]] = {
    "load": _load, "store": _move, "nd2nz": _move, "load_nz": _move, "l1_to_l0a": _move,
    "l1_to_l0b": _move, "vcopy": _move, "fixpipe": _fixpipe, "mmad": _product, "mmad_l1": _product,
    "vcast": _cast, "vbrc": _fill, "varange": _arange, "vcmp": _compare, "vsel": _select,
    "vreduce": _reduce,
}  # fmt: skip
