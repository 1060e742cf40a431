"""What the parts of the language mean, each by a small kernel run on the reference target."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import terrazzo.lang as tz
from terrazzo.errors import KernelError
from terrazzo.ir import ops, printer, verify
from terrazzo.lang.bind import bind
from terrazzo.targets import reference

n, m, k = tz.dims("n m k")
(s,) = tz.dims("s", static=True)
T = tz.dtypes("T", tz.f32, tz.f16)


def run(kernel: tz.Kernel, *args: Any, **kw: Any) -> ops.Kernel:
    b = bind(kernel, args, kw)
    ir = kernel.specialise(b.dtypes, b.consts, b.present, b.statics)
    verify.verify(ir, "traced")
    reference.run(ir, {name: t.array for name, t in b.tensors.items()}, b.scalars)
    return ir


def test_block_is_its_index_in_arithmetic() -> None:
    @tz.kernel
    def number(out: tz.gm[tz.i32, n, m]):
        for i in tz.grid(n, step=4):
            out[i] = i * 10 + tz.index(m)

    out = np.zeros((6, 3), np.int32)
    run(number, out)
    assert (out == np.arange(6)[:, None] * 10 + np.arange(3)).all()


def test_gather_and_scatter() -> None:
    @tz.kernel
    def rows(table: tz.gm[tz.f32, k, m], ids: tz.gm[tz.i32, n], out: tz.gm[tz.f32, n, m]):
        for i in tz.grid(n, step=4):
            out[i] = table[ids[i]] + table[i % 2, :]

    @tz.kernel
    def swap(ids: tz.gm[tz.i32, n], out: tz.gm[tz.i32, k]):
        for i in tz.grid(n, step=4):
            out[ids[i]] = i

    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    ids = np.array([4, 0, 3, 1, 1, 2], np.int32)
    out = np.zeros((6, 3), np.float32)
    run(rows, table, ids, out)
    assert (out == table[ids] + table[np.arange(6) % 2]).all()
    back = np.zeros(6, np.int32)
    run(swap, np.array([4, 0, 3, 1, 5, 2], np.int32), back)
    assert back.tolist() == [1, 3, 5, 2, 0, 4]


def test_loops_and_carried_values() -> None:
    @tz.kernel
    def fibonacci(count: tz.gm[tz.i32, n], out: tz.gm[tz.i32, n]):
        for i in tz.grid(n):
            a, b = 0, 1
            step = 1  # a number that the body does not change stays a number
            for _ in tz.loop(count[i]):
                a, b = b, a + b * step
            out[i] = a

    out = np.zeros(6, np.int32)
    run(fibonacci, np.arange(6, dtype=np.int32), out)
    assert out.tolist() == [0, 1, 1, 2, 3, 5]


def test_names_used_anew_are_not_carried() -> None:
    @tz.kernel
    def anew(x: tz.gm[tz.f32, n, m], out: tz.gm[tz.f32, n]):
        for i in tz.grid(n, step=2):
            t = tz.zeros(i)
            acc = t
            for j in tz.loop(m, step=2):
                t = tz.load(x[i, j])
                acc += tz.sum(t, axis=j)
            for j in tz.loop(m, step=2):
                t = tz.max(x[i, j], axis=j)
                acc += t
            out[i] = acc

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = np.zeros(3, np.float32)
    ir = run(anew, x, out)
    assert (out == x.sum(1) + x[:, 1] + x[:, 3]).all()
    assert {a.name for a in ir.axes} == {"i", "j", "j_2"}


def test_phases_see_each_other() -> None:
    @tz.kernel
    def two(x: tz.gm[tz.f32, n], mid: tz.gm[tz.f32, n], out: tz.gm[tz.f32, n]):
        for i in tz.grid(n, step=2):
            mid[i] = x[i] * 2
        for i in tz.grid(n, step=3):
            mid[i] += 1.0
            out[i] = tz.max(mid, axis=n) - mid[i]

    x = np.array([3, 1, 4, 1, 5], np.float32)
    mid, out = np.zeros_like(x), np.zeros_like(x)
    b = bind(two, (x, mid, out), {})
    ir = two.specialise(b.dtypes)
    assert [st.kind for st in ir.body if isinstance(st, ops.Loop)] == ["grid", "grid"]


def test_constants_decide_at_compile_time() -> None:
    def twice(t: Any) -> Any:
        return t * 2

    @tz.kernel
    def chosen(
        x: tz.gm[T, n],
        out: tz.gm[T, n],
        bias: tz.gm[tz.f32, n] | None = None,
        act: tz.const = None,
        times: tz.const = 1,
    ):
        for i in tz.grid(n, step=4):
            t = x[i].to(tz.f32)
            if bias is not None and times > 0:
                t += bias[i]
            for c in range(times):
                t = act(t) + c if act is not None else t
            assert times < 4, "too many"
            out[i] = t.to(T) if tz.f32 != T else t

    x, out = np.arange(5, dtype=np.float16), np.zeros(5, np.float16)
    run(chosen, x, out)
    assert (out == x).all()
    run(chosen, x, out, np.ones(5, np.float32), twice, times=2)
    assert (out == ((x + 1) * 2) * 2 + 1).all()
    with pytest.raises(KernelError, match="the kernel's own check failed: too many"):
        run(chosen, x, out, times=4)


def test_static_dims_are_numbers() -> None:
    @tz.kernel
    def halves(x: tz.gm[tz.f32, n, s], out: tz.gm[tz.f32, n, s]):
        half = s // 2
        for i in tz.grid(n, step=2):
            d = tz.index(s)
            other = tz.where(d < half, d + half, d - half)
            t = x[i, other] * (1.0 / s)
            for _ in range(s - 6):
                t = t * 0
            assert s == 6 and len(range(s)) == 6 and s
            out[i] = t

    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    out = np.zeros_like(x)
    ir = run(halves, x, out)
    assert np.allclose(out, np.roll(x, 3, axis=1) / 6)
    assert ir.statics == (("s", 6),) and ir.axis("s").cap == 6
    assert "dim name=s" not in printer.format(ir)


def test_chained_comparison_and_bits() -> None:
    @tz.kernel
    def between(x: tz.gm[tz.i32, n], out: tz.gm[tz.i32, n]):
        for i in tz.grid(n, step=4):
            t = tz.load(x[i])
            inside = t > 1
            inside &= 2 <= t < 5  # noqa: SIM300
            out[i] = tz.where(inside | ~(x[i] != 9), (x[i] << 2) ^ 1, x[i] & 1)

    x = np.array([1, 2, 4, 5, 9], np.int32)
    out = np.zeros_like(x)
    run(between, x, out)
    assert out.tolist() == [1, 9, 17, 1, 37]


def test_dot_contracts_what_is_shared() -> None:
    @tz.kernel
    def gram(a: tz.gm[tz.f32, n, k], b: tz.gm[tz.f32, m, k], out: tz.gm[tz.f32, m, n]):
        for i, j in tz.grid(n, m, step=(2, None)):
            out[j, i] = tz.load(a[i]) @ tz.load(b[j])

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((r, 5)).astype(np.float32) for r in (3, 4))
    out = np.zeros((4, 3), np.float32)
    run(gram, a, b, out)
    assert np.allclose(out, b @ a.T, rtol=1e-6)


def test_specialisation_is_remembered() -> None:
    @tz.kernel(aliases=[("out", "x")])
    def copied(x: tz.gm[T, n], out: tz.gm[T, n], BLOCK: tz.const = 4):
        """Copies.

        More text.
        """
        for i in tz.grid(n, step=BLOCK):
            out[i] = x[i]

    one = copied.specialise({"T": tz.f32})
    assert one is copied.specialise({"T": tz.f32}, {"BLOCK": 4})
    assert one is not copied.specialise({"T": tz.f32}, {"BLOCK": 8})
    assert one.aliases == (("out", "x"),)
    assert copied.doc == "Copies." and "def copied(x: tz.gm[T, n]" in copied.source
    assert tz.registry()["copied"] is copied
    assert [p.kind for p in copied.params] == ["tensor", "tensor", "const"]


def test_calls_go_to_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    class Launcher:
        def call(self, *a: Any) -> Any:
            return ("call", *a)

        def explain(self, *a: Any) -> Any:
            return ("explain", *a)

        def reference(self, *a: Any) -> Any:
            return ("reference", *a)

    @tz.kernel
    def nothing(x: tz.gm[tz.f32, n]):
        pass

    # The package exports the decorator under the name of its module.
    module = importlib.import_module("terrazzo.lang.kernel")
    monkeypatch.setattr(module, "launcher", Launcher())
    assert nothing(1, x=2) == ("call", nothing, (1,), {"x": 2})
    assert nothing.explain(1) == ("explain", nothing, (1,), {})
    assert nothing.reference() == ("reference", nothing, (), {})
