"""Make the stored oracle outputs: tests/data/oracle_logits.npz and tests/data/oracle.json.

    python tests/oracle/make_logits.py MODEL.gguf [--llama-python .venv-bench/bin/python]

Run in the environment of `make oracle` (`pip install '.[oracle]'`). llama.cpp runs in its own
interpreter, which `benchmarks/peers.py` makes. Takes about two minutes, and 1.5 GB of temporary
files.

oracle.json holds: versions; the file's sha256; per passage its name, token ids (llama.cpp's
tokeniser), summed negative log likelihood (fp32 and llama.cpp) and summed KL of llama.cpp to fp32,
full and coarse; per prompt its token ids and both greedy continuations. Where llama.cpp's two
attention paths differ, the smaller KL is kept: it is a bar for us.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.oracle import compact as measure  # noqa: E402
from tests.oracle import fp32  # noqa: E402

DATA = ROOT / "tests" / "data"
TEXTS = DATA / "texts.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    default = ROOT / ".venv-bench" / "bin" / "python"
    parser.add_argument("--llama-python", type=Path, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).with_name("llama_cpp_outputs.py")
        peer = [options.llama_python, script, options.model, TEXTS, folder]
        subprocess.run(peer, check=True)
        parts, summary = make(options.model, Path(folder))
    measure.save(DATA / "oracle_logits.npz", parts)
    text = json.dumps(summary, ensure_ascii=False, indent=1)
    (DATA / "oracle.json").write_text(_short_lists(text) + "\n")
    report(summary)


def make(path: Path, folder: Path) -> tuple[list[measure.Compact], dict[str, Any]]:
    """The stored parts and the summary, from fp32 logits computed here and llama.cpp's in
    `folder`."""
    texts = json.loads(TEXTS.read_text())
    peer = json.loads((folder / "ids.json").read_text())
    model = fp32.load(path)
    sign = measure.signs(model.config.vocab_size)
    parts, passages = [], []
    for number, (passage, ids) in enumerate(zip(texts["passages"], peer["passages"], strict=True)):
        oracle = fp32.logits(model, ids)
        stored = measure.compact(oracle, ids, sign)
        parts.append(stored)
        loss = measure.negative_log_likelihood(oracle, ids).sum()
        row = {"name": passage["name"], "ids": ids, "nll": float(loss)}
        paths = [folder / f"logits-{number}{tail}.npy" for tail in ("", "-flash")]
        passages.append(row | {"llama.cpp": [_against(oracle, stored, ids, p) for p in paths]})
    keep = int(np.argmin([sum(p["llama.cpp"][i]["kl"] for p in passages) for i in (0, 1)]))
    greedy = []
    for ids, theirs in zip(peer["prompts"], peer["greedy"], strict=True):
        chosen, lead = fp32.greedy(model, ids, texts["greedy_tokens"])
        greedy.append({"ids": ids, "fp32": chosen, "smallest_lead": lead, "llama.cpp": theirs})
    versions = {name: version(name) for name in ("torch", "transformers", "gguf")}
    return parts, {
        "versions": versions | {"llama-cpp-python": peer["version"]},
        "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "llama.cpp_attention": ["plain", "flash"][keep],
        "passages": [p | {"llama.cpp": p["llama.cpp"][keep]} for p in passages],
        "greedy": greedy,
    }


def _against(
    oracle: measure.F32, stored: measure.Compact, ids: list[int], path: Path
) -> dict[str, float]:
    """llama.cpp's logits of a passage against fp32: sums over its positions."""
    theirs = np.load(path)
    return {
        "nll": float(measure.negative_log_likelihood(theirs, ids).sum()),
        "kl": float(measure.kl(oracle, theirs).sum()),
        "coarse_kl": float(measure.coarse_kl(stored, theirs).sum()),
        "same_top": int((theirs.argmax(axis=1) == stored.top_ids[:, 0]).sum()),
        "smallest_cosine": float(measure.cosine(oracle, theirs).min()),
    }


def report(summary: dict[str, Any]) -> None:
    """Print the figures that the bars refer to."""
    passages = summary["passages"]
    positions = sum(len(p["ids"]) for p in passages)
    losses = positions - len(passages)

    def total(key: str) -> float:
        return sum(p["llama.cpp"][key] for p in passages)

    ours = np.exp(sum(p["nll"] for p in passages) / losses)
    print(f"positions {positions}; perplexity fp32 {ours:.4f}", end=", ")
    print(f"llama.cpp {np.exp(total('nll') / losses):.4f} ({summary['llama.cpp_attention']})")
    print(f"llama.cpp to fp32: mean KL {total('kl') / positions:.6f}", end=", ")
    print(f"coarse {total('coarse_kl') / positions:.6f}", end=", ")
    print(f"same top-1 {total('same_top') / positions:.4%}", end=", ")
    print(f"smallest cosine {min(p['llama.cpp']['smallest_cosine'] for p in passages):.6f}")
    for row in summary["greedy"]:
        same = row["fp32"] == row["llama.cpp"]
        print(f"greedy: smallest lead {row['smallest_lead']:.4f}, llama.cpp the same: {same}")


def _short_lists(text: str) -> str:
    """JSON text with lists of numbers on one line."""
    lines: list[str] = []
    for line in text.splitlines():
        item = line.strip()
        number = item.rstrip(",").isdigit()
        if lines and (number or (item[0] == "]" and lines[-1][-1].isdigit())):
            lines[-1] += item
        else:
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
