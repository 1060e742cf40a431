"""A checksum at the speed of memory, in generated code on all threads: for large files we map.

It finds accidental damage (any change within one word of a chunk, anything else but for chances of
about 2^-32); it is no protection against an attacker, which file ownership is for. Each chunk has
8 check words. The step is that of XXH32 (Collet) without its first product: in each of 4 x 8 lanes
h = rotate_left(h + word, 13) * P, which is one to one in the word and in h; the 4 are joined alike.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from terrazzo.targets.cpu import host, jit, objcache, pool

CHUNK = 256 << 10
STEP = 128  # bytes all lanes take together; data are a multiple of it
PRIME = 0x9E3779B1
SEEDS = (0x24234428, 0x85EBCA77, 0x00000001, 0x61C8864F)

_ROUND = """
  %{out}.s = add <8 x i32> {h}, {x}
  %{out}.r = call <8 x i32> @llvm.fshl.v8i32(<8 x i32> %{out}.s, <8 x i32> %{out}.s,
                                             <8 x i32> splat (i32 13))
  %{out} = mul <8 x i32> %{out}.r, splat (i32 {prime})"""


def _ir() -> str:
    """@checksum: slots 8 data, 9 bytes (multiple of 128), 10 out i32[chunks, 8], 11 chunk bytes."""
    phis = "".join(
        f"\n  %h{i} = phi <8 x i32> [ splat (i32 {seed}), %chunk ], [ %n{i}, %step ]"
        for i, seed in enumerate(SEEDS)
    )
    rounds = "".join(
        f"\n  %p{i} = getelementptr i8, ptr %at, i64 {32 * i}"
        f"\n  %x{i} = load <8 x i32>, ptr %p{i}, align 4"
        + _ROUND.format(out=f"n{i}", h=f"%h{i}", x=f"%x{i}", prime=PRIME)
        for i in range(4)
    )
    joins = "".join(
        _ROUND.format(out=f"j{i}", h="%n0" if i == 1 else f"%j{i - 1}", x=f"%n{i}", prime=PRIME)
        for i in range(1, 4)
    )
    return f"""
declare <8 x i32> @llvm.fshl.v8i32(<8 x i32>, <8 x i32>, <8 x i32>)

define void @checksum(ptr %t, i32 %tid, i32 %n) nounwind {{
entry:
  %counter = getelementptr i64, ptr %t, i64 3
  %s8 = getelementptr i64, ptr %t, i64 8
  %data = load ptr, ptr %s8
  %s9 = getelementptr i64, ptr %t, i64 9
  %total = load i64, ptr %s9
  %s10 = getelementptr i64, ptr %t, i64 10
  %out = load ptr, ptr %s10
  %s11 = getelementptr i64, ptr %t, i64 11
  %size = load i64, ptr %s11
  br label %take
take:
  %unit = atomicrmw add ptr %counter, i64 1 monotonic
  %start = mul i64 %unit, %size
  %more = icmp ult i64 %start, %total
  br i1 %more, label %chunk, label %done
chunk:
  %full = add i64 %start, %size
  %end = call i64 @llvm.umin.i64(i64 %full, i64 %total)
  br label %step
step:
  %i = phi i64 [ %start, %chunk ], [ %next, %step ]{phis}
  %at = getelementptr i8, ptr %data, i64 %i{rounds}
  %next = add i64 %i, {STEP}
  %again = icmp ult i64 %next, %end
  br i1 %again, label %step, label %join
join:{joins}
  %row = shl i64 %unit, 5
  %to = getelementptr i8, ptr %out, i64 %row
  store <8 x i32> %j3, ptr %to, align 4
  br label %take
done:
  ret void
}}

declare i64 @llvm.umin.i64(i64, i64)
"""


@cache
def _code() -> jit.Module:
    return objcache.module(_ir(), host.HostIsa())


def checksum(data: np.ndarray, threads: int = 1) -> np.ndarray:
    """Check words uint32[ceil(bytes / CHUNK), 8] of contiguous uint8 `data`.

    Raises ValueError unless its size is a multiple of 128 bytes.
    """
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous or len(data) % STEP:
        raise ValueError(f"data of {data.dtype}{list(data.shape)}: uint8, a multiple of {STEP}")
    out = np.zeros((-(-len(data) // CHUNK), 8), np.uint32)
    table = np.zeros(16, np.int64)
    table[8:12] = data.ctypes.data, len(data), out.ctypes.data, CHUNK
    code = _code()
    steps = pool.Program([(code.address("checksum"), table.ctypes.data)], keep=(code, table))
    pool.shared().run(steps, threads)
    return out
