"""Runs a kernel on the CPU target and on the reference target, and compares.

What the CPU must not depend on is made hostile: scratch memory and outputs start as bytes 0xFF
(NaN), arrays end where an inaccessible page begins, what lies before them is checked afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import terrazzo.lang as tz
from terrazzo.ir.packed import Packed
from terrazzo.lang.bind import bind
from terrazzo.runtime import launch
from terrazzo.targets import reference
from terrazzo.targets.cpu import pool

PAGE = mmap.PAGESIZE
NUMPY: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "u8": np.uint8,
    "i32": np.int32, "u32": np.uint32, "bool": np.bool_,
}  # fmt: skip
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}  # relative error of one rounding
TINY = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}  # smallest denormal
NAME = {np.dtype(v): k for k, v in NUMPY.items()}
_libc = ctypes.CDLL(None)


def fenced(x: np.ndarray) -> np.ndarray:
    """A copy of x with its strides; its last byte is the last before an inaccessible page."""
    span = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)) + x.itemsize
    span = span if x.size else 0
    size = -(-max(span, 1) // PAGE) * PAGE
    memory = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(memory, np.uint8)
    whole[:size] = 0xFF
    if _libc.mprotect(ctypes.c_void_p(whole.ctypes.data + size), ctypes.c_size_t(PAGE), 0):
        raise OSError("mprotect failed")
    out = np.ndarray(x.shape, x.dtype, memory, size - span, x.strides)
    out[...] = x
    return out


def before(x: np.ndarray) -> np.ndarray:
    """The bytes of a fenced array's page that lie before it."""
    address = x.ctypes.data
    start = address // PAGE * PAGE
    return np.ctypeslib.as_array((ctypes.c_uint8 * (address - start)).from_address(start))


def empty(shape: int | tuple[int, ...], dtype: str = "f32") -> np.ndarray:
    """An output: every byte 0xFF."""
    shape = (shape,) if isinstance(shape, int) else shape
    n = int(np.prod(shape)) * np.dtype(NUMPY[dtype]).itemsize
    return np.full(n, 0xFF, np.uint8).view(NUMPY[dtype]).reshape(shape)


def run(made: launch.Launch, threads: int) -> None:
    """As launch.run, on scratch full of NaN."""
    each = -(-made.scratch // 64) * 64
    scratch = fenced(np.full(each * threads, 0xFF, np.uint8))
    control = np.zeros(8, np.int64)
    made.table[:4] = (scratch.ctypes.data, each, control.ctypes.data, 0)
    at = made.table.ctypes.data
    program = pool.Program([(phase, at) for phase in made.code.phases], control)
    pool.shared().run(program, threads)


def on_cpu(kernel: tz.Kernel, threads: int = 2, **args: Any) -> dict[str, Any]:
    """The outputs, by name; the arguments stay as they are."""
    shared: dict[int, np.ndarray] = {}

    def own(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return Packed(x.format, x.shape, x.data.copy()) if _is_out(x) else x
        return shared.setdefault(id(x), fenced(x))

    def _is_out(x: Any) -> bool:
        return isinstance(x, Packed) and x.format.name == "a8"

    mine = {n: own(x) for n, x in args.items()}
    made = launch.prepare(kernel, (), mine)
    run(made, threads)
    for x in shared.values():
        assert (before(x) == 0xFF).all(), "written before the start of an array"
    return {n: mine[n] for n in made.code.kernel.stored()}


def on_reference(kernel: tz.Kernel, **args: Any) -> dict[str, Any]:
    """The outputs, by name; the arguments stay as they are."""
    shared: dict[int, Any] = {}
    for x in args.values():
        if isinstance(x, np.ndarray):
            shared.setdefault(id(x), x.copy())
        elif isinstance(x, Packed):
            shared.setdefault(id(x), Packed(x.format, x.shape, x.data.copy()))
    b = bind(kernel, (), {n: shared.get(id(x), x) for n, x in args.items()})
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics)
    tensors = {n: t.array for n, t in b.tensors.items()}
    reference.run(ir, tensors, b.scalars)
    return {n: tensors[n] for n in ir.stored()}


def bits(x: np.ndarray | Packed) -> np.ndarray:
    """x as unsigned integers, every NaN the same one."""
    if isinstance(x, Packed):
        return x.data
    if NAME[x.dtype] in UNIT:
        x = np.where(np.isnan(x.astype(np.float32)), np.array(np.nan, x.dtype), x)
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def same(kernel: tz.Kernel, threads: int = 2, **args: Any) -> None:
    """Both targets give the same bits (any NaN for a NaN)."""
    got, want = on_cpu(kernel, threads, **args), on_reference(kernel, **args)
    assert got.keys() == want.keys() and got
    for name in want:
        a, b = bits(got[name]), bits(want[name])
        if not np.array_equal(a, b):
            at = tuple(int(i[0]) for i in np.nonzero(a != b))
            raise AssertionError(
                f"{kernel.name}: {(a != b).sum()} of {a.size} elements of {name} differ, first at "
                f"{at}: {got[name][at]!r}, the reference has {want[name][at]!r}"
            )


def close(
    kernel: tz.Kernel,
    slack: Callable[[np.ndarray], np.ndarray] | float = 0.0,
    threads: int = 2,
    **args: Any,
) -> None:
    """|cpu - reference| <= slack + a rounding each to the output's type; slack is absolute, or a
    function of the reference's result. NaN and infinities agree."""
    got, want = on_cpu(kernel, threads, **args), on_reference(kernel, **args)
    assert got.keys() == want.keys() and got
    for name in want:
        a, b = got[name].astype(np.float64), want[name].astype(np.float64)
        special = ~np.isfinite(a) | ~np.isfinite(b)
        assert np.array_equal(a[special], b[special], equal_nan=True), f"{kernel.name}: {name}"
        t = NAME[got[name].dtype]
        own = slack(b) if callable(slack) else np.full(b.shape, slack)
        bound = own + (np.abs(b) + own) * 2 * UNIT.get(t, 0.0) + TINY.get(t, 0.0)
        with np.errstate(invalid="ignore"):
            excess = np.where(special, -1.0, np.abs(a - b) - bound)
        at = np.unravel_index(int(np.argmax(excess)), excess.shape) if excess.size else ()
        assert excess.size == 0 or excess[at] <= 0, (
            f"{kernel.name}: {name}{list(map(int, at))} is {a[at]!r}, the reference has {b[at]!r}, "
            f"allowed {bound[at]!r}"
        )
