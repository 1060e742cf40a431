"""`terrazzo kernel compile`: tables, JSON, files, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ascend_extra import needs_wheel

from terrazzo.cli import kernel_compile
from terrazzo.cli.main import app
from terrazzo.targets.ascend import tools

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("rms_norm", …)`: exit code, stdout, stderr of the command."""

    def call(*args: object) -> tuple[int, str, str]:
        code = app(["kernel", "compile", *map(str, args)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@needs_wheel
def test_tables(run: Run) -> None:
    code, out, err = run("matmul_bias_gelu", "--target", "Ascend910B2", "--dtype", "T=f16,R=f16")
    assert code == 0 and err == ""
    rows = [line.split() for line in out.splitlines()]
    assert ["matmul_bias_gelu", "24", "cube", "+", "48", "vector", "32"] in [r[:7] for r in rows]
    planned = {r[1]: r[2:] for r in rows if len(r) == 9 and r[1] != "24"}
    assert planned.keys() == {"UB", "L1", "L0A", "L0B", "L0C"}
    assert planned["L0A"][:3] == ["65,536", "100", "%"] and planned["L0A"][-1] == "65,536"
    assert all(
        0 < int(p[3].replace(",", "")) <= int(p[-1].replace(",", "")) for p in planned.values()
    )
    assert "links: nd2nz_half, " in out and "workspace0 in device memory: 3.0 MiB" in out


@needs_wheel
def test_json(run: Run) -> None:
    shape = ("--shape", "rows=100,dim=64", "--option", "vector_cores=7")
    code, out, _ = run("rms_norm", "--target", "ascend910b4", *shape, "--json")
    got = json.loads(out)
    assert code == 0 and got["target"] == "Ascend910B4"
    assert got["arguments"]["x"] == "f32[100, 64]"
    (phase,) = got["phases"]
    assert phase["cores"] == {"vector": 7} and phase["task_type"] == 10
    ub = phase["spaces"]["UB"]
    assert 0 < ub["vendor_bytes"] < ub["capacity_bytes"] == 192 * 1024
    assert 0 < ub["own_bytes"] < ub["capacity_bytes"]
    assert "vmul_1d_float" in phase["functions"] and phase["diagnostics"] == []
    assert got["object"] is False and got["files"] == []


@needs_wheel
def test_files(run: Run, tmp_path: Path) -> None:
    code, _, err = run("add", "--target", "ascend910b2", "-o", tmp_path / "made")
    assert code == 0
    assert "no object: CANN's hivmc, which makes it, is not on PATH" in err
    written = {p.name: p.read_text() for p in (tmp_path / "made").iterdir()}
    assert written.keys() == {f"add.{e}" for e in (
        "mlir", "planned.mlir", "lowered.mlir", "hivmc.mlir")}  # fmt: skip
    assert "hivm.hir.vadd" in written["add.mlir"] and "aiv_bitcode" in written["add.hivmc.mlir"]


@needs_wheel
def test_a_folder_that_cannot_be_made(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run("add", "--target", "ascend910b2", "-o", tmp_path / "file")
    assert code == 2 and err.startswith("error: ") and "file cannot be written: " in err


@needs_wheel
def test_what_does_not_fit_shows_line_and_tiles(run: Run) -> None:
    code, out, err = run("add", "--target", "ascend910b2", "--const", "TILE=32768")
    assert code == 2 and out == ""
    assert "math.py:" in err and "KiB of UB as AscendNPU-IR plans it" in err and "^" in err


@needs_wheel
def test_run(run: Run) -> None:
    shape = ("--shape", "m=130,n=270,k=100", "--dtype", "T=f16,R=f16")
    code, out, err = run("matmul", "--target", "ascend910b2", *shape, "--run")
    assert (code, err) == (0, "")
    assert "out of the vendor's plan: largest error 0.00" in out
    assert "; 0 of 35,100 values are further off" in out
    code, out, _ = run(
        "rms_norm", "--target", "ascend910b2", "--shape", "rows=9", "--run", "--json"
    )
    (got,) = json.loads(out)["outputs"].items()
    assert code == 0 and got[0] == "out" and 0 < got[1]["max_error"] < got[1]["allowed"] < 1e-4


@needs_wheel
def test_a_plan_with_other_numbers_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_compile, "ROUNDINGS", {4: 1e-3})
    code, out, _ = run("rms_norm", "--target", "ascend910b2", "--shape", "rows=9", "--run")
    assert code == 2 and "; 0 of 9,216 values are further off" not in out


def test_what_is_allowed() -> None:
    """Sixteen roundings of an f16 (2^-10), of at least a sixteenth of the largest value."""
    want = np.array([1, 0.25, 4, np.nan, np.inf, -np.inf], np.float16)
    same = kernel_compile.compared(want.copy(), want)
    assert (same["max_error"], same["wrong"], same["values"]) == (0, 0, 6)
    got = want + np.array([2**-6, 2**-9, 2**-5, 0, 0, 0], np.float16)
    assert kernel_compile.compared(got, want)["wrong"] == 0
    got[1] = 0.25 + 2**-7
    found = kernel_compile.compared(got, want)
    assert found["wrong"] == 1 and found["max_error"] == 2**-7 and found["allowed"] == 2**-8
    for lost in (0, 3, 4, 5):
        got = want.copy()
        got[lost] = 7 if lost > 2 else np.nan
        found = kernel_compile.compared(got, want)
        assert found["wrong"] == 1 and found["max_error"] > 1e300
    whole = np.array([1, 2, 3], np.int32)
    assert kernel_compile.compared(whole + np.array([0, 1, 0]), whole)["wrong"] == 1


@needs_wheel
def test_a_plan_that_cannot_be_read_back(run: Run) -> None:
    """One element in all: the passes make scalar code of it."""
    code, out, err = run("add_custom", "--target", "ascend910b2", "--shape", "n=1")
    assert (code, out) == (2, "")
    assert "made of add_custom cannot be read back: scalar code that reads a tile" in err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--target", "h200"), "there is no target 'h200'; choose from ascend910b1, ascend910b2"),
        (("--target", "910b2"), "there is no target '910b2'"),
        (("--target", "ascend910b1", "--option", "colour=3"), "there is no option 'colour'"),
        (("--target", "ascend910b1", "--option", "cores=x"), "the value is a whole number"),
        (("--target", "ascend910b1", "--option", "cores=99"), "choose 1 to 24 on 910b1"),
        (("--target", "ascend910b1", "--option", "bypass=x"), "has no parameter `x`; it has: a, b"),
    ],
)
def test_wrong_options(run: Run, options: tuple[str, ...], text: str) -> None:
    code, out, err = run("add", *options)
    assert code == 2 and out == "" and text in err


def test_without_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_spec", lambda name: None)
    code, out, err = run("add", "--target", "ascend910b2")
    assert (code, out) == (2, "")
    assert err == (
        "error: the AscendNPU-IR compiler is not installed; pip install 'terrazzo[ascend]'\n"
    )
