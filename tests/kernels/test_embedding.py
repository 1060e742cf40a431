import numpy as np
import pytest
from kernel_launch import NUMPY, Target, empty

from terrazzo.ir import formats
from terrazzo.ir.packed import Packed
from terrazzo.kernels import embedding


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q6_k"])
@pytest.mark.parametrize("dst", ["f32", "f16"])
def test_rows_are_the_decoded_rows(target: Target, kind: str, dst: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 256)).astype(np.float32)
    if kind in NUMPY:
        table = x.astype(NUMPY[kind])
        values = table.astype(np.float32)
    else:
        table = Packed(formats.FORMATS[kind], x.shape, formats.encode(kind, x))
        values = formats.decode(kind, table.data, x.shape)
    ids = np.array([0, 49, 7, 7, 31], np.int32)
    out = empty((5, 256), dst)
    target(embedding.embedding, table=table, ids=ids, out=out)
    assert np.array_equal(out, values[ids].astype(NUMPY[dst]))
