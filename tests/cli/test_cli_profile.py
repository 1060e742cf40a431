"""`terrazzo kernel profile` and `check`, and `Kernel.profile`: options, files, JSON, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_result import Result

import terrazzo.lang as tz
from terrazzo.cli import kernel as cli_kernel
from terrazzo.cli import kernel_inputs
from terrazzo.errors import OptionError
from terrazzo.ir.packed import Packed
from terrazzo.kernels import linear
from terrazzo.targets.davinci.lowering.lower import Options
from terrazzo.targets.davinci.program import For, If, WaitFlag

Run = Callable[..., Result]
ADD = cli_kernel.find("add")


def profile(run: Run, *args: object) -> dict[str, Any]:
    """The JSON object of a profile."""
    out = run("kernel", "profile", *args, "--json")
    assert out.code == 0, out.err
    return json.loads(out.out)


def test_profile_json(run: Run) -> None:
    """An addition moves each of its three tensors once, and its one line does all the work."""
    got = profile(run, "add", "--chip", "910b4", "--shape", "n=4000000")
    assert (got["kernel"], got["chip"], got["plan"]) == ("add", "910b4", "own")
    assert got["arguments"] == dict.fromkeys(("a", "b", "out"), "f32[4000000]")
    assert got["traffic"]["GM->UB"]["bytes"] == pytest.approx(2 * 4 * 4e6)
    assert got["traffic"]["UB->GM"]["bytes"] == pytest.approx(4 * 4e6)
    assert got["time_us"] == pytest.approx(got["cycles"] / 1500 + got["launch_us"])
    assert got["cycles"] / 1500 > 2 * 4 * 4e6 / 0.88e6  # µs: what is read comes from device memory
    assert 0 < got["occupancy"]["UB"]["peak_bytes"] <= 192 * 1024
    first, lines = ADD.listing[1:]
    at = first + next(i for i, x in enumerate(lines) if "a[i] + b[i]" in x)
    busy = {x["line"]: x["cycles"] for x in got["lines"] if x["cycles"]}
    assert busy.keys() == {at} and busy[at] <= got["cycles"]


def test_options_of_the_lowering(run: Run) -> None:
    shape = ("--shape", "n=4000000")
    all_cores, few = (profile(run, "add", *shape, *o) for o in ((), ("--option", "vector_cores=4")))
    assert few["cycles"] > 2 * all_cores["cycles"]  # four cores cannot fill device memory


def test_attention_by_common_names(run: Run) -> None:
    shape = ("--shape", "batch=1,heads=8,tokens=256,dim=128", "--dtype", "Q=f16,R=f16")
    got = profile(run, "flash_attention", "--chip", "910b2", *shape)
    assert got["arguments"]["q"] == got["arguments"]["k"] == "f16[8, 256, 128]"
    assert got["pipes"]["aic_mac_ratio"] > 0 and got["pipes"]["aiv_vec_ratio"] > 0


def test_profile_in_python(run: Run) -> None:
    """The same report as the command's."""
    shape = (tz.f16, 512, 512)
    report = linear.matmul.profile(shape, shape, out=shape, chip="910b3")
    dims = ("--shape", "m=512,n=512,k=512", "--dtype", "T=f16,R=f16")
    assert report.json() == profile(run, "matmul", "--chip", "910b3", *dims)
    slow = linear.matmul.profile(shape, shape, shape, chip="910b3", options=Options(cores=1))
    assert slow.timeline.cycles > 2 * report.timeline.cycles


def test_profile_text(run: Run) -> None:
    out = run("kernel", "profile", "silu_mul")
    assert out.code == 0 and "silu_mul on 910b2: " in out.out and " µs" in out.out
    assert "aiv_mte2_ratio" in out.out and "def silu_mul" in out.out


def test_profile_writes_files(run: Run, tmp_path: Path) -> None:
    trace, page, tables = tmp_path / "t.json", tmp_path / "p.html", tmp_path / "csv"
    out = run("kernel", "profile", "silu_mul", "--trace", trace, "--html", page, "--csv", tables)
    assert out.code == 0 and "wrote" in out.err and "wrote" not in out.out
    assert any(e["name"] == "load" for e in json.loads(trace.read_text())["traceEvents"])
    assert page.read_text().startswith("<!doctype html>")
    assert (tables / "PipeUtilization.csv").read_text().startswith("block_id,")


def test_a_place_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    said = run("kernel", "profile", "silu_mul", "--html", tmp_path / "no" / "p.html").error_line()
    assert "p.html cannot be written: No such file or directory" in said


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--chip", "a100"), "there is no chip 'a100'; choose from 910b1"),
        (("--plan", "best"), "there is no plan 'best'; choose from own, vendor"),
        (("--option", "slots=two"), "--option has slots=two; the value is a whole number"),
        (("--option", "cores=99"), "option cores is 99; choose 1 to 24 on 910b2"),
        (("--shape", "zz=3"), "has no dim 'zz'"),
    ],
)
@pytest.mark.parametrize("command", ["profile", "check"])
def test_wrong_options(run: Run, command: str, options: tuple[str, ...], text: str) -> None:
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
