"""Kernels whose products go to matrix tiles, bit for bit, however their operands come."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_harness import fma
from test_micro_amx import BF16, by_contract, normal, values

import terrazzo.lang as tz
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import Format
from terrazzo.kernels import linear
from terrazzo.runtime import launch
from terrazzo.targets.cpu import isa as isas
from terrazzo.targets.cpu import layouts

pytestmark = pytest.mark.skipif("amx" not in isas.runnable(), reason="this machine has no AMX")
m, n, k = tz.dims("m n k")
T = tz.dtypes("T", tz.f16, tz.f32)


@tz.kernel
def computed(
    a: tz.gm[tz.bf16, m, k],
    b: tz.gm[tz.bf16, n, k],
    out: tz.gm[tz.f32, m, n],
    M: tz.const = 48,
    N: tz.const = 64,
    K: tz.const = 64,
):
    """out = (2 a) @ (b / (sum of b's row's squares or 1))ᵀ: operands that are no tensors."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j)
        for p in tz.loop(k, step=K):
            w = b[j, p].to(tz.f32)
            w = (w / tz.maximum(tz.sum(w * w, axis=p), 1.0)).to(tz.bf16)
            acc += (a[i, p] + a[i, p]) @ w
        out[i, j] = acc


def run(kernel: tz.Kernel, threads: int = 2, **args: object) -> np.ndarray:
    launch.run(launch.prepare(kernel, (), args, isa=isas.detect("amx")), threads)
    out = args["out"]
    assert isinstance(out, np.ndarray)
    return out


