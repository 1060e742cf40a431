"""`tz.expect`: a scalar condition that must hold, from source to both targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import terrazzo.lang as tz
from terrazzo.errors import KernelError, KernelFault
from terrazzo.ir import parser, printer
from terrazzo.ir.ops import Expect
from terrazzo.ir.passes import pipeline
from terrazzo.ir.verify import verify
from terrazzo.kernels.sampling import argmax, candidates
from terrazzo.runtime.recorder import Recorder

rows, cols = tz.dims("rows cols")


@tz.kernel
def normalise(x: tz.gm[tz.f32, rows, cols], out: tz.gm[tz.f32, rows, cols], least: tz.f32,
              STEP: tz.const = 32):  # fmt: skip
    for r in tz.grid(rows):
        total = tz.full(0.0)
        for c in tz.loop(cols, step=STEP):
            part = tz.load(x[r, c])
            tz.expect(tz.min(part, axis=c) >= 0.0, "weights are not negative")
            total += tz.sum(part, axis=c)
        tz.expect(STEP > 0, "known when compiled")
        tz.expect((total > least) & (total < 1e6), 'a "row" sums to more than `least`')
        for c in tz.loop(cols, step=STEP):
            out[r, c] = tz.load(x[r, c]) / total


def cpu(**args: Any) -> None:
    normalise(**args)


def recorded(**args: Any) -> None:
    recorder = Recorder("step", 2)
    recorder.add(normalise, {}, **args)
    recorder.finish().replay()


def reference(**args: Any) -> None:
    normalise.reference(**args)


@pytest.mark.parametrize("run", [cpu, recorded, reference])
def test_both_targets(run: Callable[..., None]) -> None:
    x = np.ones((5, 70), np.float32)
    out = np.zeros_like(x)
    run(x=x, out=out, least=1.0)
    np.testing.assert_allclose(out, 1 / 70, rtol=1e-6)
    for at, value, said in (
        ((3, 69), -1.0, "weights are not negative"),
        ((4, 0), np.nan, "weights are not negative"),
        ((2, 33), 1e7, 'a "row" sums to more than `least`'),
    ):
        bad = x.copy()
        bad[at] = value
        with pytest.raises(KernelFault) as e:
            run(x=bad, out=out, least=1.0)
        assert e.value.what.endswith(said)
        assert e.value.source.startswith("tz.expect(") and "test_expect.py:" in e.value.where
    with pytest.raises(KernelFault, match="sums to more"):
        run(x=x, out=out, least=70.0)


def test_text_and_passes() -> None:
    """The IR's text says it, reads it back, and every pass keeps both."""
    kernel = normalise.specialise()
    verify(kernel, "traced")
    for _, run in [("", lambda k: k), *pipeline()]:
        kernel = run(kernel)
        text = printer.format(kernel)
        assert text.count("expect %") == 2 and r'"a \"row\" sums to more than `least`"' in text
        assert parser.parse(text) == kernel


def test_the_verifier() -> None:
    text = """kernel k(x: gm f32[n])
    axis i of n block cap 16
{
    %0 = const value=0 : i32
    %1 = dim name=n : i32
    %2 = const value=true : bool
    %3 = const value=1 : i32
    CHECK
    grid i in %0..%1 step 16 of n { GRID }
}"""
    right = parser.parse(text.replace("CHECK", "").replace("GRID", 'expect %2 "x"'))
    assert any(isinstance(s, Expect) for s in right.body[-1].body)  # type: ignore[union-attr]
    for check, grid, said in (
        ('expect %2 "x"', "", "an expectation outside of a grid"),
        ("", 'expect %3 "x"', "a condition is a bool scalar"),
    ):
        with pytest.raises(KernelError, match=said):
            verify(parser.parse(text.replace("CHECK", check).replace("GRID", grid)), "traced")


@tz.kernel
def wrong(x: tz.gm[tz.f32, rows], out: tz.gm[tz.f32, rows], WAY: tz.const = 0):
    if WAY == 5:
        tz.expect(rows > 3, "outside")
    for r in tz.grid(rows, step=8):
        t = tz.load(x[r])
        if WAY == 0:
            tz.expect(t > 0.0, "x")
        if WAY == 1:
            tz.expect(tz.sum(t, axis=r), "x")
        if WAY == 2:
            tz.expect(tz.sum(t, axis=r) > 0.0, "")
        if WAY == 3:
            tz.expect(WAY == 2, "the constant is 2")
        out[r] = t


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (0, r"the condition has axes \['r'\]; reduce it to a scalar first"),
        (1, "the condition is f32; compare: x != 0"),
        (2, "takes a condition and a text"),
        (3, "the constant is 2"),
        (5, "an expectation outside of a grid"),
    ],
)
def test_errors(way: int, said: str) -> None:
    with pytest.raises(KernelError, match=said):
        wrong.specialise(consts={"WAY": way})


def test_samplers_report_nan_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((3, 5000)).astype(np.float32)
    out, weight = np.zeros(3, np.int32), np.zeros_like(logits)
    levels = {"temperature": np.ones(3, np.float32), "top_k": np.full(3, 40, np.int32),
              "top_p": np.full(3, 0.9, np.float32), "min_p": np.zeros(3, np.float32)}  # fmt: skip
    logits[1] = -np.inf
    logits[1, 4998] = 0.5  # the one that may be drawn
    argmax(logits, out)
    candidates(logits, weight=weight, **levels)
    assert out[1] == 4998 and weight[1].sum() == weight[1, 4998] == 1
    for at in ((0, 0), (1, 4999), (2, 4096), (2, 77)):
        bad = logits.copy()
        bad[at] = np.nan
        with pytest.raises(KernelFault, match="a logit is NaN"):
            argmax(bad, out)
        with pytest.raises(KernelFault, match="a logit is NaN"):
            candidates(bad, weight=weight, **levels)
