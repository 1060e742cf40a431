"""`terrazzo kernel`: every kernel of the library can be listed, shown, run and explained."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from cli_result import Result

from terrazzo.cli import kernel as cli_kernel

Run = Callable[..., Result]
LIBRARY = cli_kernel.library()
SMALL = {
    "n": 96,
    "m": 5,
    "k": 64,
    "rows": 5,
    "dim": 96,
    "tokens": 12,
    "spans": 3,
    "vocab": 300,
    "s": 17,
    "t": 17,
}


def test_list(run: Run) -> None:
    out = run("kernel", "list").out
    assert all(f"\n{name} " in out for name in LIBRARY)
    listed = json.loads(run("kernel", "list", "--json").out)
    assert [k["name"] for k in listed] == sorted(LIBRARY)
    assert all(k["doc"] for k in listed)


def test_show(run: Run) -> None:
    out = run("kernel", "show", "rms_norm").out
    assert "f32, f16, bf16, a8" in out and "def rms_norm(" in out and "[rows, dim]" in out
    assert json.loads(run("kernel", "show", "rms_norm", "--json").out)["source"].startswith(
        "@tz.kernel"
    )


@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_run_agrees_with_the_reference(run: Run, name: str) -> None:
    """f32 all through: sums of up to 96 terms of a few units differ by roundings, 2^-24 each."""
    shape = ",".join(f"{d}={SMALL[d]}" for d in LIBRARY[name].dims if d in SMALL)
    got = json.loads(run("kernel", "run", name, "--shape", shape, "--json").out)
    assert got["time_s"] > 0 and got["runs"] >= 5
    assert got["outputs"]
    for output in got["outputs"].values():
        assert output["max_error"] <= 96 * 2.0**-24 * max(output["max_value"], 1.0)


@pytest.mark.parametrize("name", ["attention", "draw", "embedding", "rope_store", "quantize"])
def test_run_strictly(run: Run, name: str) -> None:
    """Random arguments keep to the kernels' contracts, so nothing is reported."""
    shape = ",".join(f"{d}={SMALL[d]}" for d in LIBRARY[name].dims if d in SMALL)
    got = json.loads(run("kernel", "run", name, "--shape", shape, "--strict", "--json").out)
    assert all(o["max_error"] <= 1e-4 * max(o["max_value"], 1.0) for o in got["outputs"].values())


@pytest.mark.parametrize("weights", ["q8_0", "q4_0", "q4_1", "q6_k"])
def test_run_with_options(run: Run, weights: str) -> None:
    got = run("kernel", "run", "linear", "--dtype", f"A=a8,W={weights}", "--with", "bias,residual",
              "--shape", "m=3,n=48,k=256", "--const", "M=64", "--threads", 1)  # fmt: skip
    assert got.code == 0, got.err
    assert f"{weights}[48, 256]" in got.out and "on 1 threads" in got.out
    assert "largest difference from the reference" in got.out


def test_explain(run: Run) -> None:
    out = run("kernel", "explain", "rms_norm").out
    titles = [line.split()[1].rstrip(":") for line in out.splitlines() if line.startswith("==== ")]
    assert titles[0] == "source" and titles[-3:] == ["nest", "llvm", "assembly"]
    assert {"trace", "simplify", "dead", "accumulate"} <= set(titles)
    assert "define void @" in out and "rsqrt" in out
    one = json.loads(run("kernel", "explain", "add", "--stage", "nest", "--json").out)
    assert list(one["stages"]) == ["nest"] and "nest add" in one["stages"]["nest"]


def test_difference_counts_nan_as_equal_to_nan_only() -> None:
    a, b = np.array([1, np.nan, np.nan, np.inf]), np.array([1, np.nan, 2, np.inf])
    found = cli_kernel.difference(a, b)
    assert found["different"] == 1 and found["max_error"] > 1e300