def panels(w: np.ndarray) -> Packed:
    data = layouts.pack_float(w).reshape(layouts.panels(len(w)), -1).view(np.uint8)
    return Packed(Format("bf16", 1, layouts.LAYOUT), w.shape, data)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 70), cols=st.integers(1, 70), depth=st.integers(1, 100),
    tiles=st.sampled_from([(128, 256, 256), (32, 32, 32), (7, 16, 64)]), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_way_to_an_operand_gives_the_same_bits(
    rows: int, cols: int, depth: int, tiles: tuple[int, int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = normal(rng, rows, depth), normal(rng, depth, cols)
    want = by_contract(a, b)
    size = dict(zip("MNK", tiles, strict=True))
    wt = np.ascontiguousarray(b.T)
    padded = np.zeros((rows, depth + 5), BF16)
    padded[:, :depth] = a
    for left in (a, padded[:, :depth]):
        out = np.full((rows, cols), np.nan, np.float32)
        assert np.array_equal(run(linear.matmul, a=left, b=b, out=out, **size), want)
    for w in (wt, panels(wt)):
        out = np.full((rows, cols), np.nan, np.float32)
        assert np.array_equal(run(linear.linear, a=a, w=w, out=out, **size), want)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(1, 60), cols=st.integers(1, 70), depth=st.integers(1, 64),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_computed_operands(rows: int, cols: int, depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = normal(rng, rows, depth), normal(rng, cols, depth)
    wide = b.astype(np.float64)
    w = wide / np.maximum((wide * wide).sum(1, keepdims=True), 1)
    out = run(computed, a=a, b=b, out=np.full((rows, cols), np.nan, np.float32))
    exact = 2 * a.astype(np.float64) @ w.T
    # w is off by its rounding to bf16 (and a few of f32 before); sums as in tests/kernels
    size = 2 * np.abs(a.astype(np.float64)) @ np.abs(w).T
    assert (np.abs(out - exact) <= size * (2.0**-8 + (depth + 80) * 2.0**-24) * 1.01).all()


def test_odd_blocks_along_k_keep_the_chain() -> None:
    """Blocks of 48 steps end inside an instruction: sums are those of the other sets."""
    rng = np.random.default_rng(4)
    a, b = normal(rng, 20, 200), normal(rng, 200, 30)
    args = {"a": a, "b": b, "K": 48, "N": 48}
    got = run(linear.matmul, out=np.ones((20, 30), np.float32), **args)
    other = np.ones((20, 30), np.float32)
    other_isa = isas.detect("avx512vnni")
    launch.run(launch.prepare(linear.matmul, (), {**args, "out": other}, isa=other_isa), 1)
    assert np.array_equal(got, other)
    whole = run(linear.matmul, a=a, b=b, out=np.ones((20, 30), np.float32))
    assert not np.array_equal(whole, got)


def test_rows_threads_and_tiles_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    a, b = normal(rng, 67, 320), normal(rng, 320, 50)
    whole = run(linear.matmul, a=a, b=b, out=np.ones((67, 50), ml_dtypes.bfloat16))
    for first, last in ((0, 1), (16, 49), (66, 67)):
        for threads in (1, 2):
            out = np.ones((last - first, 50), ml_dtypes.bfloat16)
            got = run(linear.matmul, threads, a=a[first:last], b=b, out=out, M=32, N=16, K=96)
            assert np.array_equal(got, whole[first:last])


@tz.kernel
def turned(
    a: tz.gm[T, m, k],
    b: tz.gm[T, n, k],
    out: tz.gm[tz.f32, m, n],
    wide: tz.const = False,
    M: tz.const = 48,
    N: tz.const = 64,
    K: tz.const = 64,
):
    """out = a @ bᵀ, both as they are or cast to f32 first, and not kept."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j)
        for p in tz.loop(k, step=K):
            x, y = a[i, p], b[j, p]
            acc += (x.to(tz.f32) @ y.to(tz.f32)) if wide else (x @ y)
        out[i, j] = acc


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 70), cols=st.integers(1, 70), depth=st.integers(1, 100),
    tiles=st.sampled_from([(128, 256, 256), (32, 32, 32), (40, 16, 64)]), seed=st.integers(0, 99),
    kind=st.sampled_from([np.float16, np.float32]), wide=st.booleans(),
)  # fmt: skip
def test_other_floats_are_split(
    rows: int, cols: int, depth: int, tiles: tuple[int, int, int], seed: int, kind: type, wide: bool
) -> None:
    """As sums of two or three bf16 where a block has many rows."""
    rng = np.random.default_rng(seed)
    planes = 2 if kind is np.float16 else 3
    a, b = values(rng, kind, planes, rows, depth), values(rng, kind, planes, depth, cols)
    want = by_contract(a, b, planes=(planes, planes))
    size = dict(zip("MNK", tiles, strict=True))
    padded = np.zeros((rows, depth + 5), kind)
    padded[:, :depth] = a
    out = np.full((rows, cols), np.nan, np.float32)
    assert np.array_equal(run(linear.matmul, a=padded[:, :depth], b=b, out=out, **size), want)
    bt = np.ascontiguousarray(b.T)
    out = np.full((rows, cols), np.nan, np.float32)
    assert np.array_equal(run(turned, a=a, b=bt, out=out, wide=wide, **size), want)


def test_blocks_of_few_rows_keep_the_chain() -> None:
    """By the kernel's block, not by how many rows there are: splitting would not pay."""
    rng = np.random.default_rng(6)
    a, b = values(rng, np.float32, 3, 40, 64), values(rng, np.float32, 3, 64, 16)
    chain = np.zeros((40, 16), np.float32)
    for i in range(64):
        chain = fma(a[:, i, None], b[None, i], chain)
    few = run(linear.matmul, a=a, b=b, out=np.ones((40, 16), np.float32), M=16)
    assert np.array_equal(few, chain)
    many = run(linear.matmul, a=a, b=b, out=np.ones((40, 16), np.float32))
    assert not np.array_equal(many, chain)
    one = run(linear.matmul, a=a[5:6], b=b, out=np.ones((1, 16), np.float32))
    assert np.array_equal(one, many[5:6])


@tz.kernel
def twice(
    a: tz.gm[tz.f16, m, k],
    b: tz.gm[tz.f16, k, n],
    out: tz.gm[tz.f32, m, n],
    M: tz.const = 48,
    N: tz.const = 64,
    K: tz.const = 64,
):
    """out = a @ b + (a + a) @ b: the left operand once in memory, once computed."""
    for i, j in tz.grid(m, n, step=(M, N)):
        acc = tz.zeros(i, j)
        for p in tz.loop(k, step=K):
            x, y = a[i, p], b[p, j]
            acc += x @ y
            acc += (x + x) @ y
        out[i, j] = acc


def test_one_kernel_with_both_kinds_of_left_operand() -> None:
    rng = np.random.default_rng(7)
    a, b = values(rng, np.float16, 2, 50, 64), values(rng, np.float16, 2, 64, 30)
    out = run(twice, a=a, b=b, out=np.ones((50, 30), np.float32))
    once = by_contract(a, b, planes=(2, 2))
    assert np.array_equal(out, by_contract(a + a, b, once, (2, 2)))
