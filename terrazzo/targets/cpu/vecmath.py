"""Elementary functions on 16 f32 lanes: exp2, exp, log2, tanh, erf, sin, cos, rsqrt, bf16 casts.

No library calls: range reduction plus polynomials (minimax coefficients of our own where noted,
else the textbook series), right at 0, +-inf, NaN and the extremes. Errors are stated per function
in units in the last place of the exact result and checked by tests/cpu/test_vecmath.py.
"""

from __future__ import annotations

import math
import struct
from functools import cache

from terrazzo.targets.cpu.builder import VB, VF, VI, Function, fsplat, isplat

LOG2E, LOG2E_LO = 1.4426950408889634, 1.925963033500801e-08  # as f32 it lacks the second
LN2_HI, LN2_LO = 0.693145751953125, 1.42860682030941723212e-6
# 2^t on [-1/2, 1/2] and e^t on [-ln 2 / 2, ln 2 / 2], the last two coefficients given: minimax
# fits of ours (Lawson's reweighted least squares), 3e-9 relative, below 0.8 ulp with roundings.
EXP2 = (1.532429742e-4, 1.3390969252e-3, 9.6185179427e-3, 5.5503595620e-2, 2.4022647738e-1,
        6.9314718246e-1, 1.0)  # fmt: skip
EXPM = (1.381459878757596e-3, 8.368716575205326e-3, 0.04166838899254799, 0.1666652113199234,
        0.4999999403953552, 1.0, 1.0)  # fmt: skip


def fma(f: Function, a: str, b: str, c: str) -> str:
    return f.call(VF, "llvm.fma.v16f32", [(VF, a), (VF, b), (VF, c)])


def _poly(f: Function, x: str, coefficients: tuple[float, ...]) -> str:
    p = fsplat(coefficients[0])
    for c in coefficients[1:]:
        p = fma(f, p, x, fsplat(c))
    return p


def _min(f: Function, a: str, b: str) -> str:
    """The smaller; a NaN in `a` stays (the select keeps a unless b < a)."""
    return f.op(f"select {VB} {f.op(f'fcmp ogt {VF} {a}, {b}')}, {VF} {b}, {VF} {a}")


def _max(f: Function, a: str, b: str) -> str:
    return f.op(f"select {VB} {f.op(f'fcmp olt {VF} {a}, {b}')}, {VF} {b}, {VF} {a}")


def _pow2(f: Function, n: str) -> str:
    """2^n for i32 lanes n in [-126, 127]."""
    e = f.op(f"shl {VI} {f.op(f'add {VI} {n}, {isplat(127)}')}, {isplat(23)}")
    return f.op(f"bitcast {VI} {e} to {VF}")


def _scale(f: Function, p: str, n: str) -> str:
    """p * 2^n for integral float lanes n in [-252, 254]; two factors: subnormals round once."""
    i = f.op(f"fptosi {VF} {n} to {VI}")
    half = f.op(f"ashr {VI} {i}, {isplat(1)}")
    rest = f.op(f"sub {VI} {i}, {half}")
    return f.op(f"fmul {VF} {f.op(f'fmul {VF} {p}, {_pow2(f, half)}')}, {_pow2(f, rest)}")


def _exp(f: Function, x: str, p: str, n: str, least: float) -> str:
    """p * 2^n, x where that is NaN, 0 where x <= least. The instruction does not see those lanes:
    a result that small takes it hundreds of cycles."""
    if not f.scalef:
        return _clean(f, x, _scale(f, p, n))
    counts = f.op(f"bitcast {VB} {f.op(f'fcmp ugt {VF} {x}, {fsplat(least)}')} to i16")
    args = [(VF, p), (VF, n), (VF, "zeroinitializer"), ("i16", counts), ("i32", "4")]
    return f.call(VF, "llvm.x86.avx512.mask.scalef.ps.512", args)


def _clamp(f: Function, x: str, low: float, high: float) -> str:
    """x between the two, to be scaled by; with scalef, `_exp` sees to `low`."""
    x = _min(f, x, fsplat(high))
    return x if f.scalef else _max(f, x, fsplat(low))


