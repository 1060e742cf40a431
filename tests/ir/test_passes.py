"""Passes from text to text: golden/PASS_CASE.txt holds input, a line `=== PASS`, output."""

from collections.abc import Callable
from pathlib import Path

import pytest

from terrazzo.ir import parser, printer, verify
from terrazzo.ir.ops import Loop
from terrazzo.ir.passes import pipeline

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))
PASSES = dict(pipeline())
STAGE = {"simplify": "traced", "dead": "simplified", "accumulate": "accumulated"}


@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_golden(file: Path, golden: Callable[[Path, str], None]) -> None:
    name = file.stem.split("_")[0]
    before = file.read_text().split(f"=== {name}\n")[0]
    kernel = parser.parse(before)
    verify.verify(kernel, "traced")
    after = PASSES[name](kernel)
    verify.verify(after, STAGE[name])
    golden(file, f"{before}=== {name}\n{printer.format(after)}")
    assert PASSES[name](after) == after, "a pass has nothing left to do on its own output"


def test_locations_survive() -> None:
    """A pass keeps the places in the source of what it keeps."""
    import terrazzo.kernels.norm as norm
    import terrazzo.lang as tz

    kernel = norm.rms_norm.specialise({"T": tz.f16, "R": tz.f16})
    for _, run in pipeline():
        kernel = run(kernel)
    grid = kernel.body[-1]
    assert isinstance(grid, Loop)
    assert all(s.loc is not None for s in (*kernel.body, *grid.body))
