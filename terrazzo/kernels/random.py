"""Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011).

A number depends on its key and counter alone, so any part of a stream can be made anywhere, in any
order.
"""

from __future__ import annotations

from typing import Any

import terrazzo.lang as tz

n, four, two = tz.dims("n four two")

M0, M1 = 0xD2511F53, 0xCD9E8D57  # multipliers of the two halves of the counter
W0, W1 = 0x9E3779B9, 0xBB67AE85  # what the key grows by each round: golden ratio, sqrt(3) - 1


def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> tuple[Any, Any, Any, Any]:
    """128 random bits as four u32 tiles, from a 128-bit counter and a 64-bit key, all in u32."""
    for r in range(10):
        if r:
            k0, k1 = k0 + W0, k1 + W1
        high0, low0 = tz.umulhi(c0, M0), c0 * M0
        high1, low1 = tz.umulhi(c2, M1), c2 * M1
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    return c0, c1, c2, c3


def unit(bits: Any) -> Any:
    """u32 to f32 in (0, 1]: (bits + 1/2) / 2^32, small values to 2^-33 and with full precision."""
    return (bits.to(tz.f32) + 0.5) * 2.0**-32


def exponential(bits: Any) -> Any:
    """u32 to exponentially distributed f32: -ln(1 - unit), by series where 1 - unit loses bits."""
    v = unit(bits)
    series = v * (1.0 + v * (0.5 + v * (1.0 / 3.0)))
    return tz.where(v < 0.015625, series, -tz.log(1.0 - v))


@tz.kernel
def philox_bits(
    counter: tz.gm[tz.u32, n, four],
    key: tz.gm[tz.u32, n, two],
    out: tz.gm[tz.u32, n, four],
    TILE: tz.const = 1024,
):
    """out[i] = the words of Philox4x32-10 for counter[i] and key[i]. `four` is 4, `two` is 2."""
    for i in tz.grid(n, step=TILE):
        c0, c1, c2, c3 = counter[i, 0], counter[i, 1], counter[i, 2], counter[i, 3]
        words = philox(c0, c1, c2, c3, key[i, 0], key[i, 1])
        for w in range(4):
            out[i, w] = words[w]


@tz.kernel
def uniform(out: tz.gm[tz.f32, n], seed: tz.u32, stream: tz.u32, TILE: tz.const = 4096):
    """out[i] uniform in (0, 1]: word 0 of Philox with key (seed, 0), counter (i, stream, 0, 0)."""
    for i in tz.grid(n, step=TILE):
        zero = tz.full(0, dtype=tz.u32)
        out[i] = unit(philox(tz.index(i).to(tz.u32), stream, zero, zero, seed, zero)[0])
