"""`terrazzo kernel profile` and `check`: options, files, JSON, exit codes; the simulator stands
aside for a hand-written program, so that only the command is tested."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from cli_result import Result

from terrazzo.cli import kernel as cli_kernel
from terrazzo.cli import kernel_inputs
from terrazzo.errors import OptionError
from terrazzo.ir.ops import Loc
from terrazzo.ir.packed import Packed
from terrazzo.ir.types import f32
from terrazzo.targets.davinci.chips import Chip
from terrazzo.targets.davinci.lower import Options
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    For,
    Gm,
    If,
    Instr,
    Phase,
    Program,
    View,
    WaitFlag,
)
from terrazzo.targets.davinci.timeline import LineUse, PipeUse, Span, Timeline

Run = Callable[..., Result]
KERNEL, ADD = cli_kernel.find("silu_mul"), cli_kernel.find("add")
FILE, FIRST, LINES = KERNEL.listing
BODY = FIRST + len(LINES) - 1  # its last line


def stub(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """Puts a module in the place of `name`."""
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)
    package, _, last = name.rpartition(".")
    monkeypatch.setattr(sys.modules[package], last, module, raising=False)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the command asked of the lowering."""
    from terrazzo.runtime import davinci

    loc = Loc(FILE, BODY, 4, 9, "out")
    gm, ub = Gm("x", f32, (64,)), Buffer("t", "UB", f32, 64, 1, (0,), "x[i]", loc)
    load = Instr("load", View(ub, (64,), (1,)), (View(gm, (64,), (1,)),), (), loc)
    fn = CoreFn("vector", (load,), (ub,), 48)
    program = Program("silu_mul", (gm,), (), (Phase((fn,)),), True)
    seen: list[tuple[Any, ...]] = []

    def prepare(kernel: Any, args: Any, kwargs: Any, chip: Chip, plan: str, options: Any) -> Any:
        seen.append((kernel.name, chip.name, plan, options))
        return program, davinci.lowered(kernel, args, kwargs, chip)

    def simulate(given: Program, chip: Chip, scalars: Any, indices: Any) -> Timeline:
        assert given is program
        use = PipeUse("vector", "MTE2", 900.0, 1, 256, {})
        span = Span(0, "vector", "MTE2", "load", 0.0, 900.0, 0.0, "", 256, loc)
        return Timeline(
            chip, "silu_mul", 1000.0, 5.0, {"vector": 48}, (use,),
            (LineUse(loc, "vector", {"MTE2": 900.0}),), (span,), (), {"GM->UB": 12288.0}, 12288.0,
            0.0, 0.0, 0, 1.0, 0.0,
        )  # fmt: skip

    monkeypatch.setattr(davinci, "prepare", prepare)
    stub(monkeypatch, "terrazzo.targets.davinci.timing", simulate=simulate)
    return seen


def test_profile_json(run: Run, calls: list[Any]) -> None:
    out = run("kernel", "profile", "silu_mul", "--chip", "910b4", "--json")
    got = json.loads(out.out)
    assert out.code == 0 and got["kernel"] == "silu_mul" and got["chip"] == "910b4"
    assert got["time_us"] == pytest.approx(1000 / 1500 + 5) and got["cycles"] == 1000
    assert got["pipes"]["aiv_mte2_ratio"] == pytest.approx(0.9) and got["bound"] == "latency"
    assert got["occupancy"]["UB"]["peak_bytes"] == 256 and got["plan"] == "own"
    line = next(x for x in got["lines"] if x["line"] == BODY)
    assert line["cycles"] == 900 and line["pipes"] == {"aiv_mte2": 900}
    assert calls == [("silu_mul", "910b4", "own", Options())]


def test_profile_text(run: Run, calls: list[Any]) -> None:
    out = run("kernel", "profile", "silu_mul")
    assert out.code == 0 and "silu_mul on 910b2: 5.6 µs" in out.out
    assert "aiv_mte2_ratio" in out.out and "def silu_mul" in out.out


def test_profile_writes_files(run: Run, calls: list[Any], tmp_path: Path) -> None:
    trace, page, tables = tmp_path / "t.json", tmp_path / "p.html", tmp_path / "csv"
    out = run("kernel", "profile", "silu_mul", "--trace", trace, "--html", page, "--csv", tables)
    assert out.code == 0 and "wrote" in out.err and "wrote" not in out.out
    assert any(e["name"] == "load" for e in json.loads(trace.read_text())["traceEvents"])
    assert page.read_text().startswith("<!doctype html>")
    assert (tables / "PipeUtilization.csv").read_text().startswith("block_id,")


