"""Binding of arguments, and the texts of its errors."""

import ml_dtypes
import numpy as np
import pytest
import sample as s

import terrazzo.lang as tz
from terrazzo.errors import ArgumentError
from terrazzo.ir.types import Format, bf16, f16, f32
from terrazzo.lang.bind import bind


def zeros(*shape: int, dtype: object = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]


class PackedTensor:
    def __init__(self, name: str, group: int, layout: str, *shape: int) -> None:
        self.format = Format(name, group, layout)
        self.shape = shape


def test_types_dims_and_strides() -> None:
    x = zeros(6, 32, dtype=np.float16)[::2, :16]
    b = bind(s.rms_norm, (x, zeros(16)), {"out": zeros(3, 16, dtype=np.float16), "eps": 1e-5})
    assert b.dtypes == {"T": f16}
    assert b.dims == {"rows": 3, "dim": 16}
    assert b.tensors["x"].strides == (64, 1)
    assert b.scalars == {"eps": 1e-5}
    assert b.consts == {} and b.present == set()


def test_bfloat16_and_optional_and_const() -> None:
    a, w = zeros(2, 64), zeros(3, 64, dtype=ml_dtypes.bfloat16)
    b = bind(s.linear, (a, w, zeros(2, 3)), {"bias": zeros(3), "act": tz.silu})
    assert b.dtypes == {"A": f32, "W": bf16, "T": f32}
    assert b.present == {"bias"} and b.consts == {"act": tz.silu}


def test_packed() -> None:
    w = PackedTensor("q4_1", 32, "p16", 3, 64)
    b = bind(s.linear, (zeros(2, 64), w, zeros(2, 3)), {})
    assert b.dtypes["W"] == w.format and b.tensors["w"].strides is None
    s.linear.specialise(b.dtypes)


def test_static_dim() -> None:
    (d,) = tz.dims("d", static=True)

    @tz.kernel
    def double(x: tz.gm[tz.f32, s.n, d], out: tz.gm[tz.f32, s.n, d]):
        for i in tz.grid(s.n, step=4):
            out[i] = x[i] + x[i]

    b = bind(double, (zeros(5, 8), zeros(5, 8)), {})
    assert b.statics == {"d": 8} and b.dims == {"n": 5, "d": 8}


def test_size_one_axes_have_no_stride() -> None:
    x = np.lib.stride_tricks.as_strided(zeros(16), (1, 16), (3, 4))
    b = bind(s.rms_norm, (x, zeros(16), zeros(1, 16), 0.0), {})
    assert b.tensors["x"].strides == (0, 1)


def add(a: object = None, b: object = None, out: object = None, **kw: object) -> None:
    ok = zeros(8)
    pick = [ok if v is None else v for v in (a, b, out)]
    bind(s.add, pick, kw)


ERRORS = {
    "rank": (
        lambda: add(b=zeros(2, 8)),
        "argument `b` of `add`: expected rank 1: a f32 array [n], got rank 2: float32 [2, 8]",
    ),
    "dtype": (
        lambda: add(a=zeros(8, dtype=np.float64)),
        "argument `a` of `add`: expected a f32 array [n], got float64",
    ),
    "dtype of choice": (
        lambda: bind(s.rms_norm, (zeros(2, 8, dtype=np.int32), zeros(8), zeros(2, 8), 0.1), {}),
        "argument `x` of `rms_norm`: expected a f32 or f16 or bf16 array [rows, dim], "
        "got int32 [2, 8]",
    ),
    "types disagree": (
        lambda: bind(s.rms_norm, (zeros(2, 8), zeros(8), zeros(2, 8, dtype=np.float16), 0.1), {}),
        "argument `out` of `rms_norm`: expected f32 as `x` has (both are T), got f16",
    ),
    "dims disagree": (
        lambda: add(b=zeros(9)),
        "argument `b` of `add`: expected `n` = 8 as in `a`, got 9",
    ),
    "stride": (
        lambda: add(a=zeros(16)[::2]),
        "argument `a` of `add`: expected axis `n` (the innermost) to be contiguous, "
        "its stride there is 8 bytes, not 4",
    ),
    "not an array": (
        lambda: add(a="x"),
        "argument `a` of `add`: expected a f32 array [n], got 'x'",
    ),
    "unknown": (
        lambda: add(tile=3),
        "kernel `add` has no parameter `tile`; it has: a, b, out, TILE",
    ),
    "missing": (
        lambda: bind(s.add, (zeros(8),), {}),
        "argument `b` of `add`: expected a f32 array [n], it is missing",
    ),
    "too many": (
        lambda: bind(s.add, (1, 2, 3, 4, 5), {}),
        "kernel `add` takes 4 arguments, got 5; they are: a, b, out, TILE",
    ),
    "scalar": (
        lambda: bind(s.rms_norm, (zeros(2, 8), zeros(8), zeros(2, 8), "small"), {}),
        "argument `eps` of `rms_norm`: expected a number (f32), got 'small'",
    ),
    "None": (
        lambda: bind(s.add, (None, zeros(8), zeros(8)), {}),
        "argument `a` of `add`: expected a f32 array [n], got None",
    ),
    "group": (
        lambda: bind(
            s.linear, (zeros(2, 40), PackedTensor("q4_1", 32, "", 3, 40), zeros(2, 3)), {}
        ),
        "argument `w` of `linear`: expected `k` in groups of 32 (q4_1), got 40",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, text = ERRORS[name]
    with pytest.raises(ArgumentError) as e:
        call()
    assert str(e.value) == text
