"""Tiles too large for a thread's scratch: refused before anything is allocated, with what would
fit; and scratch is never larger than the extents need."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import terrazzo.lang as tz
from terrazzo.cli.kernel import library
from terrazzo.cli.kernel_inputs import EXTENTS
from terrazzo.errors import CapacityError, KernelError
from terrazzo.kernels.attention import flash_attention
from terrazzo.kernels.linear import matmul
from terrazzo.lang.types import TypeVar
from terrazzo.runtime import launch
from terrazzo.runtime.recorder import Recorder
from terrazzo.targets.cpu.capacity import holdings
from terrazzo.targets.cpu.isa import detect

rows, cols = tz.dims("rows cols")


@tz.kernel
def outer(x: tz.gm[tz.f32, rows], y: tz.gm[tz.f32, cols], out: tz.gm[tz.f32, rows],
          R: tz.const = 64):  # fmt: skip
    for r in tz.grid(rows, step=R):
        sheet = tz.zeros(r, cols)
        for _ in tz.loop(8):
            sheet = sheet + tz.exp(x[r] - y[:])
        out[r] = tz.max(sheet, axis=cols)


# with matrix tiles keys and values are copied as two or three bf16
NEEDS, FITS, REST = (
    ("516.9", "34.4", "7 more, together 1.2") if detect().matrix
    else ("515.2", "32.7", "6 more, together 0.7")
)  # fmt: skip


def heads(s: int) -> dict[str, Any]:
    x = np.zeros((1, s, 16), np.float32)
    return {"q": x, "k": x, "v": x, "out": x.copy(), "scale": 1.0}


def refused(call: Any) -> str:
    with pytest.raises(CapacityError) as e:
        call()
    return str(e.value)


def test_names_tiles_lines_sizes_and_what_fits() -> None:
    said = refused(lambda: flash_attention(**heads(8192), BQ=8192, STEP=8192))
    place, source, caret, *tiles = said.splitlines()
    assert "attention.py:" in place
    assert f"kernel `flash_attention` needs {NEEDS} MiB of scratch a thread for its tiles" in place
    assert "64.0 MiB are allowed" in place
    assert f"lower BQ from 8,192 to 512 (then {FITS} MiB), or STEP from 8,192 to 512" in place
    assert source.strip().startswith("x = qt @ tz.load(k[kv, j]") and "^^^^" in caret
    line = place.partition("attention.py:")[2].partition(":")[0]
    assert tiles[0].split() == ["x", "[i=8192,", "j=8192]", "256.5", "MiB", "line", line]
    assert tiles[1].split()[:3] == ["p", "[i=8192,", "j=8192]"]
    assert tiles[-1].strip() == f"and {REST} MiB"
    # what it says is true
    fits = launch.prepare(flash_attention, (), {**heads(8192), "BQ": 512, "STEP": 8192})
    assert round(fits.scratch / 2**20, 1) == float(FITS)
    refused(lambda: flash_attention(**heads(8192), BQ=1024, STEP=8192))


def test_recordings_are_refused_alike() -> None:
    recorder = Recorder("step", 1)
    said = refused(lambda: recorder.add(flash_attention, {}, **heads(8192), BQ=8192, STEP=8192))
    assert f"kernel `flash_attention` needs {NEEDS} MiB" in said


def test_whole_axes_that_no_constant_cuts() -> None:
    x, y = np.zeros(64, np.float32), np.zeros(1 << 20, np.float32)
    said = refused(lambda: launch.prepare(outer, (x, y, x.copy()), {}))
    assert "lower R from 64 to" in said
    wide = np.zeros(1 << 25, np.float32)
    said = refused(lambda: launch.prepare(outer, (x, wide, x.copy()), {}))
    assert "no tile size makes it fit: cut the whole axes of its largest tile into blocks" in said


@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 70), (64, 64), (200, 1000)])
def test_large_constants_cost_what_the_extents_need(m: int, n: int) -> None:
    """A block is never longer than its dim; results are those of small blocks."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s, np.float32) for s in ((m, 40), (40, n)))
    got, want = np.zeros((m, n), np.float32), np.zeros((m, n), np.float32)
    huge = {"M": 1 << 20, "N": 1 << 20, "K": 1 << 20}
    matmul(a, b, want)
    matmul(a, b, got, **huge)
    np.testing.assert_array_equal(got, want)
    need = launch.prepare(matmul, (a, b, got), huge).scratch
    padded = -(-n // 16) * 16 + 16
    # accumulator m x n, panels of b: k + lanes by n (6 bytes each as three bf16), a's rows
    assert need <= 4 * (m * padded + m * 64) + 6 * 64 * padded + 4 * 64


SEVEN_B = {
    "dim": 11008, "n": 11008, "k": 11008, "m": 2048, "rows": 2048, "tokens": 2048, "vocab": 131072,
    "d": 128, "half": 64, "group": 8, "kvheads": 8, "heads": 64, "s": 2048, "t": 8192,
    "positions": 8192, "pages": 512, "blocks": 512, "seqs": 8, "spans": 64, "ctx": 8192,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(library()))
def test_the_library_fits_at_the_extents_of_large_models(name: str) -> None:
    """A quarter of the limit at most, whatever the element types."""
    kernel = library()[name]
    names = {v.name: v.choices for p in kernel.params if isinstance(v := p.dtype, TypeVar)}
    dims = {d: SEVEN_B.get(d, EXTENTS.get(d, 64)) for d in kernel.dims}
    statics = {d: dims[d] for d, spec in kernel.dims.items() if spec.static}
    present = [p.name for p in kernel.params if p.optional]
    for chosen in list(product(*((c[0], c[-1]) for c in names.values()))):
        types = dict(zip(names, chosen, strict=True))
        ir = kernel.specialise(types, {}, present, statics, "cpu")
        try:
            held = holdings(ir, dims)
        except KernelError:  # packed weights come in the layout of the CPU
            continue
        assert sum(h.bytes for h in held) <= launch.SCRATCH_LIMIT // 4, (types, held[:3])
