"""Strict mode: each kind of fault is found, said with tensor, line and numbers, and nothing outside
a tensor is touched; what is right runs as in ordinary mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import terrazzo.lang as tz
from terrazzo.errors import KernelFault, OptionError
from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.kernels.attention import attention
from terrazzo.kernels.embedding import embedding
from terrazzo.kernels.quantize import quantize
from terrazzo.kernels.rope import rope_store
from terrazzo.lang.kernel import Kernel
from terrazzo.runtime import launch, strict
from terrazzo.runtime.recorder import Recorder

rows, cols, tall, n = tz.dims("rows cols tall n")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    with strict.use():
        yield


def recorded(kernel: Kernel, args: Mapping[str, Any]) -> None:
    recorder = Recorder("step", 2)
    recorder.add(quantize, {}, x=np.ones((1, 32), np.float32),
                 out=Packed(formats.A8, (1, 32), np.zeros((1, 44), np.uint8)))  # fmt: skip
    recorder.add(kernel, {}, **args)
    recorder.finish().replay()


def direct(kernel: Kernel, args: Mapping[str, Any]) -> None:
    kernel(**args)


def threaded(kernel: Kernel, args: Mapping[str, Any]) -> None:
    launch.run(launch.prepare(kernel, (), args), 2)


WAYS = {"direct": direct, "threads": threaded, "recorded": recorded}
Way = Callable[[Kernel, Mapping[str, Any]], None]


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def fault(way: Way, kernel: Kernel, **args: Any) -> str:
    with pytest.raises(KernelFault) as e:
        way(kernel, args)
    name = f"kernel {kernel.name}" + (" (number 2 of 2 in step)" if way is recorded else "")
    assert e.value.what.startswith(f"{name}: "), e.value.what
    assert e.value.caret.strip("^ ") == "" and e.value.source
    return e.value.what.removeprefix(f"{name}: ")


@tz.kernel
def accesses(x: tz.gm[T, tall, cols], at: tz.gm[tz.i32, rows], order: tz.gm[tz.i32, cols],
             out: tz.gm[T, rows, cols], shift: tz.i32, WAY: tz.const = 0,
             R: tz.const = 4):  # fmt: skip
    for r in tz.grid(rows, step=R):
        if WAY == 0:
            out[r] = x[at[r]]
        if WAY == 1:
            out[r] = x[0, tz.load(order)]
        if WAY == 2:
            out[r] = x[at[r], tz.load(order)]
        if WAY == 3:
            out[r] = x[tz.index(r), shift + tz.index(cols)]
        if WAY == 4:
            out[at[r]] = x[tz.index(r)]
        if WAY == 5:
            out[r, tz.load(order)] = x[tz.index(r)]
        if WAY == 6:
            out[r] = x[shift, :]
        if WAY == 7:
            out[r] = x[tz.index(r), shift - tz.index(cols)]


def arguments(dtype: Any = np.float32, wide: int = 37) -> dict[str, Any]:
    x = np.arange(9 * wide).reshape(9, wide) % 100
    return {
        "x": x.astype(dtype), "at": np.array([3, 0, 4, 1, 2], np.int32),
        "order": np.arange(wide, dtype=np.int32)[::-1].copy(),
        "out": np.zeros((6, wide), dtype)[:5].copy(), "shift": 0,
    }  # fmt: skip


WRONG = [
    (0, "at", 2, 9, "load of `x` is out of bounds: index 9 in dimension 0 (`tall`), valid are"
                    " 0..8"),
    (0, "at", 4, -1, "load of `x` is out of bounds: index -1 in dimension 0 (`tall`)"),
    (1, "order", 36, 37, "load of `x` is out of bounds: index 37 in dimension 1 (`cols`), valid are"
                         " 0..36"),
    (1, "order", 0, -5, "load of `x` is out of bounds: index -5 in dimension 1"),
    (2, "order", 17, 99, "load of `x` is out of bounds: index 99 in dimension 1"),
    (2, "at", 0, 1 << 30, "load of `x` is out of bounds: index 1073741824 in dimension 0"),
    (3, "shift", None, 1, "load of `x` is out of bounds: index 37 in dimension 1"),
    (3, "shift", None, -2, "load of `x` is out of bounds: index -2 in dimension 1"),
    (4, "at", 1, 5, "store to `out` is out of bounds: index 5 in dimension 0 (`rows`), valid are"
                    " 0..4"),
    (5, "order", 20, 37, "store to `out` is out of bounds: index 37 in dimension 1"),
    (6, "shift", None, 9, "load of `x` is out of bounds: index 9 in dimension 0"),
    (7, "shift", None, 35, "load of `x` is out of bounds: index -1 in dimension 1"),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda c: f"{c[0]}-{c[3]}")
def test_indices(way: Way, case: tuple[int, str, int | None, int, str]) -> None:
    number, name, place, value, said = case
    a: dict[str, Any] = arguments() | {"WAY": number}
    if number == 7:
        a["shift"] = 36
    way(accesses, a)
    if place is None:
        a[name] = value
    else:
        a[name][place] = value
    assert fault(way, accesses, **a).startswith(said)


def test_nothing_outside_is_written() -> None:
    guard = np.full((16, 37), 7.0, np.float32)
    a = arguments() | {"out": guard[5:10], "WAY": 4}
    for bad in (-1, 5, 10, -5):
        a["at"][:] = bad
        fault(direct, accesses, **a)
    assert (guard == 7).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("number", range(8))
def test_right_indices_give_the_same(number: int, dtype: str) -> None:
    a = arguments(formats_of(dtype)) | {"WAY": number, "shift": 36 if number == 7 else 0}
    accesses(**a)
    with strict.use(False):
        b = a | {"out": np.zeros_like(a["out"])}
        accesses(**b)
    np.testing.assert_array_equal(a["out"], b["out"])


def formats_of(dtype: str) -> Any:
    from terrazzo.ir.types import DTYPES

    return DTYPES[dtype].numpy


@tz.kernel
def ranges(x: tz.gm[tz.f32, tall], first: tz.gm[tz.i32, rows], count: tz.gm[tz.i32, rows],
           out: tz.gm[tz.f32, rows]):  # fmt: skip
    for r in tz.grid(rows):
        total = tz.full(0.0)
        for i in tz.loop(first[r], first[r] + count[r], of=tall, step=16):
            total += tz.sum(tz.load(x[i]), axis=i)
        out[r] = total


def test_loops(way: Way) -> None:
    a = {"x": np.ones(50, np.float32), "out": np.zeros(2, np.float32),
         "first": np.array([0, 30], np.int32), "count": np.array([50, 20], np.int32)}  # fmt: skip
    way(ranges, a)
    assert a["out"].tolist() == [50, 20]
    a["count"][1] = 21
    assert fault(way, ranges, **a) == "`i` reaches 50 of `tall`, valid are 0..49"
    a["first"][1], a["count"][1] = -1, 3
    assert fault(way, ranges, **a) == "`i` reaches -1 of `tall`, valid are 0..49"
    a["count"][1] = -7  # no trip, nothing is read
    way(ranges, a)


@tz.kernel
def scaled(x: tz.gm[T, n], out: tz.gm[T, n], one: tz.gm[T, tall], by: tz.f32):
    for i in tz.grid(n, step=64):
        out[i] = (x[i].to(tz.f32) * by).to(T)
    for j in tz.grid(tall):
        one[j] = (x[j].to(tz.f32) / by).to(T)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("size", [1, 16, 100])
def test_values(way: Way, dtype: str, size: int) -> None:
    numpy = formats_of(dtype)
    a = {"x": np.full(size, 3, numpy), "out": np.zeros(size, numpy), "one": np.zeros(1, numpy),
         "by": 2.0}  # fmt: skip
    way(scaled, a)
    assert (a["out"].astype(np.float32) == 6).all() and float(a["one"][0]) == 1.5
    assert fault(way, scaled, **a | {"by": 0.0}).startswith("store to `one` of a value that is not")
    for bad in (np.inf, -np.inf, np.nan):
        a["x"][size - 1] = bad
        assert fault(way, scaled, **a).startswith("store to `out` of a value that is not finite")
    big = {"f16": 60000.0, "f32": 3e38, "bf16": 3e38}[dtype]
    a["x"][size - 1] = big  # finite, its double is not
    fault(way, scaled, **a)


def test_packed_rows(way: Way) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((32, 64), np.float32)
    for kind in ("q8_0", "q4_0"):
        w = Packed(formats.FORMATS[kind], table.shape, formats.encode(kind, table))
        a = {"table": w, "ids": np.array([0, 31], np.int32), "out": np.zeros((2, 64), np.float32)}
        way(embedding, a)
        a["ids"][1] = 32
        said = "load of `table` is out of bounds: index 32 in dimension 0 (`vocab`)"
        assert fault(way, embedding, **a).startswith(said)
    x = table[:2].copy()
    out = Packed(formats.A8, x.shape, np.zeros((2, 88), np.uint8))
    way(quantize, {"x": x, "out": out})
    x[1, 63] = np.nan
    assert fault(way, quantize, x=x, out=out).startswith("store to `out` of a value that is not")


def paged(ctx: int = 40) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    cache = rng.standard_normal((2, 4, 1, 32, 16), np.float32).astype(np.float16)
    return {
        "q": rng.standard_normal((3, 1, 2, 32), np.float32), "kcache": cache[0],
        "vcache": np.ascontiguousarray(cache[1].transpose(0, 1, 3, 2)),
        "table": np.array([[2, 0, 3]], np.int32), "seq": np.zeros(1, np.int32),
        "first": np.zeros(1, np.int32), "count": np.array([3], np.int32),
        "position": np.array([ctx - 3], np.int32), "out": np.zeros((3, 1, 2, 32), np.float32),
        "scale": 0.2,
    }  # fmt: skip


def test_pages(way: Way) -> None:
    a: dict[str, Any] = paged()
    way(attention, a)
    with strict.use(False):
        b = paged()
        attention(**b)
    np.testing.assert_array_equal(a["out"], b["out"])
    a["table"][0, 2] = 4
    said = "load of `kcache` is out of bounds: index 4 in dimension 0 (`pages`), valid are 0..3"
    assert fault(way, attention, **a) == said
    said = "load of `table` is out of bounds: index 3 in dimension 1 (`blocks`), valid are 0..2"
    assert fault(way, attention, **paged(49)) == said
    assert fault(way, attention, **paged() | {"count": np.array([4], np.int32)}) == (
        "`i` reaches 3 of `tokens`, valid are 0..2"
    )
    assert fault(way, attention, **paged() | {"seq": np.array([1], np.int32)}).startswith(
        "load of `table` is out of bounds: index 1 in dimension 0 (`seqs`)"
    )


def test_slots(way: Way) -> None:
    rng = np.random.default_rng(4)
    a: dict[str, Any] = {
        "q": rng.standard_normal((2, 1, 2, 2, 16), np.float32),
        "k": rng.standard_normal((2, 1, 2, 16), np.float32),
        "v": rng.standard_normal((2, 1, 32), np.float32),
        "cos": np.ones((8, 16), np.float32), "sin": np.zeros((8, 16), np.float32),
        "position": np.array([6, 7], np.int32), "slot": np.array([31, 63], np.int32),
        "out": np.zeros((2, 1, 2, 2, 16), np.float32),
        "kcache": np.zeros((4, 1, 2, 16, 16), np.float16),
        "vcache": np.zeros((4, 1, 16, 32), np.float16),
    }  # fmt: skip
    way(rope_store, a)
    assert fault(way, rope_store, **a | {"slot": np.array([0, 64], np.int32)}).startswith(
        "store to `vcache` is out of bounds: index 4 in dimension 0 (`pages`), valid are 0..3"
    )
    assert fault(way, rope_store, **a | {"position": np.array([0, 8], np.int32)}).startswith(
        "load of `cos` is out of bounds: index 8 in dimension 0 (`positions`)"
    )


def test_a_recording_goes_on_after_a_fault() -> None:
    a: dict[str, Any] = arguments() | {"WAY": 0}
    recorder = Recorder("step", 2)
    recorder.add(accesses, {}, **a)
    r = recorder.finish()
    for _ in range(2):
        a["at"][0] = 100
        with pytest.raises(KernelFault, match=r"\(number 1 of 1 in step\): load of `x`"):
            r.replay()
        a["at"][0] = 1
        r.replay()
        np.testing.assert_array_equal(a["out"], a["x"][a["at"]])


def test_ordinary_mode_checks_nothing_and_is_kept_apart() -> None:
    x = np.array([np.inf], np.float32)
    a = {"x": x, "out": np.zeros(1, np.float32), "one": np.zeros(1, np.float32), "by": 1.0}
    for _ in range(2):
        fault(direct, scaled, **a)
        with strict.use(False):
            scaled(**a)
            text = scaled.explain(**a).llvm
        assert "fault" not in text
    assert np.isinf(a["out"][0])


def test_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, on in (("", False), ("0", False), ("1", True)):
        monkeypatch.setattr(strict, "_on", None)
        monkeypatch.setenv("TERRAZZO_STRICT", value)
        assert strict.enabled() is on
    monkeypatch.setattr(strict, "_on", None)
    monkeypatch.setenv("TERRAZZO_STRICT", "yes")
    with pytest.raises(OptionError, match="TERRAZZO_STRICT is 'yes'; set it to 1 or 0"):
        strict.enabled()
