"""`terrazzo bench` and `doctor`: every figure is there, and agrees with its neighbours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_result import Result

from terrazzo.cli import roofline
from terrazzo.models.costs import Cost
from terrazzo.targets.cpu import isa as isas

Run = Callable[..., Result]


def test_bench(run: Run, model_path: Path) -> None:
    done = run(
        "bench", model_path, "--prompt", 24, "--decode", 6, "--runs", 2, "--threads", 1, "--json"
    )
    assert (done.code, done.err) == (0, "")
    said = json.loads(done.out)
    for key in (
        "prefill_tokens_per_s", "decode_tokens_per_s", "load_s", "compile_s", "compile_cached_s",
        "first_token_s", "peak_rss_bytes", "weight_bytes", "kv_bytes", "bytes_per_token",
        "bandwidth_bytes_per_s", "bandwidth_share",
    ):  # fmt: skip
        assert said[key] > 0, key
    for key in ("prefill_tokens_per_s", "decode_tokens_per_s"):
        low, high = said[f"{key}_spread"]
        assert low <= said[key] <= high
    assert said["dispatch_us_per_token"] >= 0
    assert said["barriers_per_token"] == 0  # one thread waits for nobody
    assert said["first_token_prompt_tokens"] == 19
    assert said["compile_cached_s"] < said["compile_s"]
    assert 0 < said["imports_rss_bytes"] <= said["peak_rss_bytes"]  # of a process with a past
    # 30 layers of 3 heads of 64, keys and values in f16, for 25 tokens
    assert said["kv_bytes"] == 25 * 30 * 3 * 64 * 2 * 2
    kernels = {k["name"]: k for k in said["kernels"]}
    assert {"linear", "gated_linear", "attention_parts", "rms_norm", "argmax"} <= kernels.keys()
    assert kernels["gated_linear"]["launches_per_token"] == 30
    times = [k["decode_us_per_token"] for k in said["kernels"]]
    assert times == sorted(times, reverse=True)
    assert all(k["prefill_us_per_token"] >= 0 for k in said["kernels"])


def test_bench_refuses_what_does_not_fit(run: Run, model_path: Path) -> None:
    said = run("bench", model_path, "--prompt", 9000, "--runs", 1).error_line()
    assert "9,000" in said and "8,192" in said


def test_doctor(run: Run, folders: dict[str, str]) -> None:
    out = run("doctor").out
    for word in ("CPU", "chosen", "micro-kernels", "threads", "GB/s", "GFLOP/s", "LLVM"):
        assert word in out
    assert folders["TERRAZZO_CACHE"] in out
    said = json.loads(run("doctor", "--threads", 1, "--json").out)
    npu = said["ascend"]
    assert npu["npus"] >= 0 and (npu["npus"] > 0) == (npu["why_none"] is None)
    assert "NPU " in out and "hivmc" in out
    assert said["measured"]["threads"] == 1
    assert said["measured"]["f32_flop_per_s"] > 1e9
    assert all(rate > 1e8 for rate in said["measured"]["read_bytes_per_s"].values())
    assert said["isa"]["name"] in isas.NAMES
    formats = said["isa"]["formats"].keys() - {"on tiles"}  # needs AMX
    assert formats == {"f32", "f16", "bf16", "q8_0, q6_k", "q4_0, q4_1"}
    assert "cgroup quota" in said["threads"]["why"]
    assert said["threads"]["default"] >= 1


def test_doctor_says_what_is_masked(
    run: Run, folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERRAZZO_ISA", "plain")
    isas.detect.cache_clear()
    try:
        said = json.loads(run("doctor", "--threads", 1, "--json").out)["isa"]
        out = run("doctor", "--threads", 1).out
    finally:
        monkeypatch.undo()
        isas.detect.cache_clear()
    assert said["name"] == "plain" and "TERRAZZO_ISA asks for it" in said["why"]
    assert said["masked"] == sorted(isas.host_features()) and not said["unused"]
    assert "32-bit multiplications" in out


def test_doctor_names_a_folder_that_cannot_be_used(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TERRAZZO_CACHE", str(tmp_path / "file" / "cache"))
    assert "cannot be made" in run("doctor", "--threads", 1).out


def test_roofline(run: Run, model_path: Path, tmp_path: Path) -> None:
    picture = tmp_path / "roofline.svg"
    said = json.loads(run("bench", model_path, "--roofline", "--prompt", 20, "--depth", 20,
                          "--plot", picture, "--json").out)  # fmt: skip
    prefill, decode = said["steps"]
    assert (prefill["tokens"], prefill["start"]) == (20, 0)
    assert (decode["tokens"], decode["start"]) == (1, 21)
    for step in said["steps"]:
        assert sum(k["share_of_time"] for k in step["kernels"]) == pytest.approx(1)
        assert all(k["us"] > 0 and k["least_us"] > 0 for k in step["kernels"])
        for k in step["kernels"]:
            assert k["far"] == (k["share_of_time"] > 0.05 and k["share_of_limit"] < 0.6)
            assert k["far"] or k["reason"] is None
    assert picture.read_text().startswith("<svg") and "attention" in picture.read_text()


def test_plot_wants_roofline(run: Run, model_path: Path, tmp_path: Path) -> None:
    assert "--roofline" in run("bench", model_path, "--plot", tmp_path / "x.svg").error_line()


def test_roofline_names_what_stays_far_from_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    limits = roofline.Limits(stream=1e9, cache=1e9, f32=1e9, int8=1e9)
    costs = [
        Cost("gate, up", "gated_linear", operations=1000, int8=True),
        Cost("head", "linear"),
        Cost("attention", "attention", streamed=900),
        Cost("new", "new", passed=50),
    ]
    table = roofline._table("prefill", costs, [2e-6, 1e-8, 1e-6, 1e-6], limits)
    far = {k["part"]: k["reason"] for k in table if k["far"]}
    assert far.keys() == {"gate, up", "new"} and far["new"] is None  # the head takes no time
    roofline.report({
        "threads": 1, "working_set_bytes": 1, "stream_bytes_per_s": 1e9, "cache_bytes_per_s": 1e9,
        "f32_operations_per_s": 1e9, "int8_operations_per_s": 1e9,
        "steps": [{"step": "prefill", "tokens": 8, "start": 0, "kernels": table}],
    })  # fmt: skip
    said = capsys.readouterr().out
    assert f"prefill, gate, up: 50%: {far['gate, up']}" in said
    assert "prefill, new: 5%: NO REASON" in said and "attention: 90%" not in said
