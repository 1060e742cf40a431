"""Elementary functions on 16 f32 lanes: exp2, exp, log2, tanh, erf, sin, cos, rsqrt, and f16/bf16 casts.

No library calls: range reduction plus polynomials (minimax coefficients computed by us with the Remez
exchange where noted, else the textbook series), right at 0, +-inf, NaN and the extremes. Errors are stated
per function in units in the last place of the exact result and checked by tests/cpu/test_vecmath.py.
"""

from __future__ import annotations

from terrazzo.targets.cpu.builder import VB, VF, VI, Function, fsplat, isplat

LOG2E = 1.4426950408889634
LN2_HI, LN2_LO = 0.693145751953125, 1.42860682030941723212e-6
# 2^t on [-1/2, 1/2]: Taylor of exp(t ln 2), degree 7; truncation 1e-9 relative.
EXP2 = (1.5252733804e-5, 1.5403530393e-4, 1.3333558146e-3, 9.6181291076e-3, 5.5504108665e-2,
        2.4022650696e-1, 6.9314718056e-1, 1.0)  # fmt: skip
EXPM = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)


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
    """p * 2^n for integral float lanes n in [-252, 254]; two factors so that subnormals round once."""
    i = f.op(f"fptosi {VF} {n} to {VI}")
    half = f.op(f"ashr {VI} {i}, {isplat(1)}")
    rest = f.op(f"sub {VI} {i}, {half}")
    return f.op(f"fmul {VF} {f.op(f'fmul {VF} {p}, {_pow2(f, half)}')}, {_pow2(f, rest)}")


def _clean(f: Function, x: str, y: str) -> str:
    """y where x is a number, x (NaN) where it is not."""
    return f.op(f"select {VB} {f.op(f'fcmp uno {VF} {x}, {x}')}, {VF} {x}, {VF} {y}")


def _rint(f: Function, x: str) -> str:
    return f.call(VF, "llvm.rint.v16f32", [(VF, x)])


def exp2(f: Function, x: str) -> str:
    """2^x, <= 1 ulp; overflow to inf above 128, gradual underflow, NaN stays."""
    c = _max(f, _min(f, x, fsplat(130.0)), fsplat(-160.0))
    n = _rint(f, c)
    return _clean(f, x, _scale(f, _poly(f, f.op(f"fsub {VF} {c}, {n}"), EXP2), n))


def exp(f: Function, x: str) -> str:
    """e^x, <= 1 ulp, by Cody and Waite's two-part reduction."""
    c = _max(f, _min(f, x, fsplat(90.0)), fsplat(-110.0))
    n = _rint(f, f.op(f"fmul {VF} {c}, {fsplat(LOG2E)}"))
    m = f.op(f"fneg {VF} {n}")
    r = fma(f, m, fsplat(LN2_LO), fma(f, m, fsplat(LN2_HI), c))
    return _clean(f, x, _scale(f, _poly(f, r, EXPM), n))


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
    return _log_edges(f, x, fma(f, m, fsplat(LOG2E), e))


def tanh(f: Function, x: str) -> str:
    """tanh x, <= 3 ulp: odd polynomial below 0.3, else 1 - 2 / (e^2|x| + 1) with x's sign."""
    a = f.call(VF, "llvm.fabs.v16f32", [(VF, x)])
    e = exp(f, f.op(f"fmul {VF} {a}, {fsplat(2.0)}"))
    q = f.op(f"fdiv {VF} {fsplat(2.0)}, {f.op(f'fadd {VF} {e}, {fsplat(1.0)}')}")
    large = f.call(VF, "llvm.copysign.v16f32", [(VF, f.op(f"fsub {VF} {fsplat(1.0)}, {q}")), (VF, x)])
    x2 = f.op(f"fmul {VF} {x}, {x}")
    series = (-929569 / 638512875, 21844 / 6081075, -1382 / 155925, 62 / 2835, -17 / 315, 2 / 15, -1 / 3)
    small = fma(f, f.op(f"fmul {VF} {x}, {x2}"), _poly(f, x2, series), x)
    near = f.op(f"fcmp olt {VF} {a}, {fsplat(0.3)}")
    return _clean(f, x, f.op(f"select {VB} {near}, {VF} {small}, {VF} {large}"))


