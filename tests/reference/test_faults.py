"""What the reference target finds, and the exact texts it says it with."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small import run

import terrazzo.lang as tz
from terrazzo.errors import ArgumentError, KernelError
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import Format
from terrazzo.targets import reference

n, m, k = tz.dims("n m k")
W = tz.dtypes("W", tz.q4_0)


@tz.kernel
def gather(x: tz.gm[tz.f32, m], at: tz.gm[tz.i32, n], out: tz.gm[tz.f32, n]):
    """out = x[at]."""
    for i in tz.grid(n, step=4):
        out[i] = tz.load(x[at[i]])


@tz.kernel
def shifted(x: tz.gm[tz.f32, n], out: tz.gm[tz.f32, n], by: tz.i32):
    """out[0:8] = x[by : by + 8], in blocks of 8."""
    for _ in tz.grid(1):
        for j in tz.loop(by, by + 8, of=n, step=8):
            out[j] = x[j]


@tz.kernel
def phases(
    x: tz.gm[tz.f32, m, n], work: tz.gm[tz.f32, m, n], out: tz.gm[tz.f32, m, n], upto: tz.i32
):
    """Writes rows 0 .. upto - 1 of work, then reads all of it."""
    for i in tz.grid(upto):
        work[i] = x[i] * 2.0
    for i in tz.grid(m, step=2):
        out[i] = work[i]


def fault(kernel: tz.Kernel, **args: Any) -> KernelError:
    with pytest.raises(KernelError) as e:
        run(kernel, **args)
    return e.value


def test_gather_out_of_bounds() -> None:
    at = np.array([0, 4, 2, 3, 1, -1, 9], np.int32)
    e = fault(gather, x=np.zeros(5, np.float32), at=at, out=np.zeros(7, np.float32))
    assert e.what == (
        "load of `x` is out of bounds: index -1 in dimension 0 (`m`), valid are 0..4 "
        "(2 of 3 indices)"
    )
    assert e.remedy == "check the index values or the table they come from"
    assert re.fullmatch(r".*test_faults\.py:\d+:18", e.where)
    assert e.source == "out[i] = tz.load(x[at[i]])"
    assert e.caret == "         ^^^^^^^^^^^^^^^^^"


@pytest.mark.parametrize(("by", "covers"), [(3, "3..10"), (-1, "-1..6")])
def test_block_out_of_bounds(by: int, covers: str) -> None:
    e = fault(shifted, x=np.zeros(10, np.float32), out=np.zeros(10, np.float32), by=by)
    assert (
        e.what
        == f"load of `x` is out of bounds: `j` covers {covers} of dimension 0 (`n`), valid are 0..9"
    )


def test_store_out_of_bounds() -> None:
    e = fault(phases, x=np.zeros((4, 3), np.float32), work=np.zeros((4, 3), np.float32),
              out=np.zeros((4, 3), np.float32), upto=5)  # fmt: skip
    assert e.what == "load of `x` is out of bounds: index 4 in dimension 0 (`m`), valid are 0..3"


def test_uninitialised_read() -> None:
    x = np.ones((5, 3), np.float32)
    run(phases, x=x, work=x.copy(), out=x.copy(), upto=5)
    e = fault(phases, x=x, work=x.copy(), out=x.copy(), upto=3)
    assert e.what == (
        "load of `work` reads 3 of 6 elements that were never written, first `work[3, 0]`"
    )
    assert e.remedy == "store them in an earlier grid of the kernel, or pass initialised memory"
    assert e.source == "out[i] = work[i]"


def test_caller_says_what_is_initialised() -> None:
    x = np.ones((5, 3), np.float32)
    ir = phases.specialise()
    args = {"x": x, "work": np.full((5, 3), 7, np.float32), "out": np.zeros_like(x)}
    reference.run(ir, args, {"upto": 3}, initialised={"work": True})
    assert args["out"][:, 0].tolist() == [2, 2, 2, 7, 7]
    mask = np.arange(5)[:, None] != 4
    with pytest.raises(KernelError, match=r"first `work\[4, 0\]`"):
        reference.run(ir, args, {"upto": 3}, initialised={"work": mask})
    with pytest.raises(KernelError, match=r"load of `x` reads 3 of 3 .* first `x\[0, 0\]`"):
        reference.run(ir, args, {"upto": 3}, initialised={"x": False})
    reference.run(ir, args, {"upto": 3}, initialised={"x": False}, check=False)


def test_in_place_reads_are_the_callers_data() -> None:
    @tz.kernel
    def double(x: tz.gm[tz.f32, n]):
        """x = 2 x."""
        for i in tz.grid(n, step=4):
            x[i] = x[i] * 2.0

    x = np.ones(6, np.float32)
    run(double, x=x)
    assert x.tolist() == [2] * 6


@pytest.mark.parametrize(
    ("fn", "b", "text"),
    [
        (lambda a, b: a // b, 0, "floordiv of integers by zero"),
        (lambda a, b: a % b, 0, "mod of integers by zero"),
        (lambda a, b: a << b, 32, "shl by 32 bits, valid are 0..31"),
        (lambda a, b: a >> b, -1, "shr by -1 bits, valid are 0..31"),
    ],
)
def test_undefined_integer_operations(fn: Callable, b: int, text: str) -> None:
    @tz.kernel
    def apply(a: tz.gm[tz.i32, n], b: tz.gm[tz.i32, n], out: tz.gm[tz.i32, n], fn: tz.const):
        """out = fn(a, b)."""
        for i in tz.grid(n, step=4):
            out[i] = fn(a[i], b[i])

    ones = np.ones(3, np.int32)
    with pytest.raises(KernelError) as e:
        run(apply, {"fn": fn}, a=ones, b=np.array([1, b, 1], np.int32), out=ones.copy())
    assert e.value.what == text


def test_packed_groups_are_whole() -> None:
    @tz.kernel
    def half(w: tz.gm[W, n, k], out: tz.gm[tz.f32, n, k]):
        """out = w, 48 columns at a time."""
        for i, j in tz.grid(n, k, step=(4, 48)):
            out[i, j] = w[i, j].to(tz.f32)

    w = Packed(formats.Q4_0.format, (2, 64), np.zeros((2, 36), np.uint8))
    e = fault(half, w=w, out=np.zeros((2, 64), np.float32))
    assert e.what == "load of `w` takes 0..47 of a q4_0 row, whose groups hold 32"
    assert e.remedy == "use a step that is a multiple of 32"


def test_quantize_needs_whole_groups() -> None:
    @tz.kernel
    def pack(x: tz.gm[tz.f32, m, n], out: tz.gm[tz.a8, m, n]):
        """out = x, 48 columns at a time."""
        for i, j in tz.grid(m, n, step=(4, 48)):
            out[i, j] = tz.quantize(x[i, j], tz.a8)

    out = Packed(formats.A8, (2, 96), np.zeros((2, formats.bytes_per_row("a8", 96)), np.uint8))
    e = fault(pack, x=np.zeros((2, 96), np.float32), out=out)
    assert e.what == "quantize to a8 of 48 values along `j`, whose groups hold 32"
    assert e.remedy == "use an extent that is a multiple of 32"


def test_arguments_that_do_not_fit() -> None:
    ir, x = gather.specialise(), np.zeros(5, np.float32)
    at = np.zeros(3, np.int32)
    cases = [
        ({"x": x, "at": at}, "gather: tensor `out` is missing"),
        (
            {"x": x, "at": at, "out": np.zeros(4, np.float32)},
            "gather: `out` has 4 along `n`, `at` has 3",
        ),
        ({"x": x, "at": at.astype(np.int64), "out": x[:3]}, "gather: `at` is int64, expected i32"),
        ({"x": x[None], "at": at, "out": x[:3]}, "gather: `x` has 2 dimensions, expected 1 (m)"),
    ]
    for tensors, text in cases:
        with pytest.raises(ArgumentError) as e:
            reference.run(ir, tensors)
        assert str(e.value) == text
    with pytest.raises(ArgumentError) as e:
        reference.run(shifted.specialise(), {"x": x, "out": x.copy()})
    assert str(e.value) == "shifted: scalar `by` is missing"


def test_repacked_weights_are_refused() -> None:
    @tz.kernel
    def decode(w: tz.gm[W, n, k], out: tz.gm[tz.f32, n, k]):
        """out = w."""
        for i in tz.grid(n, step=4):
            out[i] = w[i].to(tz.f32)

    fmt = Format("q4_0", 32, "p16")
    w = Packed(fmt, (2, 64), np.zeros((2, 36), np.uint8))
    with pytest.raises(ArgumentError, match="`w` has layout p16; the reference target reads rows"):
        reference.run(decode.specialise({"W": fmt}), {"w": w, "out": np.zeros((2, 64), np.float32)})
