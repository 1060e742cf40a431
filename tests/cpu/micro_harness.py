"""Compiles micro-kernels and calls them on NumPy arrays; runs AVX-512 VNNI code here by
substituting a plain-IR definition for the one intrinsic this machine may lack."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np

from terrazzo.ir import formats
from terrazzo.ir.types import DType, Format, f32
from terrazzo.targets.cpu import codegen, jit, layouts, micro
from terrazzo.targets.cpu import isa as isas
from terrazzo.targets.cpu.isa import Isa

BF16 = ml_dtypes.bfloat16
VPDPBUSD = "llvm.x86.avx512.vpdpbusd.512"
EMULATED = (
    """
define <16 x i32> @emulated_vpdpbusd(<16 x i32> %c, <64 x i8> %u, <64 x i8> %s) {
  %a = zext <64 x i8> %u to <64 x i32>
  %b = sext <64 x i8> %s to <64 x i32>
  %p = mul <64 x i32> %a, %b
"""
    + "".join(
        f"  %x{i} = shufflevector <64 x i32> %p, <64 x i32> poison, <16 x i32> <"
        + ", ".join(f"i32 {4 * lane + i}" for lane in range(16))
        + ">\n"
        for i in range(4)
    )
    + """
  %y0 = add <16 x i32> %x0, %x1
  %y1 = add <16 x i32> %x2, %x3
  %y2 = add <16 x i32> %y0, %y1
  %r = add <16 x i32> %c, %y2
  ret <16 x i32> %r
}
"""
)


def testable() -> list[Isa]:
    """What this machine runs, plus the AVX-512 sets emulated for its CPU where it lacks them; each
    in the shapes of every chip that has its own."""
    here = isas.detect()
    out = [here]
    for name in isas.NAMES:
        lacking = [x for x in isas._NEEDS[name] if x not in isas.host_features()]
        if name == here.name:
            continue
        if not lacking:
            out.append(isas.detect(name))
        elif name.startswith("avx512") and here.name == "avx2":
            out.append(isas.cross(name, here.cpu, here.features))
    chips = {cpu for _, cpu in isas._CHIPS} | {""}
    shapes = [(isa, isas._shape(isa.name, cpu)) for isa in out for cpu in sorted(chips)]
    return list(dict.fromkeys([*out, *(replace(isa, **{"ahead": 0, **x}) for isa, x in shapes)]))


@cache
def compiled(isa: Isa, part: micro.Micro, types: str) -> Callable[..., None]:
    """`types`: p pointer, i i64, b i1, in order; the result takes arrays and ints."""
    text = micro.module_text([part])
    if VPDPBUSD in text and "avx512vnni" not in isas.host_features():
        lines = [x for x in text.split("\n") if not (x.startswith("declare") and VPDPBUSD in x)]
        text = "\n".join(lines).replace(VPDPBUSD, "emulated_vpdpbusd") + EMULATED
    names = {"p": "ptr", "i": "i64", "b": "i1"}
    args = ", ".join(f"{names[t]} %x{n}" for n, t in enumerate(types))
    text += f"define void @entry({args}) {{\n  call void @{part.name}({args})\n  ret void\n}}\n"
    ctypes_of = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "b": ctypes.c_bool}
    module = jit.load(codegen.compile_object(text, isa))
    return module.function("entry", None, *(ctypes_of[t] for t in types))


def call(isa: Isa, part: micro.Micro, types: str, *args: object) -> None:
    function = compiled(isa, part, types)
    function(*(a.ctypes.data if isinstance(a, np.ndarray) else a for a in args))


def aligned(shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return layouts.aligned_empty(size).view(dtype).reshape(shape)


def up16(n: int) -> int:
    return (n + 15) // 16 * 16


def quantize(isa: Isa, x: np.ndarray) -> np.ndarray:
    """f32 [m, k] -> a8 rows by the generated function."""
    m, k = x.shape
    out = np.zeros((m, formats.bytes_per_row("a8", k)), np.uint8)
    part = micro.quantize_a8(isa)
    for i in range(m):
        row = out[i]
        call(isa, part, "ppppi", x[i], row, row[k:], row[k + k // 4 :], k)
    return out


def dot_q(
    isa: Isa, fmt: Format, a: np.ndarray, w: np.ndarray, n: int, k: int,
    c: np.ndarray | None = None, k0: int = 0, span: int | None = None,
) -> np.ndarray:  # fmt: skip
    """a8 rows [m, bytes] x p16 weights -> f32 [m, up16(n)]; optionally only k0 .. k0+span, onto
    c."""
    m = len(a)
    span = k if span is None else span
    out = np.full((m, up16(n)), np.nan, np.float32) if c is None else c.copy()
    lay = layouts.P16S[fmt.name]
    start = k0 // fmt.group * lay.block
    call(isa, micro.dot_q(isa, fmt), "piiipipiiiib", a.reshape(-1)[k0:], a.shape[1],
         k - k0 + k0 // 4, k + k // 4 - k0 + k0 // 8, w[start:], layouts.panel_bytes(fmt, k), out,
         out.shape[1], m, n, span, c is None)  # fmt: skip
    return out


def dot_f32(isa: Isa, a: np.ndarray, panels: np.ndarray, n: int, dtype: DType = f32,
            c: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
    """f32 a [m, k] x panels [p, k, 16] of dtype -> f32 [m, up16(n)]."""
    m, k = a.shape
    out = np.full((m, up16(n)), np.nan, np.float32) if c is None else c.copy()
    panel = panels.strides[0]
    call(isa, micro.dot_f32(isa, dtype), "pipiipiiiib", a, a.strides[0] // 4, panels,
         panel, 16, out, out.shape[1], m, n, k, c is None)  # fmt: skip
    return out


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """f32(a * b + c) with one rounding. The product of two f32 is exact in f64; the f64 sum is made
    round-to-odd (error term from two-sum), so that rounding it to f32 is the only rounding."""
    x, y = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    s = np.asarray(x + y)
    t = s - x
    error = (x - (s - t)) + (y - t)
    bits = s.view(np.int64)
    away = (error > 0) == (s > 0)  # the exact sum is farther from zero than s
    inexact = (error != 0) & (bits & 1 == 0)
    return (
        np.where(inexact, np.where(away, bits + 1, bits - 1), bits)
        .view(np.float64)
        .astype(np.float32)
    )


def dot_tiles(
    isa: Isa, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None,
    planes: tuple[int, int] = (1, 1),
) -> np.ndarray:  # fmt: skip
    """a [m, k] x b [k, n] -> f32 [m, up16(n)] by matrix tiles; values are sums of so many bf16."""
    (m, k), n = a.shape, b.shape[1]
    depth = (k + 31) // 32 * 32
    pairs = aligned((up16(n) // 16, depth // 32, planes[1], 16, 16, 2), np.uint16)
    pairs[:] = 0
    for plane, part in enumerate(split(b, planes[1])):
        whole = np.zeros((depth, up16(n)), np.uint16)
        whole[:k, :n] = part.view(np.uint16)
        blocks = whole.reshape(depth // 32, 16, 2, up16(n) // 16, 16)
        pairs[:, :, plane] = blocks.transpose(3, 0, 1, 4, 2)
    out = np.full((m, up16(n)), np.nan, np.float32) if c is None else c.copy()
    part = micro.dot_tiles(isa, NAMES[a.dtype], *planes)
    call(isa, part, "pipipiiiib", a, a.strides[0] // a.itemsize, pairs, pairs.strides[0], out,
         out.shape[1], m, n, k, c is None)  # fmt: skip
    return out


NAMES = {np.dtype(np.float32): "f32", np.dtype(np.float16): "f16", np.dtype(BF16): "bf16"}


def split(x: np.ndarray, planes: int) -> list[np.ndarray]:
    """bf16 that add up to x: each the nearest to the rest, ties away from zero; zeros after what is
    not finite."""
    out: list[np.ndarray] = []
    rest = x.astype(np.float32)
    with np.errstate(invalid="ignore"):
        for _ in range(planes):
            up = rest.view(np.uint32) + np.where(np.isfinite(rest), 0x8000, 0).astype(np.uint32)
            out.append((up >> 16).astype(np.uint16).view(BF16))
            wide = out[-1].astype(np.float32)
            rest = np.where(np.isfinite(wide), rest - wide, np.float32(0))
    return out


def flushed(x: np.ndarray) -> np.ndarray:
    """Denormals to 0 of their sign."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)