def erf(f: Function, x: str) -> str:
    """erf x, absolute error <= 3e-7 (Abramowitz and Stegun 7.1.28 shape is too coarse: 7.1.26 with the
    series below 0.5)."""
    a = f.call(VF, "llvm.fabs.v16f32", [(VF, x)])
    t = f.op(f"fdiv {VF} {fsplat(1.0)}, {fma(f, a, fsplat(0.3275911), fsplat(1.0))}")
    p = _poly(f, t, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
    e = exp(f, f.op(f"fneg {VF} {f.op(f'fmul {VF} {a}, {a}')}"))
    tail = f.op(f"fmul {VF} {f.op(f'fmul {VF} {p}, {t}')}, {e}")
    large = f.call(VF, "llvm.copysign.v16f32", [(VF, f.op(f"fsub {VF} {fsplat(1.0)}, {tail}")), (VF, x)])
    x2 = f.op(f"fmul {VF} {x}, {x}")
    c = 1.1283791670955126
    small = f.op(
        f"fmul {VF} {x}, {_poly(f, x2, (c / 9360, -c / 1320, c / 216, -c / 42, c / 10, -c / 3, c))}"
    )
    near = f.op(f"fcmp olt {VF} {a}, {fsplat(0.5)}")
    return _clean(f, x, f.op(f"select {VB} {near}, {VF} {small}, {VF} {large}"))


def _sincos(f: Function, x: str, quarter: int) -> str:
    """sin(x + quarter * pi/2): three-part reduction by pi/2, good to |x| <= 1e5 with error <= 2e-7."""
    n = _rint(f, f.op(f"fmul {VF} {x}, {fsplat(0.6366197723675814)}"))
    m = f.op(f"fneg {VF} {n}")
    r = x
    for part in (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8):
        r = fma(f, m, fsplat(part), r)
    r2 = f.op(f"fmul {VF} {r}, {r}")
    s = fma(f, f.op(f"fmul {VF} {r}, {r2}"), _poly(f, r2, (1 / 362880, -1 / 5040, 1 / 120, -1 / 6)), r)
    c = _poly(f, r2, (-1 / 3628800, 1 / 40320, -1 / 720, 1 / 24, -0.5, 1.0))
    q = f.op(f"add {VI} {f.op(f'fptosi {VF} {n} to {VI}')}, {isplat(quarter)}")
    odd = f.op(f"icmp ne {VI} {f.op(f'and {VI} {q}, {isplat(1)}')}, zeroinitializer")
    y = f.op(f"select {VB} {odd}, {VF} {c}, {VF} {s}")
    sign = f.op(f"shl {VI} {f.op(f'and {VI} {q}, {isplat(2)}')}, {isplat(30)}")
    bits = f.op(f"xor {VI} {f.op(f'bitcast {VF} {y} to {VI}')}, {sign}")
    return _clean(f, f.op(f"fsub {VF} {x}, {x}"), f.op(f"bitcast {VI} {bits} to {VF}"))


def sin(f: Function, x: str) -> str:
    return _sincos(f, x, 0)


def cos(f: Function, x: str) -> str:
    return _sincos(f, x, 1)


def sqrt(f: Function, x: str) -> str:
    return f.call(VF, "llvm.sqrt.v16f32", [(VF, x)])


def rsqrt(f: Function, x: str) -> str:
    """1 / sqrt(x), both correctly rounded (1 ulp together)."""
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


FUNCTIONS = {"exp": exp, "exp2": exp2, "log": log, "log2": log2, "tanh": tanh, "erf": erf, "sin": sin,
             "cos": cos, "sqrt": sqrt, "rsqrt": rsqrt, "floor": floor, "round": _rint,
             "abs": absolute}  # fmt: skip
EXPENSIVE = {"exp", "exp2", "log", "log2", "tanh", "erf", "sin", "cos", "sqrt", "rsqrt", "div"}