def test_a_place_that_cannot_be_written(run: Run, calls: list[Any], tmp_path: Path) -> None:
    said = run("kernel", "profile", "silu_mul", "--html", tmp_path / "no" / "p.html").error_line()
    assert "p.html cannot be written: No such file or directory" in said


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--chip", "a100"), "there is no chip 'a100'; choose from 910b1"),
        (("--option", "slots=two"), "--option has slots=two; the value is a whole number"),
        (("--shape", "zz=3"), "has no dim 'zz'"),
    ],
)
@pytest.mark.parametrize("command", ["profile", "check"])
def test_wrong_options(
    run: Run, calls: list[Any], command: str, options: tuple[str, ...], text: str
) -> None:
    assert text in run("kernel", command, "silu_mul", *options).error_line()


def without_a_wait(body: tuple[Any, ...]) -> tuple[Any, ...]:
    """A core's statements, no pipe of it waiting for loads any more."""
    kept = []
    for s in body:
        if isinstance(s, (For, If)):
            kept.append(replace(s, body=without_a_wait(s.body)))
        elif not isinstance(s, WaitFlag) or s.src != "MTE2":
            kept.append(s)
    return tuple(kept)


def test_check_is_silent_when_all_is_right(run: Run) -> None:
    small = ("--shape", "m=40,n=70,k=100", "--dtype", "T=f16,R=f16")
    out = run("kernel", "check", "matmul_bias_gelu", *small)
    assert (out.code, out.out, out.err) == (0, "", "")
    assert run("kernel", "check", "matmul_bias_gelu", *small, "--json").out == "[]\n"


def test_check_reports(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads that nobody waits for: races, at the line of the addition."""
    from terrazzo.runtime import davinci

    prepare = davinci.prepare

    def broken(*args: Any) -> Any:
        program, low = prepare(*args)
        (phase,) = program.phases
        (fn,) = phase.functions
        fn = replace(fn, body=without_a_wait(fn.body))
        return replace(program, phases=(replace(phase, functions=(fn,)),)), low

    monkeypatch.setattr(davinci, "prepare", broken)
    command = ("kernel", "check", "add", "--shape", "n=5000")
    out = run(*command)
    assert out.code == 2 and "race: " in out.out and "math.py:" in out.out and "^" in out.out
    found = json.loads(run(*command, "--json").out)
    race = next(f for f in found if f["kind"] == "race")
    first, lines = ADD.listing[1:]
    assert lines[race["line"] - first].strip() == "out[i] = a[i] + b[i]"
    assert race["count"] >= 1 and race["message"] and race["remedy"]


@pytest.mark.parametrize("name", sorted(cli_kernel.library()))
def test_shapes_without_values(name: str) -> None:
    """Same types and shapes as with values, index tensors equal; floats take no time to make."""
    kernel = cli_kernel.library()[name]
    full = cli_kernel.arguments(kernel, None, None, None, None, 0)
    bare = cli_kernel.arguments(kernel, None, None, None, None, 0, filled=False)
    assert full.keys() == bare.keys()
    for key, x in full.items():
        y = bare[key]
        assert cli_kernel.spelt(x) == cli_kernel.spelt(y)
        if isinstance(y, np.ndarray) and y.dtype.kind == "f":
            assert not y.any()
        if isinstance(x, Packed):
            assert x.data.shape == y.data.shape


@pytest.mark.parametrize(
    ("kernel", "asked", "extents"),
    [
        ("flash_attention", "batch=1,heads=8,tokens=2048,dim=128",
         {"heads": 8, "kvheads": 8, "s": 2048, "t": 2048, "d": 128}),
        ("flash_attention", "batch=3,heads=8,kvheads=2,tokens=64,t=128",
         {"heads": 24, "kvheads": 6, "s": 64, "t": 128, "d": 64}),
        ("flash_attention", "batch=2", {"heads": 18, "kvheads": 6, "s": 128, "t": 128, "d": 64}),
        ("decode_attention", "batch=7,dim=32",
         {"seqs": 7, "kvheads": 3, "group": 3, "d": 32, "ctx": 512}),
        ("rms_norm", "dim=32", {"rows": 256, "dim": 32}),
    ],
)  # fmt: skip
def test_common_names_of_dims(kernel: str, asked: str, extents: dict[str, int]) -> None:
    numbers = {n: int(v) for n, v in (part.split("=") for part in asked.split(","))}
    assert kernel_inputs.extents(cli_kernel.find(kernel), numbers) == extents


@pytest.mark.parametrize(("kernel", "name"), [("matmul", "tokens"), ("rms_norm", "batch")])
def test_common_names_where_they_mean_nothing(kernel: str, name: str) -> None:
    with pytest.raises(OptionError, match=f"`{kernel}` has no dim '{name}'"):
        kernel_inputs.extents(cli_kernel.find(kernel), {name: 4})


def test_large_shapes_cost_nothing() -> None:
    """Three gigabytes of operands that nobody touches."""
    kernel = cli_kernel.find("matmul")
    sizes = kernel_inputs.extents(kernel, {"m": 16384, "n": 16384, "k": 16384})
    args = kernel_inputs.make(kernel, sizes, kernel_inputs.types(kernel, {}), (), filled=False)
    assert sum(x.nbytes for x in args.values() if isinstance(x, np.ndarray)) == 3 << 30