def _clean(f: Function, x: str, y: str) -> str:
    """y where x is a number, x (NaN) where it is not."""
    return f.op(f"select {VB} {f.op(f'fcmp uno {VF} {x}, {x}')}, {VF} {x}, {VF} {y}")


def _copysign(f: Function, x: str, sign: str) -> str:
    return f.call(VF, "llvm.copysign.v16f32", [(VF, x), (VF, sign)])


def _rint(f: Function, x: str) -> str:
    return f.call(VF, "llvm.rint.v16f32", [(VF, x)])


def exp2(f: Function, x: str) -> str:
    """2^x, <= 1 ulp; overflow to inf above 128, gradual underflow, NaN stays."""
    c = _clamp(f, x, -160.0, 130.0)
    n = _rint(f, c)
    return _exp(f, x, _poly(f, f.op(f"fsub {VF} {c}, {n}"), EXP2), n, -150.0)


def exp(f: Function, x: str) -> str:
    """e^x, <= 1 ulp, by Cody and Waite's two-part reduction."""
    c = _clamp(f, x, -110.0, 90.0)
    n = _rint(f, f.op(f"fmul {VF} {c}, {fsplat(LOG2E)}"))
    m = f.op(f"fneg {VF} {n}")
    r = fma(f, m, fsplat(LN2_LO), fma(f, m, fsplat(LN2_HI), c))
    return _exp(f, x, _poly(f, r, EXPM), n, -104.0)


def _log_parts(f: Function, x: str) -> tuple[str, str]:
    """(exponent, ln(mantissa)) with mantissa in [sqrt(1/2), sqrt(2)), x positive and finite."""
    tiny = f.op(f"fcmp olt {VF} {x}, {fsplat(1.1754943508222875e-38)}")
    big = f.op(f"select {VB} {tiny}, {VF} {f.op(f'fmul {VF} {x}, {fsplat(8388608.0)}')}, {VF} {x}")
    bits = f.op(f"bitcast {VF} {big} to {VI}")
    shifted = f.op(f"sub {VI} {bits}, {isplat(0x3F3504F3)}")
    e = f.op(f"ashr {VI} {shifted}, {isplat(23)}")
    m = f.op(f"sub {VI} {bits}, {f.op(f'shl {VI} {e}, {isplat(23)}')}")
    mantissa = f.op(f"bitcast {VI} {m} to {VF}")
    fix = f.op(f"select {VB} {tiny}, {VI} {isplat(-23)}, {VI} zeroinitializer")
    exponent = f.op(f"sitofp {VI} {f.op(f'add {VI} {e}, {fix}')} to {VF}")
    t = f.op(f"fsub {VF} {mantissa}, {fsplat(1.0)}")
    # ln(1+t) = 2 atanh(s), s = t / (2 + t): odd series in s, |s| <= 0.1716; s^13 term below 2^-32
    s = f.op(f"fdiv {VF} {t}, {f.op(f'fadd {VF} {t}, {fsplat(2.0)}')}")
    s2 = f.op(f"fmul {VF} {s}, {s}")
    tail = f.op(f"fmul {VF} {s2}, {_poly(f, s2, (2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3))}")
    # 2s = t - s*t exactly in real arithmetic: keeps the leading term at full precision
    lead = fma(f, f.op(f"fneg {VF} {s}"), t, t)
    return exponent, fma(f, s, tail, lead)


def _log_edges(f: Function, x: str, y: str) -> str:
    """log at 0 (-inf), +inf (itself), negative (NaN) and NaN."""
    inf, nan = "splat (float 0x7FF0000000000000)", "splat (float 0x7FF8000000000000)"
    y = f.op(f"select {VB} {f.op(f'fcmp oeq {VF} {x}, {inf}')}, {VF} {x}, {VF} {y}")
    zero = f.op(f"fcmp oeq {VF} {x}, zeroinitializer")
    y = f.op(f"select {VB} {zero}, {VF} splat (float 0xFFF0000000000000), {VF} {y}")
    y = f.op(f"select {VB} {f.op(f'fcmp olt {VF} {x}, zeroinitializer')}, {VF} {nan}, {VF} {y}")
    return _clean(f, x, y)


