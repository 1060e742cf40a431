"""The benchmark against measurements runs for configurations that its table does not have."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "davinci_measured.py"
GEMM = {"a": "f16", "b": "f16", "c": "f16"}
FLASH = {"batch": 1, "heads": 1, "head_dim": 128, "dtype": "f16", "causal": False,
         "q_rows_per_core": 128}  # fmt: skip
ADD = {"rows": 2048, "cols": 1024, "dtype": "f16", "bank_conflict": "none", "l2": "normal"}
ROWS: list[tuple[str, str, int, dict[str, Any], str]] = [
    ("gemm", "910b4", 20, {**GEMM, "m": 1000, "n": 777, "k": 520, "l1_tile": [128, 128, 128],
                           "b_layout": "row"}, "task_us"),
    ("gemm", "910b1", 5, {**GEMM, "m": 4096, "n": 4096, "k": 4096, "base": [128, 256, 64],
                          "step_k": 4, "b_transposed": True}, "mac_us"),
    ("gemm", "910b3", 20, {**GEMM, "m": 32, "n": 4096, "k": 4096, "b_layout": "zN",
                           "l1_tile": [32, 256, 256]}, "task_us"),
    ("gemm", "910b1", 24, {"a": "f32", "b": "f32", "c": "f32", "m": 64, "n": 512, "k": 512,
                           "l1_tile": [64, 64, 128], "b_layout": "row"}, "cube_pct"),
    ("add", "910b2", 7, {**ADD, "tile_bytes": 16384, "buffers": 3}, "task_us"),
    ("add", "910b2", 7, {**ADD, "tile_bytes": 16384, "buffers": 3}, "vec_us"),
    ("add", "910b2", 7, {**ADD, "tile_bytes": 16384, "buffers": 3, "bank_conflict": "read-read"},
     "vec_us"),
    ("add_in_ub", "910b1", 1, {"elements": 2048, "dtype": "f32", "repeats": 100,
                               "bank_conflict": "none", "counter_mhz": 50}, "ticks"),
    ("copy_gm_ub", "910b1", 40, {"rows": 1000, "cols": 5000, "dtype": "f32", "reads": 2,
                                 "tile": [8, 512]}, "mte2_or_core_us"),
    ("copy_gm_l1_nd2nz", "910_9391", 24, {"rows": 1024, "cols": 2048, "dtype": "f16", "reads": 1,
                                          "tile": [32, 128]}, "mte2_or_core_us"),
    ("flash_attention", "910b1", 6, {**FLASH, "q_tokens": 768, "kv_tokens": 512}, "task_us"),
    ("flash_attention", "910b1", 24, {**FLASH, "heads": 3, "q_tokens": 1024, "kv_tokens": 640},
     "task_us"),
    ("grouped_gemm_int8_gelu", "910b2", 24, {"m": 1024, "n": 2048, "k": 512, "a": "i8", "b": "i8",
                                             "cube_to_vector": "1:2", "stages": 2}, "task_us"),
    *(("grouped_gemm_int8_gelu", "910b1", 24, {"m": 4096, "n": 4096, "k": 512, "a": "i8", "b": "i8",
                                               "cube_to_vector": ratio, "stages": stages},
       "task_us") for ratio, stages in (("1:2", 4), ("1:2", 1), ("1:1", 1))),
]  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["family", "chip", "cores", "mhz", "params", "metric", "value", "source"])
        for family, chip, cores, params, metric in ROWS:
            out.writerow([family, chip, cores, 1850, json.dumps(params), metric, 10.0, "none"])
    plot = path.with_suffix(".svg")
    command = [sys.executable, str(SCRIPT), "--rows", str(path), "--json", "--plot", str(plot)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert plot.read_text().startswith("<svg")
    return json.loads(done.stdout)


def test_every_row_is_predicted(found: dict[str, Any]) -> None:
    rows = found["rows"]
    assert [r["line"] for r in rows] == list(range(2, len(ROWS) + 2))
    assert all(0 < r["predicted"] < 1e5 for r in rows)
    assert {r["family"] for r in rows} == {r[0] for r in ROWS}


def test_params_decide(found: dict[str, Any]) -> None:
    rows = found["rows"]
    without, conflict = (r["predicted"] for r in rows if r["metric"] == "vec_us")
    tiles, repeats = 256, 64
    assert without == pytest.approx(tiles / 7 * (repeats + 24.4) / 1800, rel=0.05)
    assert conflict == pytest.approx(tiles / 7 * (2 * repeats + 24.4) / 1800, rel=0.05)
    (mac,) = (r["predicted"] for r in rows if r["metric"] == "mac_us")
    assert mac == pytest.approx(4096**3 / 5 / 4096 / 1850, rel=0.03)
    (ticks,) = (r["predicted"] for r in rows if r["metric"] == "ticks")
    assert ticks == pytest.approx(100 * (32 + 24.4) / 1850 * 50, rel=0.1)


def test_more_tiles_between_the_cores_help_and_half_the_vector_cores_do_not(
    found: dict[str, Any],
) -> None:
    four, one, half = (r["predicted"] for r in found["rows"][-3:])
    assert four < 0.95 * one < 0.8 * half


def test_scores_count_configurations_once(found: dict[str, Any]) -> None:
    assert found["kernel_times"]["n"] == len([r for r in ROWS if r[4] in
                                              ("task_us", "ticks", "mte2_or_core_us")])  # fmt: skip
    assert found["pipes"]["n"] == 4
