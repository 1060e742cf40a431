"""Large outputs, which are stored around the caches: the same bits as small ones, whatever their
alignment, and nothing beside them touched."""

from __future__ import annotations

import numpy as np
import pytest

from terrazzo.kernels import activation, norm, sampling
from terrazzo.runtime import launch
from terrazzo.targets.cpu.around import LARGE

ROWS, DIM, PITCH = 4099, 1093, 1096


@pytest.mark.parametrize("offset", [0, 1, 4])  # f32 from a cache line's start
@pytest.mark.parametrize("name", ["rms_norm", "softmax", "silu_mul"])
def test_large_outputs(name: str, offset: int) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, DIM), dtype=np.float32)
    memory = np.full(ROWS * PITCH + 64, 77, np.float32)
    whole = memory[offset : offset + ROWS * PITCH].reshape(ROWS, PITCH)
    assert x.nbytes >= LARGE

    def run(rows: np.ndarray, out: np.ndarray) -> None:
        kernel, args = {
            "rms_norm": (norm.rms_norm, (rows, np.ones(DIM, np.float32), out, 1e-5)),
            "softmax": (sampling.softmax, (rows, out, 1.0)),
            "silu_mul": (activation.silu_mul, (rows, rows, out)),
        }[name]
        launch.run(launch.prepare(kernel, args, {}), 2)

    run(x, whole[:, :DIM])
    for part in (slice(0, 16), slice(ROWS - 3, ROWS)):
        few = np.full((part.stop - part.start, DIM), 77, np.float32)
        run(x[part], few)
        assert np.array_equal(whole[part, :DIM], few)
    assert (whole[:, DIM:] == 77).all()
    assert (memory[:offset] == 77).all() and (memory[offset + ROWS * PITCH :] == 77).all()


@pytest.mark.parametrize(("dtype", "lines"), [(np.float32, 4), (np.float16, 2)])
def test_the_next_row_is_read_ahead(dtype: type, lines: int) -> None:
    """A line once, of what is read row by row: the weights are the same for all rows."""
    x = np.ones((4, 64), dtype)
    text = norm.rms_norm.explain(x, np.ones(64, np.float32), np.ones_like(x), 1e-5).llvm
    assert text.count("call void @llvm.prefetch") == lines
