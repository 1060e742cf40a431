"""The parser's and the verifier's complaints, and texts at the edges of the grammar."""

import math

import pytest

from terrazzo.errors import KernelError
from terrazzo.ir import parser, printer, verify
from terrazzo.ir.ops import Op

GOOD = """kernel k(x: gm f32[n, d], w: gm q4_1.p16[n, d], t: gm i32[], out: gm f32[n], s: f32)
  const ACT = "a.b"
  const BLOCK = 8
  const F = 0.5
  const MODE = fast
  static d = 4
  alias out x
  axis i of n block cap 8
  axis d of d cap 4
{
  %0 = const value=0 : i32
  %1 = dim name=n : i32
  grid i in %0..%1 step 8 of n {
    %2 = load x[i, :d] in UB : f32[i, d]
    %3 = const value=inf : f32
    %4 = const value=-1e-30 : f32[i]
    %5 = load t[] : i32
    %6 = const value=nan : f32
    loop q %7 in %0..%5 carry %8 = %4 : f32[i] {
      %9 = load x[i, %7] : f32[i]
      %10 = add(%8, %9) : f32[i]
      next %10
    } -> %11
    store out[i] = %11
  }
}
"""


def test_edges_round_trip() -> None:
    kernel = parser.parse(GOOD)
    assert printer.format(kernel) == GOOD
    verify.verify(kernel, "traced")
    values = {s.result.id: s.attr("value") for s in kernel.body[2].body  # pyright: ignore
              if isinstance(s, Op) and s.op == "const"}  # fmt: skip
    assert values[3] == math.inf and values[6] is math.nan
    assert kernel == parser.parse(GOOD + "# a comment\n")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("%10 = add(%8, %9)", "%10 = add(%8, %99)", "line 21: expected a value defined before"),
        ("gm f32[n, d]", "gm f33[n, d]", "line 1: expected an element type, got 'f33'"),
        ("    store out[i]", "    store out(i]", "line 24: expected '[', got '('"),
        (
            "static d",
            "stotic d",
            "line 6: expected `{`, const, static, alias or axis, got 'stotic'",
        ),
        ("%1 = dim", "%0 = dim", "line 13: expected %0 to be defined once"),
        ("next %10", "next %10, %9", "expected 1 carried values"),
        ("-> %11", "-> %11 ?", "line 23: '?' is not part of the grammar"),
        (" }\n}\n", " }\n", "expected a value like %1, got 'end of text'"),
    ],
)
def test_parse_errors(old: str, new: str, text: str) -> None:
    assert old in GOOD
    with pytest.raises(KernelError) as e:
        parser.parse(GOOD.replace(old, new))
    assert text in str(e.value)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("%10 = add(%8, %9) : f32[i]", "%10 = add(%8, %9) : f32", "carried with several types"),
        ("%10 = add(%8, %9)", "%10 = plus(%8, %9)", "plus is not an op"),
        ("%10 = add(%8, %9)", "%10 = add(%8, %5)", "element types do not agree"),
        ("%10 = add(%8, %9)", "%10 = add(%8)", "takes 2 arguments"),
        ("%10 = add(%8, %9)", "%10 = and(%8, %9)", "takes integers or bool"),
        ("load x[i, :d] in UB", "load x[i, :d] in L0C", "L0C cannot hold a loaded tile"),
        ("load x[i, :d] in UB : f32[i, d]", "load x[i, i] : f32[i]", "axis i lies in n, not in d"),
        ("load x[i, %7]", "load x[i]", "1 entries for 2 dims"),
        ("load x[i, %7]", "load y[i, %7]", "y is not a tensor parameter"),
        ("load x[i, %7]", "load x[i, %9]", "%9 is not defined here"),
        ("store out[i] = %11", "store out[i] = %8", "%8 is not defined here"),
        ("store out[i] = %11", "store out[%0] = %11", "axes ['i'] have no place"),
        ("store out[i] = %11", "store out[i] = %5", "wrong element type"),
        ("axis i of n block cap 8", "axis i of n block cap 9", "i is no block axis of its step"),
        ("step 8 of n {", "step 8 of n, i in %0..%1 step 8 of n {", "axis i is open twice"),
        ("%1 = dim name=n", "%1 = dim name=z", "dim z is in no parameter"),
        ("%1 = dim name=n", "%1 = start axis=d", "a whole axis has no start or extent"),
        ("%1 = dim name=n", "%1 = arg name=s", "its type|not a scalar parameter"),
        ("carry %8 = %4 : f32[i]", "carry %8 = %3 : f32[i]", "%8 is carried with several types"),
        ("grid i in %0..%1", "grid i in %0..%0", None),
    ],
)
def test_verifier_errors(old: str, new: str, text: str | None) -> None:
    assert old in GOOD
    try:
        kernel = parser.parse(GOOD.replace(old, new))
    except KernelError as e:  # a name the text itself cannot resolve
        assert "defined before" in str(e)
        return
    if text is None:
        verify.verify(kernel, "traced")
        return
    with pytest.raises(KernelError) as e:
        verify.verify(kernel, "traced")
    assert any(part in str(e.value) for part in text.split("|")), e.value


def test_stages() -> None:
    with pytest.raises(KernelError, match="its value is never read: %2 = load x"):
        verify.verify(parser.parse(GOOD), "simplified")
    text = """kernel k(a: gm f32[m, k], c: gm f32[m])
  axis i of m block cap 8
  axis k of k
{
  %0 = const value=0 : i32
  %1 = dim name=m : i32
  grid i in %0..%1 step 8 of m {
    %2 = load a[i, :k] : f32[i, k]
    %3 = load a[%0, :k] : f32[k]
    %4 = const value=0.0 : f32[i]
    %5 = dot_acc(%4, %2, %3) : f32[i]
    store c[i] = %5
  }
}
"""
    kernel = parser.parse(text)
    verify.verify(kernel, "accumulated")
    with pytest.raises(KernelError, match="dot_acc is not allowed at this stage"):
        verify.verify(kernel, "simplified")
