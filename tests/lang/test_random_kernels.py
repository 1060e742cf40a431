"""Random expressions: the passes keep their values to the bit, and their text parses back."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import terrazzo.lang as tz
from terrazzo.ir import parser, printer, verify
from terrazzo.ir.passes import pipeline
from terrazzo.targets import reference

n, m = tz.dims("n m")
Make = Callable[[dict[str, Any]], Any]

FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.25, 1e-20, -7.0])
WHOLE = st.sampled_from([0, 1, -1, 2, 3, 7, -5, 1000, 2**31 - 1])


def leaf(kind: str) -> st.SearchStrategy[Make]:
    names = ["x", "w"] if kind == "f" else ["u", "i", "len"]
    numbers = FLOATS if kind == "f" else WHOLE
    return st.one_of(
        st.sampled_from(names).map(lambda name: lambda env: env[name]),
        numbers.map(lambda c: lambda env: env["one" if kind == "f" else "eins"] * c),
        numbers.map(lambda c: lambda env: tz.full(c, dtype=tz.f32 if kind == "f" else tz.i32)),
    )


def grow(kind: str) -> Callable[[st.SearchStrategy[Make]], st.SearchStrategy[Make]]:
    def more(inner: st.SearchStrategy[Make]) -> st.SearchStrategy[Make]:
        binary: dict[str, Callable[[Any, Any], Any]] = {
            "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
            "max": tz.maximum, "min": tz.minimum,
            "where": lambda a, b: tz.where(a <= b, a, b * 2),
        }  # fmt: skip
        if kind == "i":
            binary |= {"and": lambda a, b: a & b, "xor": lambda a, b: a ^ b}
            binary |= {"div": lambda a, b: a // 3, "mod": lambda a, b: a % -4}
        chosen = st.sampled_from(sorted(binary))
        return st.tuples(chosen, inner, inner).map(
            lambda t: lambda env: binary[t[0]](t[1](env), t[2](env))
        )

    return more


EXPRESSIONS = {kind: st.recursive(leaf(kind), grow(kind), max_leaves=12) for kind in ("f", "i")}


@tz.kernel
def evaluate(
    x: tz.gm[tz.f32, n, m],
    w: tz.gm[tz.f32, m],
    u: tz.gm[tz.i32, n, m],
    one: tz.f32,
    out: tz.gm[tz.f32, n, m],
    whole: tz.gm[tz.i32, n, m],
    real: tz.const,
    integer: tz.const,
):
    for i in tz.grid(n, step=2):
        env = bindings(x[i], w, u[i], i, one)
        out[i] = real(env) * 1.0 + tz.zeros(i, m)
        whole[i] = integer(env) + tz.full(0, i, m, dtype=tz.i32)


def bindings(x: Any, w: Any, u: Any, i: Any, one: Any) -> dict[str, Any]:
    count = tz.extent(m)
    return {"x": x, "w": w, "u": u, "i": i, "len": count, "one": one, "eins": count * 0 + 1}


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS["f"], EXPRESSIONS["i"])
def test_passes_keep_every_bit(real: Make, integer: Make) -> None:
    rng = np.random.default_rng(0)
    tensors = {
        "x": np.concatenate([rng.standard_normal((2, 5)), [[0.0, -0.0, np.inf, -np.inf, 1.0]]]),
        "w": rng.standard_normal(5),
    }
    tensors = {name: a.astype(np.float32) for name, a in tensors.items()}
    tensors["u"] = rng.integers(-9, 9, (3, 5)).astype(np.int32)
    kernel = evaluate.specialise(consts={"real": real, "integer": integer})
    results = []
    for after in (False, True):
        if after:
            for _, run in pipeline():
                kernel = run(kernel)
            verify.verify(kernel, "accumulated")
        assert parser.parse(printer.format(kernel)) == kernel
        out, whole = np.zeros((3, 5), np.float32), np.zeros((3, 5), np.int32)
        with np.errstate(all="ignore"):
            reference.run(kernel, {**tensors, "out": out, "whole": whole}, {"one": 1.0})
        results.append((out.view(np.uint32), np.isnan(out), whole))
    (before, nan, ints), (bits, nan_after, ints_after) = results
    assert (nan == nan_after).all() and (ints == ints_after).all()
    assert (before[~nan] == bits[~nan]).all()