def log(f: Function, x: str) -> str:
    """ln x, <= 2 ulp."""
    e, m = _log_parts(f, x)
    return _log_edges(f, x, fma(f, e, fsplat(LN2_HI), fma(f, e, fsplat(LN2_LO), m)))


def log2(f: Function, x: str) -> str:
    """log2 x, <= 2 ulp."""
    e, m = _log_parts(f, x)
    return _log_edges(f, x, fma(f, m, fsplat(LOG2E), fma(f, m, fsplat(LOG2E_LO), e)))


def tanh(f: Function, x: str) -> str:
    """tanh x, <= 3 ulp: odd polynomial below 0.3, else 1 - 2 / (e^2|x| + 1) with x's sign."""
    a = absolute(f, x)
    e = exp(f, f.op(f"fmul {VF} {a}, {fsplat(2.0)}"))
    q = f.op(f"fdiv {VF} {fsplat(2.0)}, {f.op(f'fadd {VF} {e}, {fsplat(1.0)}')}")
    large = f.op(f"fsub {VF} {fsplat(1.0)}, {q}")
    x2 = f.op(f"fmul {VF} {x}, {x}")
    series = (-929569 / 638512875, 21844 / 6081075, -1382 / 155925, 62 / 2835, -17 / 315, 2 / 15,
              -1 / 3)  # fmt: skip
    small = fma(f, f.op(f"fmul {VF} {a}, {x2}"), _poly(f, x2, series), a)
    near = f.op(f"fcmp olt {VF} {a}, {fsplat(0.3)}")
    return _clean(f, x, _copysign(f, f.op(f"select {VB} {near}, {VF} {small}, {VF} {large}"), x))


# Minimax fits of ours (Lawson's reweighted least squares): erf(x)/x - 1 in x^2 on [0, 0.96], and
# log2(1 - erf x) on [0.95, 3.95]; errors of erf 0.02 ulp.
ERF_NEAR = (8.119050471577793e-05, -0.0008080974221229553, 0.005195372737944126,
            -0.02685702219605446, 0.11283650994300842, -0.37612631916999817,
            0.12837916612625122)  # fmt: skip
ERFC_LOG2 = (0.0002776120963972062, -0.0043404013849794865, 0.03186573088169098,
             -0.1495213806629181, -0.9197426438331604, -1.6266025304794312,
             -0.00035304753691889346)  # fmt: skip


def erf(f: Function, x: str) -> str:
    """erf x, <= 2 ulp: odd polynomial below 0.95, else 1 - 2^p(|x|) with x's sign."""
    a = absolute(f, x)
    rest = exp2(f, _poly(f, _min(f, a, fsplat(4.0)), ERFC_LOG2))
    large = f.op(f"fsub {VF} {fsplat(1.0)}, {rest}")
    x2 = f.op(f"fmul {VF} {a}, {a}")
    small = fma(f, a, _poly(f, x2, ERF_NEAR), a)
    near = f.op(f"fcmp olt {VF} {a}, {fsplat(0.95)}")
    return _clean(f, x, _copysign(f, f.op(f"select {VB} {near}, {VF} {small}, {VF} {large}"), x))


