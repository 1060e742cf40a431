"""`terrazzo kernel profile` and `check` on the plans of the vendor's compiler."""

from __future__ import annotations

import json

import pytest
from ascend_extra import needs_wheel

from terrazzo.cli.main import app

pytestmark = needs_wheel
KERNELS = [
    ("softmax", "rows=96,dim=300", ""),
    ("matmul_bias_gelu", "m=200,n=130,k=100", "T=f16,R=f16"),
    ("flash_attention", "heads=4,tokens=192,dim=64", "Q=f16,R=f16"),  # masks have no address there
    ("decode_attention", "ctx=300", "Q=f16,R=f16"),
]


@pytest.mark.parametrize(("name", "shape", "types"), KERNELS)
def test_both_plans_move_the_same(
    name: str, shape: str, types: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--shape", shape, *(["--dtype", types] if types else []), "--json"]
    got = {}
    for plan in ("own", "vendor"):
        assert app(["kernel", "profile", name, "--plan", plan, *options]) == 0
        got[plan] = json.loads(capsys.readouterr().out)
        assert got[plan]["plan"] == plan and got[plan]["time_us"] > 0
    for path in ("GM->UB", "UB->GM", "GM->L1", "L0C->GM"):
        assert got["own"]["traffic"].get(path, {}).get("bytes") == pytest.approx(
            got["vendor"]["traffic"].get(path, {}).get("bytes")
        )


@pytest.mark.parametrize(("name", "shape", "types"), KERNELS)
def test_the_checker_finds_nothing(
    name: str, shape: str, types: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--shape", shape, *(["--dtype", types] if types else [])]
    assert app(["kernel", "check", name, "--plan", "vendor", *options]) == 0
    assert capsys.readouterr().out == ""
