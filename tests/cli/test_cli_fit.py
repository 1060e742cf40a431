"""`terrazzo fit`: its figures add up, and are what a process then takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from terrazzo.cli.commands import run

# An engine that fills its whole cache, and what it had resident at most.
SCRIPT = """
import sys
from terrazzo.engine.engine import Engine
from terrazzo.engine.model import peak_rss_bytes
from terrazzo.engine.options import EngineOptions
from terrazzo.engine.request import Request
context, parallel, kv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
e = Engine(EngineOptions("smollm2", context=context, parallel=parallel, kv=kv, threads=2,
                         draft=sys.argv[4] or None))
if e.speculation is not None:
    e.speculation.worth = 0.0  # draft always
for n in range(parallel):
    prompt = tuple((n * 7 + i * 13) % 40000 + 20 for i in range(context - 8))
    e.add(Request(str(n), prompt, max_tokens=8))
while e.busy:
    e.step()
print(peak_rss_bytes())
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}  # fmt: skip


def fit(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> dict[str, Any]:
    assert run(["fit", *args, "--threads", "2", "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("context", "parallel", "kv", "draft"),
    [("512", "4", "f16", ""), ("2048", "4", "int8", ""), ("1024", "4", "f16", "smollm2")],
)
def test_the_plan_is_what_a_process_takes(
    capsys: pytest.CaptureFixture[str], context: str, parallel: str, kv: str, draft: str
) -> None:
    more = ("--draft", draft) if draft else ()
    got = fit(capsys, "smollm2", "--memory", "8GiB", "--context", context,
              "--parallel", parallel, "--kv", kv, *more)  # fmt: skip
    command = [sys.executable, "-c", SCRIPT, context, parallel, kv, draft]
    runs = [  # the first one may have kernels to compile, which takes memory too
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        for _ in range(2)
    ]
    most = 1.15 if draft else 1.08  # a draft model has not read all prompts when answers end
    assert 0.97 <= got["used"] / int(runs[1].stdout) <= most
    assert got["used"] == sum(got["parts"].values()) and got["used"] + got["remains"] == 8 << 30


def test_kinds_and_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    wide, auto, narrow = (
        fit(capsys, "smollm2", "--memory", "700MiB", "--parallel", "16", "--kv", kv)
        for kv in ("f16", "auto", "int8")
    )
    assert wide["block_bytes"] / narrow["block_bytes"] >= 1.9
    assert wide["block_bytes"] / auto["block_bytes"] >= 1.7
    assert wide["context"] < auto["context"] < narrow["context"]
    assert wide["fits"] and wide["remains"] >= 0
    more = fit(capsys, "smollm2", "--memory", "700MiB", "--parallel", "16",
               "--context", str(wide["context"] + 160))  # fmt: skip
    assert not more["fits"] and more["runs"] and more["advice"]


def test_what_does_not_fit_says_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    got = fit(capsys, "smollm2", "--memory", "200MiB", "--context", "8192", code=2)
    assert not got["runs"] and any("--context" in a for a in got["advice"])
    assert run(["fit", "smollm2", "--memory", "200MiB", "--context", "8192"]) == 2
    assert "does not fit" in capsys.readouterr().out


def test_a_bare_config_and_a_chip(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    got = fit(capsys, str(path), "--chip", "910b2", "--parallel", "4", "--context", "8192")
    assert got["memory"] in (32 << 30, 64 << 30)
    assert got["parts"]["weights"] == pytest.approx(8.03e9 * 2, rel=0.01)  # 8 billion in bf16
    assert got["parts"]["KV cache"] == 4 * 8192 * 2 * 32 * 8 * 128 * 2
    low = fit(capsys, str(path), "--weights", "q4_0", "--memory", "8GiB", "--context", "4096",
              "--parallel", "1")  # fmt: skip
    assert low["parts"]["weights"] < got["parts"]["weights"] / 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["smollm2", "--memory", "lots"], "'lots'"),
        (["smollm2", "--memory", "2GiB", "--kv", "f8"], "'f8'"),
        (["smollm2", "--memory", "2GiB", "--parallel", "0"], "parallel is 0"),
        (["smollm2", "--memory", "2GiB", "--context", "9999999"], "9,999,999"),
        (["smollm2", "--chip", "h100"], "h100"),
        (["nothing"], "nothing"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], args: list[str], words: str) -> None:
    assert run(["fit", *args]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
