"""Row invariance, bit for bit: a row's result depends on the row alone.

Not on the rows beside it, the tile sizes, the number of threads, how a prompt is cut, or where
pages lie. The reference target sums in float64 in an order of NumPy's choosing; its results are
equal too, but for one in hundreds of millions whose sum lies next to a rounding boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_launch import Target, empty, on_cpu, on_reference
from test_attention import make

import terrazzo.lang as tz
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.kernels import activation, int4, linear, norm, quantize, sampling
from terrazzo.kernels.attention import attention

DIM, ROWS = 256, 17
Operand = np.ndarray | Packed
rng = np.random.default_rng(0)
X = rng.standard_normal((ROWS, DIM)).astype(np.float32)
W = {f: formats.encode(f, rng.standard_normal((70, DIM))) for f in ("q8_0", "q4_0", "q4_1", "q6_k")}


def packed(fmt: str, shape: tuple[int, int], data: np.ndarray | None = None) -> Packed:
    size = (shape[0], formats.bytes_per_row(fmt, shape[1]))
    return Packed(formats.FORMATS[fmt], shape, np.zeros(size, np.uint8) if data is None else data)


def part(x: Any, rows: slice) -> Any:
    """Rows of a tensor that has them; anything else as it is."""
    if isinstance(x, Packed):
        data = np.ascontiguousarray(x.data[rows])
        return Packed(x.format, (len(data), x.shape[1]), data)
    return np.ascontiguousarray(x[rows]) if isinstance(x, np.ndarray) else x


def bits(x: Operand) -> np.ndarray:
    return x.data if isinstance(x, Packed) else x.view(f"u{x.itemsize}")


def cases() -> dict[str, tuple[tz.Kernel, dict[str, Any], dict[str, Any], list[dict[str, int]]]]:
    """Kernel, arguments with rows, other arguments, tile sizes to try; the result is `out`."""
    w, out = np.ones(DIM, np.float32), empty((ROWS, DIM))
    a8 = packed("a8", (ROWS, DIM), formats.encode("a8", X))
    steps = [{}, {"ROWS": 3}]
    tiles = [{}, {"M": 4, "N": 32}]
    eps = {"weight": w, "eps": 1e-5}
    table: dict[str, tuple[tz.Kernel, dict, dict, list]] = {
        "rms_norm": (norm.rms_norm, {"x": X, "out": out}, eps, steps),
        "rms_norm a8": (norm.rms_norm, {"x": X, "out": packed("a8", X.shape)}, eps, steps),
        "quantize": (quantize.quantize, {"x": X, "out": packed("a8", X.shape)}, {}, steps),
        "silu_mul": (activation.silu_mul, {"gate": X, "up": X[::-1].copy(), "out": out}, {}, steps),
        "softmax": (sampling.softmax, {"x": X, "out": out}, {"scale": 1.0}, steps),
    }
    wide = empty((ROWS, 70))
    dense = rng.standard_normal((70, DIM)).astype(np.float32)
    for name, a in (("f32", X), ("a8", a8)):
        for fmt, data in W.items():
            args = {"a": a, "out": wide, "residual": np.ones_like(wide)}
            weights = {"w": packed(fmt, (70, DIM), data)}
            table[f"linear {name} {fmt}"] = (linear.linear, args, weights, tiles)
    for dtype in (np.float32, np.float16):
        args = {"a": X, "out": wide}
        table[f"linear f32 {dtype.__name__}"] = (
            linear.linear,
            args,
            {"w": dense.astype(dtype)},
            tiles,
        )
    gate = {
        n: packed("q4_1", (64, DIM), W["q4_1"][i : i + 64]) for i, n in enumerate(("gate", "up"))
    }
    table["gated"] = (linear.gated_linear, {"a": a8, "out": packed("a8", (ROWS, 64))}, gate, tiles)
    b = {"b": dense.T.astype(np.float16, order="C"), "bias": dense[:, 0].copy()}
    args = {"a": X.astype(np.float16), "out": wide}
    table["matmul_bias_gelu"] = linear.matmul_bias_gelu, args, b, tiles
    codes = rng.integers(0, 256, (2, 64, 70), np.uint8)
    scale = rng.random((2, 70)).astype(np.float16)
    args = {"a": X.astype(np.float16).reshape(ROWS, 2, 2, 64), "out": wide}
    weights = {"w": codes, "scale": scale, "zero": 8 * scale}
    table["matmul_int4"] = int4.matmul_int4, args, weights, tiles
    return table


@pytest.mark.parametrize("name", list(cases()))
def test_rows_alone_and_together(target: Target, name: str) -> None:
    kernel, own, other, tilings = cases()[name]
    threads = (1, 2, 3, 4) if target is on_cpu else (0,)

    def result(rows: slice, tiling: dict[str, int], count: int) -> np.ndarray:
        args = {n: part(x, rows) for n, x in own.items()}
        run: Callable[..., None] = target if target is on_reference else with_threads(count)
        run(kernel, **args, **other, **tiling)
        return bits(args["out"])

    whole = result(slice(0, ROWS), {}, threads[0])
    for n, tiling in enumerate(tilings):
        count = threads[(n + 1) % len(threads)]
        assert np.array_equal(result(slice(0, ROWS), tiling, count), whole)
        for rows in (slice(0, 1), slice(5, 6), slice(3, 12), slice(16, 17)):
            assert np.array_equal(result(rows, tiling, count), whole[rows])


def with_threads(count: int) -> Callable[..., None]:
    return lambda kernel, **args: on_cpu(kernel, threads=count, **args)


@pytest.mark.parametrize("group", [1, 3])
def test_queries_however_they_come(target: Target, group: int) -> None:
    """One prompt whole, in chunks, token by token, in a batch of others, in pages anywhere."""
    total = 290
    whole = make(4, [(0, total)], 2, group, 32, "f16", shuffle=False)
    target(attention, **whole.args, scale=0.2)
    want = bits(whole.args["out"])
    for starts, bq in (([0, 1, 17, 100, 256, 289], 16), ([0, 64, 128, 192, 256], 32), ([0], 7)):
        cut = make(4, [(0, total)], 2, group, 32, "f16")
        first = np.array(starts, np.int32)
        counts = np.diff(np.append(first, total)).astype(np.int32)
        spans = {"seq": np.zeros_like(first), "first": first, "position": first, "count": counts}
        target(attention, **{**cut.args, **spans}, scale=0.2, BQ=bq)
        assert np.array_equal(bits(cut.args["out"]), want)
    lengths = [(289, 1), (33, 5), (0, total), (500, 2)]
    batch = make(4, lengths, 2, group, 32, "f16")
    target(attention, **batch.args, scale=0.2, BQ=8)
    out = bits(batch.args["out"])
    assert np.array_equal(out[0], want[-1])
    assert np.array_equal(out[6 : 6 + total], want)