@cache
def _quarter_turns() -> str:
    """A constant table for f32 numbers m * 2^(e - 150), e the exponent field and m an integer.

    Entries 2e and 2e + 1 are the parts of 2^(e - 150) * 2/pi mod 4: a multiple of 2^-27, so that m
    times it is exact in f64, and the rest (the reduction of Payne and Hanek, 1983, with the digits
    of 2/pi that they pick written down for every e)."""
    one = 1 << 400

    def atan_inverse(n: int) -> int:
        total, term, k = 0, one // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term, k = term // (n * n), k + 2
        return total

    pi = 16 * atan_inverse(5) - 4 * atan_inverse(239)  # Machin, 1706
    ratio = (2 * one * one) // pi
    rows: list[float] = []
    for e in range(256):
        turn = (ratio << max(e - 150, 0) >> max(150 - e, 0)) % (4 * one) if e < 255 else 0
        high = turn >> 373 << 373
        rows += [math.ldexp(high >> 373, -27), math.ldexp((turn - high) >> 250, -150)]
    bits = (struct.unpack("<Q", struct.pack("<d", x))[0] for x in rows)
    values = ", ".join(f"double 0x{b:016X}" for b in bits)
    return f"@quarter_turns = private unnamed_addr constant [512 x double] [{values}]"


def _reduce_large(f: Function, x: str) -> tuple[str, str]:
    """(r, q): x = q * pi/2 + r for any finite x, |r| < 0.9, by the table above in f64."""
    f.decls.add(_quarter_turns())
    vd, vp = "<16 x double>", "<16 x ptr>"
    bits = f.op(f"bitcast {VF} {x} to {VI}")
    field = f.op(f"and {VI} {f.op(f'lshr {VI} {bits}, {isplat(23)}')}, {isplat(255)}")
    whole = f.op(f"or {VI} {f.op(f'and {VI} {bits}, {isplat(0x7FFFFF)}')}, {isplat(0x800000)}")
    negative = f.op(f"icmp slt {VI} {bits}, zeroinitializer")
    minus = f.op(f"sub {VI} zeroinitializer, {whole}")
    signed = f.op(f"select {VB} {negative}, {VI} {minus}, {VI} {whole}")
    m = f.op(f"sitofp {VI} {signed} to {vd}")
    parts: list[str] = []
    for part in range(2):
        at = f.op(f"add {VI} {f.op(f'shl {VI} {field}, {isplat(1)}')}, {isplat(part)}")
        p = f.op(f"getelementptr double, ptr @quarter_turns, {VI} {at}")
        name = "llvm.masked.gather.v16f64.v16p0"
        f.decls.add(f"declare {vd} @{name}({vp}, i32, {VB}, {vd})")
        t = f.op(f"call {vd} @{name}({vp} {p}, i32 8, {VB} splat (i1 true), {vd} zeroinitializer)")
        parts.append(f.op(f"fmul {vd} {m}, {t}"))
    n = f.call(vd, "llvm.rint.v16f64", [(vd, parts[0])])
    r = f.op(f"fadd {vd} {f.op(f'fsub {vd} {parts[0]}, {n}')}, {parts[1]}")
    r = f.op(f"fmul {vd} {r}, splat (double 0x3FF921FB54442D18)")
    return f.op(f"fptrunc {vd} {r} to {VF}"), f.op(f"fptosi {vd} {n} to {VI}")


def _sincos(f: Function, x: str, quarter: int) -> str:
    """sin(x + quarter * pi/2), <= 2 ulp: reduced in three parts below 2^16, else by table."""
    big = f.op(f"fcmp oge {VF} {absolute(f, x)}, {fsplat(65536.0)}")
    near = f.op(f"select {VB} {big}, {VF} zeroinitializer, {VF} {x}")
    n = _rint(f, f.op(f"fmul {VF} {near}, {fsplat(0.6366197723675814)}"))
    m = f.op(f"fneg {VF} {n}")
    r = near
    for part in (1.57079637050628662109375, -4.37113900018624283e-8, -1.71512449812330706e-15):
        r = fma(f, m, fsplat(part), r)
    some = f.op(f"icmp ne i16 {f.op(f'bitcast {VB} {big} to i16')}, 0")

    def large(_: str, old: list[str]) -> list[str]:
        new = zip((VF, VI), old, _reduce_large(f, x), strict=True)
        return [f.op(f"select {VB} {big}, {t} {b}, {t} {a}") for t, a, b in new]

    start = [(VF, r), (VI, f.op(f"fptosi {VF} {n} to {VI}"))]
    r, turns = f.loop(0, f.op(f"zext i1 {some} to i64"), 1, start, large)  # at most one trip
    r2 = f.op(f"fmul {VF} {r}, {r}")
    odd_series = _poly(f, r2, (1 / 362880, -1 / 5040, 1 / 120, -1 / 6))
    s = fma(f, f.op(f"fmul {VF} {r}, {r2}"), odd_series, r)
    c = _poly(f, r2, (-1 / 3628800, 1 / 40320, -1 / 720, 1 / 24, -0.5, 1.0))
    q = f.op(f"add {VI} {turns}, {isplat(quarter)}")
    odd = f.op(f"icmp ne {VI} {f.op(f'and {VI} {q}, {isplat(1)}')}, zeroinitializer")
    y = f.op(f"select {VB} {odd}, {VF} {c}, {VF} {s}")
    sign = f.op(f"shl {VI} {f.op(f'and {VI} {q}, {isplat(2)}')}, {isplat(30)}")
    bits = f.op(f"xor {VI} {f.op(f'bitcast {VF} {y} to {VI}')}, {sign}")
    return _clean(f, f.op(f"fsub {VF} {x}, {x}"), f.op(f"bitcast {VI} {bits} to {VF}"))


