"""The vendor's own passes on our text: they take it, it links, and their plan computes the right
numbers. Needs the `ascend` extra."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from ascend_extra import needs_wheel
from ascend_programs import (
    Builder,
    add_program,
    gelu,
    gelu_program,
    matmul_program,
    ring_program,
    row,
    softmax_program,
    zoo,
    zoo_program,
)
from core_interpret import run

from terrazzo.errors import CapacityError, KernelError, OptionError
from terrazzo.ir.types import DType, bf16, f16, f32, i8, i32
from terrazzo.targets.ascend import tools
from terrazzo.targets.ascend.bitcode import defined_functions
from terrazzo.targets.ascend.compile import Compiled, compile, write
from terrazzo.targets.ascend.linkcheck import check
from terrazzo.targets.ascend.print_hivm import print_phase
from terrazzo.targets.davinci.chips import chip
from terrazzo.targets.davinci.program import Gm, Phase, Program

CHIPS = ("910b1", "910b2", "910b3", "910b4", "910_9392")
RNG = np.random.default_rng(3)


@cache
def compiled(name: str) -> Compiled:
    return compile(PROGRAMS[name], chip("910b2"))


PROGRAMS = {
    "add": add_program(5000),
    "softmax": softmax_program(37, 200),
    "matmul": matmul_program(100, 150, 130),
    "gelu": gelu_program(256, 64, 96),
    "zoo": zoo_program(),
}


@needs_wheel
@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_chip_takes_every_program(name: str, target: str) -> None:
    made = compile(PROGRAMS[name], chip(target))
    assert made.missing == () and made.warnings == []
    assert made.target == chip(target).target
    assert made.planned.scheduled


@needs_wheel
def test_what_a_launcher_needs_to_know() -> None:
    (vector,), (cube,), (mixed,) = (compiled(n).phases for n in ("add", "matmul", "gelu"))
    assert (vector.task_type, cube.task_type, mixed.task_type) == (10, 20, 32)
    assert compiled("gelu").workspace == {"ws": 2 * 64 * 64 * 4}
    assert vector.peak == {"UB": 6 * 4096}
    assert cube.peak["L1"] == 4 * 64 * 64 * 2 and cube.peak["L0C"] == 64 * 64 * 4
    assert "vadd_1d_float" in vector.linked.functions
    assert vector.planned.functions[0].buffers[0].tile == "a"


@needs_wheel
def test_planned_add_is_exact() -> None:
    x, y = (RNG.standard_normal(5000).astype(np.float32) for _ in "xy")
    z = np.zeros_like(x)
    run(compiled("add").planned, {"x": x, "y": y, "z": z}, {})
    np.testing.assert_array_equal(z, x + y)


@needs_wheel
def test_planned_softmax_rounds_once() -> None:
    x = RNG.standard_normal((37, 200)).astype(np.float16)
    z = np.zeros_like(x)
    run(compiled("softmax").planned, {"x": x, "z": z}, {})
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(z, e / e.sum(1, keepdims=True), rtol=2**-10, atol=2**-24)


@needs_wheel
@pytest.mark.parametrize(
    ("dtype", "out", "turned", "blocks"),
    [
        (f16, None, False, {}),
        (f16, f32, True, {"bm": 128, "bn": 128, "bk": 256}),
        (bf16, None, False, {"bk": 32}),
        (i8, None, False, {}),
        (f32, None, True, {"bk": 24, "bm": 32}),
    ],
)
def test_planned_product(dtype: DType, out: DType | None, turned: bool, blocks: dict) -> None:
    program = matmul_program(100, 150, 330, dtype, out, turned, **blocks)
    wide = np.int32 if dtype == i8 else np.float32
    a, b = (_random(dtype, shape) for shape in ((100, 330), (330, 150)))
    c = np.zeros((100, 150), program.gm[2].dtype.numpy)
    given = np.ascontiguousarray(b.T) if turned else b
    made = compile(program, chip("910b2"))
    assert made.missing == ()
    run(made.planned, {"a": a, "b": given, "c": c}, {})
    expected = a.astype(wide) @ b.astype(wide)
    ulp = {f16: 2**-10, bf16: 2**-7, i32: 0, f32: 2**-20}[program.gm[2].dtype]
    np.testing.assert_allclose(c.astype(wide), expected, rtol=ulp, atol=330 * 2**-20)


def _random(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == i8:
        return RNG.integers(-128, 128, shape).astype(np.int8)
    return RNG.standard_normal(shape).astype(dtype.numpy)


@needs_wheel
def test_planned_mixed_kernel() -> None:
    a = (RNG.standard_normal((256, 96)) / 4).astype(np.float16)
    w = RNG.standard_normal((96, 64)).astype(np.float16)
    bias, c = RNG.standard_normal(64).astype(np.float32), np.zeros((256, 64), np.float16)
    run(compiled("gelu").planned, {"a": a, "w": w, "bias": bias, "c": c}, {})
    np.testing.assert_allclose(c, gelu(a, w, bias), rtol=2**-10, atol=2**-12)


@needs_wheel
def test_planned_masks_shifts_scalars_and_three_slots() -> None:
    x = (RNG.standard_normal((300, 40)) * 8).astype(np.float32)
    words = RNG.integers(-(2**31), 2**31, (300, 40)).astype(np.int32)
    table = RNG.permutation(75).astype(np.int32)
    z, q = np.zeros_like(x), np.zeros(x.shape, np.float16)
    planned = compiled("zoo").planned
    run(planned, {"x": x, "w": words, "table": table, "z": z, "q": q}, {"low": -1.25})
    expected = zoo(x, words, table, -1.25)
    np.testing.assert_array_equal(z, expected)
    kept = np.isin(np.arange(75) % 3, (0, 2))
    rows = (table[kept][:, None] * 4 + np.arange(4)).ravel()
    np.testing.assert_array_equal(q[rows], expected[rows].astype(np.float16))
    assert max(b.slots for b in planned.phases[0].functions[0].buffers) == 3


@needs_wheel
def test_planned_values_that_cross_trips_and_single_elements() -> None:
    """Slots that a later trip reads are one allocation; one element stays with the vector unit."""
    x = RNG.standard_normal(640).astype(np.float32)
    z, total = np.zeros_like(x), np.zeros(1, np.float32)
    made = compile(ring_program(640), chip("910b2"))
    assert made.warnings == []
    run(made.planned, {"x": x, "z": z, "total": total}, {})
    expected = np.concatenate([np.zeros(64, np.float32), x[:-64] + np.float32(1)])
    np.testing.assert_array_equal(z, expected)
    np.testing.assert_allclose(total[0], expected.sum(), rtol=1e-5)


@needs_wheel
def test_a_wrong_plan_gives_wrong_numbers() -> None:
    """The check has teeth: with one address moved onto another buffer, the sum is wrong."""
    planned = compiled("add").planned
    (f,) = planned.phases[0].functions
    by_tile = {b.tile: b for b in f.buffers}
    moved = replace(by_tile["c"], addresses=by_tile["a"].addresses)
    body = _with_buffer(f.body, by_tile["c"], moved)
    wrong = replace(planned, phases=(Phase((replace(f, body=body),)),))
    x, y = (RNG.standard_normal(5000).astype(np.float32) for _ in "xy")
    z = np.zeros_like(x)
    run(wrong, {"x": x, "y": y, "z": z}, {})
    assert not np.allclose(z, x + y)


def _with_buffer(body: tuple, old: object, new: object) -> tuple:
    def change(s: object) -> object:
        if hasattr(s, "body"):
            return replace(s, body=_with_buffer(s.body, old, new))  # type: ignore[attr-defined]
        if hasattr(s, "ins"):
            swap = lambda v: replace(v, memory=new) if getattr(v, "memory", 0) is old else v  # noqa: E731
            return replace(s, out=swap(s.out), ins=tuple(map(swap, s.ins)))  # type: ignore[attr-defined]
        return s

    return tuple(map(change, body))


# -- errors ----------------------------------------------------------------------------------------


@needs_wheel
def test_overflow_shows_the_tiles_and_their_lines() -> None:
    with pytest.raises(CapacityError) as caught:
        compile(add_program(500_000, tile=20_480), chip("910b2"))
    text = str(caught.value)
    assert text.startswith("add.py:1:5: kernel `add` needs at least ")
    assert "a core has 192 KiB" in text
    assert caught.value.tiles[1] == "c (20,480 × f32)  2 × 80.0 KiB  line 2"
    with pytest.raises(CapacityError, match="L0C"):
        compile(matmul_program(512, 512, 64, bm=256, bn=256), chip("910b2"))


@needs_wheel
def test_wrong_types_are_found_at_the_line() -> None:
    b = Builder("bad")
    x = Gm("x", f32, (64,))
    wide, narrow = b.buffer("u", "UB", f32, 64), b.buffer("h", "UB", f16, 64)
    b.op("load", row(wide, 64), row(x, 64))
    b.op("vexp", row(narrow, 64), row(wide, 64))
    with pytest.raises(KernelError, match=r"^bad\.py:4:5: .*same element type"):
        compile(Program("bad", (x,), (), (Phase((b.fn("vector", 1),)),)), chip("910b2"))


@needs_wheel
def test_reading_what_nobody_wrote_is_an_error_though_the_compiler_exits_with_0() -> None:
    b = Builder("bad")
    x = Gm("x", f32, (64,))
    u, v = b.buffer("u", "UB", f32, 64), b.buffer("v", "UB", f32, 64)
    b.op("vexp", row(v, 64), row(u, 64))
    b.op("store", row(x, 64), row(v, 64))
    with pytest.raises(KernelError, match=r"^bad\.py:1:5: .*read before first write"):
        compile(Program("bad", (x,), (), (Phase((b.fn("vector", 1),)),)), chip("910b2"))


@needs_wheel
def test_functions_that_no_library_has() -> None:
    """i8 to i32 passes all passes and calls a function that does not exist."""
    b = Builder("bad")
    x, z = Gm("x", i8, (64,)), Gm("z", i32, (64,))
    u, v = b.buffer("u", "UB", i8, 64), b.buffer("v", "UB", i32, 64)
    b.op("load", row(u, 64), row(x, 64))
    b.op("vcast", row(v, 64), row(u, 64))
    b.op("store", row(z, 64), row(v, 64))
    with pytest.raises(KernelError, match=r"^bad\.py:4:5: .*vcast_int8_t_to_int32_t"):
        compile(Program("bad", (x, z), (), (Phase((b.fn("vector", 1),)),)), chip("910b2"))


@needs_wheel
def test_scalar_loops_are_found() -> None:
    found = tools.find()
    b = Builder("slow")
    x = Gm("x", i32, (64,))
    u, v = b.buffer("u", "UB", i32, 64), b.buffer("v", "UB", i32, 64)
    b.op("load", row(u, 64), row(x, 64))
    b.op("load", row(v, 64), row(x, 64))
    b.op("vshl", row(u, 64), row(u, 64), row(v, 64))
    b.op("store", row(x, 64), row(u, 64))
    program = Program("slow", (x,), (), (Phase((b.fn("vector", 1),)),))
    passed = tools.run_passes(print_phase(program, 0).text, "Ascend910B2", found)
    (finding,) = check(passed.lowered, found).findings
    assert finding.kind == "scalar" and finding.place is not None and finding.place.line == 5


@needs_wheel
def test_symbols_are_those_that_llvm_reads() -> None:
    path = tools.find().root / "lib" / "meta_op.mix.aic.bc"
    module = llvm.parse_bitcode(path.read_bytes())
    defined = {f.name for f in module.functions if not f.is_declaration}
    declared = {f.name for f in module.functions if f.is_declaration}
    found = defined_functions(path)
    assert len(defined) > 300 and defined <= found and not declared & found


# -- CANN ------------------------------------------------------------------------------------------


@needs_wheel
def test_hivmc_gets_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for CANN's code generator records how it is called."""
    fake = tmp_path / "hivmc"
    fake.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "hivmc 0.2.0 (abcdef0 2026-01-01)"; exit 0; fi\n'
        f'echo "$@" > {tmp_path}/call\ncp "$1" {tmp_path}/given.mlir\n'
        'while [ "$1" != -o ]; do shift; done\nprintf object > "$2"\n'
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    made = compile(add_program(64), chip("910b2"))
    (phase,) = made.phases
    assert phase.handed.object == b"object"
    call = (tmp_path / "call").read_text()
    assert "--enable-static-bare-ptr=true" in call and call.rstrip().endswith("kernel.o")
    assert (tmp_path / "given.mlir").read_text() == phase.handed.text
    assert "aiv_bitcode" in phase.handed.text
    paths = write(made, tmp_path / "out")
    assert sorted(p.name for p in paths) == [
        "add.hivmc.mlir", "add.lowered.mlir", "add.mlir", "add.o", "add.planned.mlir",
    ]  # fmt: skip
    assert all(p.stat().st_size for p in paths)


@needs_wheel
def test_without_hivmc_there_is_a_module_and_no_object() -> None:
    (phase,) = compiled("add").phases
    assert phase.handed.object is None
    assert "hivm.module_core_type = #hivm.module_core_type<AIV>" in phase.handed.text


def test_without_the_wheel_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install 'terrazzo\[ascend\]'"):
        tools.find()
