"""Elementary functions against float64, in units in the last place (ulp) of f32, over all of f32.

One ulp is 2^(e - 23) at an exact result of exponent e, and 2^-149 among the denormals. The bounds
are those the functions' docstrings state. float64 results are off by 2^-29 ulp of f32: of no
account.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from terrazzo.targets.cpu import codegen, jit, vecmath
from terrazzo.targets.cpu.builder import VF, Function
from terrazzo.targets.cpu.isa import detect

ERF = np.frompyfunc(math.erf, 1, 1)
EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "tanh": np.tanh,
    "erf": lambda x: np.asarray(ERF(x), np.float64), "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "floor": np.floor, "round": np.rint, "abs": np.abs,
}  # fmt: skip
BOUND = {
    "exp": 1.0, "exp2": 1.0, "log": 2.0, "log2": 2.0, "tanh": 3.0, "erf": 2.0, "sin": 2.0,
    "cos": 2.0, "sqrt": 0.5, "rsqrt": 1.5, "floor": 0.0, "round": 0.0, "abs": 0.0,
}  # fmt: skip
SPAN = {"exp": 104.0, "exp2": 150.0, "tanh": 10.0, "erf": 4.2, "sin": 7e4, "cos": 7e4}
INF, NAN = math.inf, math.nan
# An f32 whose distance to a multiple of pi/2 is among the least.
NEAR_HALF_TURN = 16367173.0 * 2.0**72


# Whether 2^n is multiplied by an instruction (AVX-512) or by two factors.
SCALEF = [False, True] if detect().scalef else [False]
each_scale = pytest.mark.parametrize("scalef", SCALEF)


@cache
def module(scalef: bool) -> jit.Module:
    """Every function of the table as a loop over arrays."""
    functions = []
    for name, emit in vecmath.FUNCTIONS.items():
        args = [("ptr", "x"), ("ptr", "y"), ("i64", "n")]
        f = Function(name + "_all", args, scalef=scalef)

        def body(i: str, _: list[str], f: Function = f, emit=emit) -> None:
            y = emit(f, f.load(VF, f.gep("%x", i, "float"), 4))
            f.store(VF, y, f.gep("%y", i, "float"), 4)

        f.loop(0, "%n", 16, [], body)
        f.put("ret void")
        functions.append(f)
    decls = sorted(set().union(*(f.decls for f in functions)))
    text = "\n".join([*decls, *(f.text() for f in functions)])
    return jit.load(codegen.compile_object(text, detect()))


def run(name: str, x: np.ndarray, scalef: bool) -> np.ndarray:
    padded = np.concatenate([x, np.ones(-len(x) % 16)]).astype(np.float32)
    out = np.empty_like(padded)
    fn = module(scalef).function(
        name + "_all", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    )
    fn(padded.ctypes.data, out.ctypes.data, len(padded))
    return out[: len(x)]


def around(*points: float) -> np.ndarray:
    """60 neighbours on either side of each point, and of its negative."""
    x = np.array([*points, *(-p for p in points)], np.float32)
    bits = x.view(np.uint32)[:, None] + np.arange(-60, 61, dtype=np.int64)[None]
    return bits.astype(np.uint32).reshape(-1).view(np.float32)


@cache
def inputs(name: str) -> np.ndarray:
    """Every exponent and both signs, the neighbourhoods of the functions' seams, and more where the
    result is neither 0 nor infinite."""
    rng = np.random.default_rng(0)
    every = np.arange(0, 2**32, 2**32 // 400_000 + 1, dtype=np.uint64).astype(np.uint32)
    every ^= rng.integers(0, 2**12, len(every), dtype=np.uint32)
    seams = around(0.3, 0.5, 0.95, 1.0, 2.0, 3.93, 4.0, 88.7, 89.0, 90.0, 103.9, 104.0, 110.0,
                   126.0, 128.0, 130.0, 149.0, 150.0, 160.0, 65536.0, 2.0**31, 2.0**-126,
                   3.4028235e38, 0.70710678, 1.4142135, NEAR_HALF_TURN)  # fmt: skip
    turns = around(*(np.arange(1, 300) * (math.pi / 4)))
    span = SPAN.get(name, 3.0)
    dense = rng.uniform(-span, span, 300_000).astype(np.float32)
    x = np.concatenate([every.view(np.float32), seams, turns, dense, np.exp(dense / span * 3.0)])
    return x[np.isfinite(x)].astype(np.float32)


@each_scale
@pytest.mark.parametrize("name", vecmath.FUNCTIONS)
def test_error(name: str, scalef: bool) -> None:
    x = inputs(name)
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
        nearest = exact.astype(np.float32)
    got = run(name, x, scalef)
    assert (np.isnan(got) == np.isnan(exact)).all(), x[np.isnan(got) != np.isnan(exact)][:5]
    finite = np.isfinite(nearest) & np.isfinite(got)
    other = ~finite & ~np.isnan(exact)
    # Next to the limit of f32 a result may round to infinity or to the largest number.
    edge = np.abs(exact) >= np.float64(3.4028234e38)
    assert (got[other & ~edge] == nearest[other & ~edge]).all()
    exponent = np.floor(np.log2(np.maximum(np.abs(exact[finite]), 2.0**-149)))
    ulp = 2.0 ** (np.maximum(exponent, -126) - 23)
    error = np.abs(got[finite].astype(np.float64) - exact[finite]) / ulp
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND[name], f"{error[worst]:.3f} ulp at {x[finite][worst]!r}"


LIMITS = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (200.0, INF), (-200.0, 0.0)],
    "exp2": [(0.0, 1.0), (INF, INF), (-INF, 0.0), (128.0, INF), (-149.0, 2.0**-149), (3.0, 8.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-1e-45, NAN)],
    "log2": [(0.0, -INF), (1.0, 0.0), (2.0**-149, -149.0), (2.0**127, 127.0), (INF, INF)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (1e30, 1.0), (-1e30, -1.0), (-INF, -1.0), (1e-45, 1e-45)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (1e30, 1.0), (-1e30, -1.0), (-INF, -1.0), (1e-45, 1e-45)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (1e-45, 1e-45)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (1e-45, 1.0)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, NAN)],
    "rsqrt": [(0.0, INF), (INF, 0.0), (-1.0, NAN), (4.0, 0.5)],
    "floor": [(-0.5, -1.0), (-0.0, -0.0), (1e30, 1e30), (-INF, -INF)],
    "round": [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (INF, INF)],
    "abs": [(-0.0, 0.0), (-INF, INF), (-1e-45, 1e-45)],
}  # fmt: skip


@each_scale
@pytest.mark.parametrize("name", vecmath.FUNCTIONS)
def test_limits(name: str, scalef: bool) -> None:
    """Exact results and their signs; NaN stays NaN."""
    points = [*LIMITS[name], (NAN, NAN)]
    x, want = (np.array(v, np.float32) for v in zip(*points, strict=True))
    got = run(name, x, scalef)
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want)
    assert same.all(), list(zip(x[~same], got[~same], want[~same], strict=True))


@pytest.mark.skipif(True not in SCALEF, reason="needs AVX-512")
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_instruction_sets_agree(name: str) -> None:
    x = inputs(name)
    assert np.array_equal(run(name, x, True), run(name, x, False), equal_nan=True)


def test_halves() -> None:
    """f32 to bf16 rounds to nearest even for every bf16 and its neighbourhood; back is exact."""
    f = Function("round_trip", [("ptr", "x"), ("ptr", "y"), ("i64", "n")])

    def body(i: str, _: list[str]) -> None:
        y = vecmath.f32_to_bf16(f, f.load(VF, f.gep("%x", i, "float"), 4))
        f.store(VF, vecmath.bf16_to_f32(f, y), f.gep("%y", i, "float"), 4)

    f.loop(0, "%n", 16, [], body)
    f.put("ret void")
    code = jit.load(codegen.compile_object("\n".join([*sorted(f.decls), f.text()]), detect()))
    patterns = np.arange(2**16, dtype=np.uint32)[:, None] << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (patterns | low).reshape(-1).view(np.float32)
    out = np.empty_like(x)
    call = code.function("round_trip", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    call(x.ctypes.data, out.ctypes.data, len(x))
    with np.errstate(all="ignore"):
        want = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert (np.isnan(out) == np.isnan(x)).all()
    number = ~np.isnan(x)
    assert (out[number].view(np.uint32) == want[number].view(np.uint32)).all()
