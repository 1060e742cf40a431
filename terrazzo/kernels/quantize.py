"""Activations to a8: int8 values with a scale for every 16."""

import terrazzo.lang as tz

rows, dim = tz.dims("rows dim")
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16)


@tz.kernel
def quantize(x: tz.gm[T, rows, dim], out: tz.gm[tz.a8, rows, dim], ROWS: tz.const = 8):
    """out = x, 16 at a time along dim: round(x · 127 / max|x|) and the scale max|x| / 127."""
    for r in tz.grid(rows, step=ROWS):
        out[r] = tz.quantize(tz.load(x[r], space=tz.UB).to(tz.f32), tz.a8)
