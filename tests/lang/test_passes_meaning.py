"""The passes keep what a kernel computes: the reference target's results before and after them."""

from typing import Any

import numpy as np
import pytest
import sample as s

import terrazzo.lang as tz
from terrazzo.ir.passes import pipeline
from terrazzo.lang.bind import bind
from terrazzo.targets import reference


def results(kernel: tz.Kernel, args: dict[str, Any], passes: bool) -> dict[str, np.ndarray]:
    args = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in args.items()}
    b = bind(kernel, (), args)
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics)
    if passes:
        for _, run in pipeline():
            ir = run(ir)
    tensors = {n: t.array for n, t in b.tensors.items()}
    reference.run(ir, tensors, b.scalars)
    return {n: np.asarray(tensors[n]) for n in ir.stored()}


def cases() -> dict[str, tuple[tz.Kernel, dict[str, Any]]]:
    rng = np.random.default_rng(1)

    def real(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    half, out = np.float16, np.zeros((5, 37), np.float32)
    ints = np.array([[2, 0, 5], [4, 1, 3]], np.int32)
    return {
        "rms_norm": (s.rms_norm, {"x": real(5, 37).astype(half), "weight": real(37), "eps": 1e-5,
                                  "out": out.astype(half)}),
        "softmax": (s.softmax, {"x": real(5, 37), "out": out, "scale": 0.3}),
        "matmul": (s.matmul, {"a": real(5, 70), "b": real(70, 37), "c": out, "M": 4, "N": 16,
                              "K": 32}),
        "linear": (s.linear, {"a": real(5, 70), "w": real(37, 70), "out": out, "bias": real(37),
                              "residual": real(5, 37), "act": tz.gelu, "M": 4, "N": 16, "K": 32}),
        "flash": (s.flash, {
            "q": real(7, 4, 8).astype(half), "kcache": real(6, 2, 8, 4).astype(half),
            "vcache": real(6, 2, 4, 8).astype(half), "table": ints, "scale": 0.35,
            "q_start": np.array([0, 5], np.int32), "q_len": np.array([5, 2], np.int32),
            "lengths": np.array([9, 11], np.int32), "out": np.zeros((7, 4, 8), half),
            "PAGE": 4, "BQ": 2}),
    }  # fmt: skip


@pytest.mark.parametrize("name", cases())
def test_passes_keep_results(name: str) -> None:
    kernel, args = cases()[name]
    before, after = results(kernel, args, False), results(kernel, args, True)
    for n in before:
        assert np.isfinite(before[n].astype(np.float64)).all() and before[n].any()
        # dot_acc rounds once where add(dot) rounds twice: one unit of f32 per step of the loop.
        assert np.allclose(before[n], after[n], rtol=2.0**-20, atol=2.0**-20), n


def test_flash_is_attention() -> None:
    """The sample itself, against attention in float64."""
    kernel, a = cases()["flash"]
    got = results(kernel, a, True)["out"]
    for seq in range(2):
        n, first, count = (int(a[x][seq]) for x in ("lengths", "q_start", "q_len"))
        where = a["table"][seq][np.arange(n) // 4], np.arange(n) % 4
        for h in range(4):
            k = a["kcache"].astype(np.float64)[where[0], h // 2, :, where[1]]
            v = a["vcache"].astype(np.float64)[where[0], h // 2, where[1]]
            q = a["q"].astype(np.float64)[first : first + count, h] * 0.35
            scores = q @ k.T
            seen = np.arange(n)[None] <= np.arange(n - count, n)[:, None]
            p = np.where(seen, np.exp(scores - scores.max()), 0)
            want = p @ v / p.sum(-1, keepdims=True)
            # f16 output: half a unit in the last place; f32 inside is far below it.
            error = np.abs(got[first : first + count, h] - want)
            assert (error <= 2.0**-11 * np.abs(want) + 1e-5).all()