def sin(f: Function, x: str) -> str:
    """sin x, <= 2 ulp for every finite x; NaN at +-inf."""
    zero = f.op(f"fcmp oeq {VF} {x}, zeroinitializer")  # keeps the sign of -0
    return f.op(f"select {VB} {zero}, {VF} {x}, {VF} {_sincos(f, x, 0)}")


def cos(f: Function, x: str) -> str:
    """cos x, <= 2 ulp for every finite x; NaN at +-inf."""
    return _sincos(f, x, 1)


def sqrt(f: Function, x: str) -> str:
    return f.call(VF, "llvm.sqrt.v16f32", [(VF, x)])


def rsqrt(f: Function, x: str) -> str:
    """1 / sqrt(x), each correctly rounded: <= 1.5 ulp together."""
    return f.op(f"fdiv {VF} {fsplat(1.0)}, {sqrt(f, x)}")


def floor(f: Function, x: str) -> str:
    return f.call(VF, "llvm.floor.v16f32", [(VF, x)])


def absolute(f: Function, x: str) -> str:
    return f.call(VF, "llvm.fabs.v16f32", [(VF, x)])


def bf16_to_f32(f: Function, bits: str) -> str:
    """<16 x i16> bf16 patterns -> f32, exact."""
    wide = f.op(f"shl {VI} {f.op(f'zext <16 x i16> {bits} to {VI}')}, {isplat(16)}")
    return f.op(f"bitcast {VI} {wide} to {VF}")


def f32_to_bf16(f: Function, x: str) -> str:
    """f32 -> <16 x i16> bf16 patterns, round to nearest even; NaN becomes a quiet NaN."""
    bits = f.op(f"bitcast {VF} {x} to {VI}")
    odd = f.op(f"and {VI} {f.op(f'lshr {VI} {bits}, {isplat(16)}')}, {isplat(1)}")
    up = f.op(f"add {VI} {bits}, {f.op(f'add {VI} {odd}, {isplat(0x7FFF)}')}")
    quiet = f.op(f"or {VI} {bits}, {isplat(0x400000)}")
    up = f.op(f"select {VB} {f.op(f'fcmp uno {VF} {x}, {x}')}, {VI} {quiet}, {VI} {up}")
    return f.op(f"trunc {VI} {f.op(f'lshr {VI} {up}, {isplat(16)}')} to <16 x i16>")


FUNCTIONS = {"exp": exp, "exp2": exp2, "log": log, "log2": log2, "tanh": tanh, "erf": erf,
             "sin": sin, "cos": cos, "sqrt": sqrt, "rsqrt": rsqrt, "floor": floor, "round": _rint,
             "abs": absolute}  # fmt: skip
EXPENSIVE = {"exp", "exp2", "log", "log2", "tanh", "erf", "sin", "cos", "sqrt", "rsqrt", "div"}
