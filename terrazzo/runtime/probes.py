"""LLVM IR of the loops that measure a machine: reading and writing memory, multiply-adds, int dots.

Phases with slots 8 data, 9 bytes per thread (multiple of 256), 10 repetitions, 11 sink (64 bytes a
thread, so that nothing is computed for nothing), 12 bytes from one array to the next (streams).
"""

from __future__ import annotations

from terrazzo.targets.cpu.isa import Isa

CHAINS = 12  # independent sums: covers 6 cycles of latency at 2 a cycle, fits 16 registers
READ_STEP = 256  # bytes a turn of the reading loop takes
READ_AHEAD = 2048  # bytes
INT_OPS = 2  # a product and its addition

_HEAD = """
define void @{name}(ptr %t, i32 %tid, i32 %n) nounwind {{
entry:
  %s8 = getelementptr i64, ptr %t, i64 8
  %data = load ptr, ptr %s8
  %s9 = getelementptr i64, ptr %t, i64 9
  %bytes = load i64, ptr %s9
  %s10 = getelementptr i64, ptr %t, i64 10
  %times = load i64, ptr %s10
  %s11 = getelementptr i64, ptr %t, i64 11
  %sinks = load ptr, ptr %s11
  %tid64 = zext i32 %tid to i64
  %first = mul i64 %tid64, %bytes
  %mine = getelementptr i8, ptr %data, i64 %first
  %place = shl i64 %tid64, 6
  %sink = getelementptr i8, ptr %sinks, i64 %place
  br label %turn
"""
_TAIL = """
out:
  ret void
}
"""


def read_ir() -> str:
    """@read: adds up every 32-bit word of this thread's bytes, `repetitions` times.

    Two streams, each half of the bytes, read ahead into the first cache. Of 1 to 8 streams and 0 to
    16 KiB ahead, into L1 or L2, this is within 2 % of the best at any working set from L2 to memory
    (a Xeon of 2023; one stream without reading ahead: 3 % less from L3, 15 % less from memory).
    """
    count = READ_STEP // 64
    vector = "<16 x i32>"
    phis = "".join(
        f"  %a{i} = phi {vector} [ zeroinitializer, %turn ], [ %b{i}, %step ]\n"
        for i in range(count)
    )
    adds = "".join(
        f"  %p{i} = getelementptr i8, ptr %from{i % 2}, i64 {64 * (i // 2)}\n"
        f"  %q{i} = getelementptr i8, ptr %p{i}, i64 {READ_AHEAD}\n"
        f"  call void @llvm.prefetch.p0(ptr %q{i}, i32 0, i32 3, i32 1)\n"
        f"  %x{i} = load {vector}, ptr %p{i}, align 64\n"
        f"  %b{i} = add {vector} %a{i}, %x{i}\n"
        for i in range(count)
    )
    joins = "".join(
        f"  %j{i} = add {vector} {'%b0' if i == 1 else f'%j{i - 1}'}, %b{i}\n"
        for i in range(1, count)
    )
    head = _HEAD.format(name="read")
    return f"""declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
{head}turn:
  %round = phi i64 [ 0, %entry ], [ %next, %end ]
  %half = lshr i64 %bytes, 1
  %other = getelementptr i8, ptr %mine, i64 %half
  br label %step
step:
  %i = phi i64 [ 0, %turn ], [ %j, %step ]
{phis}  %from0 = getelementptr i8, ptr %mine, i64 %i
  %from1 = getelementptr i8, ptr %other, i64 %i
{adds}  %j = add i64 %i, {READ_STEP // 2}
  %more = icmp ult i64 %j, %half
  br i1 %more, label %step, label %end
end:
{joins}  store volatile {vector} %j{count - 1}, ptr %sink
  %next = add i64 %round, 1
  %again = icmp ult i64 %next, %times
  br i1 %again, label %turn, label %out
{_TAIL}"""


def stream_ir(inputs: int, around: bool) -> str:
    """@stream: writes the sums of `inputs` arrays of this thread's bytes, which lie slot 12 bytes
    apart after the written one, `repetitions` times. `around`: stores that bypass the caches."""
    count = READ_STEP // 64
    vector = "<16 x i32>"
    hint = ", !nontemporal !0" if around else ""
    lines = [f"  %at{n} = getelementptr i8, ptr %from{n}, i64 %i" for n in range(inputs + 1)]
    for c in range(count):
        for n in range(inputs + 1):
            lines.append(f"  %p{n}_{c} = getelementptr i8, ptr %at{n}, i64 {64 * c}")
            if n:
                lines.append(f"  %x{n}_{c} = load {vector}, ptr %p{n}_{c}, align 64")
        total = f"%x1_{c}"
        for n in range(2, inputs + 1):
            lines.append(f"  %s{n}_{c} = add {vector} {total}, %x{n}_{c}")
            total = f"%s{n}_{c}"
        lines.append(f"  store {vector} {total}, ptr %p0_{c}, align 64{hint}")
    bases = "".join(
        f"  %off{n} = mul i64 %apart, {n}\n  %from{n} = getelementptr i8, ptr %mine, i64 %off{n}\n"
        for n in range(inputs + 1)
    )
    body = "\n".join(lines)
    head = _HEAD.format(name="stream")
    return f"""{"!0 = !{i32 1}" if around else ""}{head}turn:
  %round = phi i64 [ 0, %entry ], [ %next, %end ]
  %s12 = getelementptr i64, ptr %t, i64 12
  %apart = load i64, ptr %s12
{bases}  br label %step
step:
  %i = phi i64 [ 0, %turn ], [ %j, %step ]
{body}
  %j = add i64 %i, {READ_STEP}
  %more = icmp ult i64 %j, %bytes
  br i1 %more, label %step, label %end
end:
  %next = add i64 %round, 1
  %again = icmp ult i64 %next, %times
  br i1 %again, label %turn, label %out
{_TAIL}"""


def _chains_ir(name: str, vector: str, body: str, declare: str) -> str:
    """`body` with {i}: %y{i} from %x{i}, %u and %v (loaded from the sink)."""
    phis = "".join(
        f"  %x{i} = phi {vector} [ %u, %turn ], [ %y{i}, %step ]\n" for i in range(CHAINS)
    )
    steps = "".join(body.format(i=i) for i in range(CHAINS))
    stores = "".join(f"  store volatile {vector} %y{i}, ptr %sink\n" for i in range(CHAINS))
    head = _HEAD.format(name=name)
    return f"""{declare}{head}turn:
  %u = load volatile {vector}, ptr %sink
  %v = load volatile {vector}, ptr %sink
  br label %step
step:
  %i = phi i64 [ 0, %turn ], [ %j, %step ]
{phis}{steps}  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %times
  br i1 %more, label %step, label %end
end:
{stores}  br label %out
{_TAIL}"""


def fma_ir(isa: Isa) -> tuple[str, int]:
    """@fma: CHAINS sums of f32 vectors; the text and the floating-point operations a repetition."""
    vector = f"<{isa.lanes} x float>"
    name = f"@llvm.fma.v{isa.lanes}f32"
    body = f"  %y{{i}} = call {vector} {name}({vector} %u, {vector} %v, {vector} %x{{i}})\n"
    declare = f"declare {vector} {name}({vector}, {vector}, {vector})\n"
    return _chains_ir("fma", vector, body, declare), CHAINS * isa.lanes * 2


def int_dot_ir(isa: Isa) -> tuple[str, int] | None:
    """@int_dot: the integer dot the micro-kernels use, u8 x i8; None where it is plain code."""
    lanes = isa.int_lanes
    if isa.int_dot in ("sdot", "smmla"):
        name = f"@llvm.aarch64.neon.{isa.int_dot}.v4i32.v16i8"
        body = (
            "  %c{i} = bitcast <4 x i32> %u to <16 x i8>\n"
            f"  %y{{i}} = call <4 x i32> {name}(<4 x i32> %x{{i}}, <16 x i8> %c{{i}},"
            " <16 x i8> %c{i})\n"
        )
        declare = f"declare <4 x i32> {name}(<4 x i32>, <16 x i8>, <16 x i8>)\n"
        macs = 32 if isa.int_dot == "smmla" else 16
        return _chains_ir("int_dot", "<4 x i32>", body, declare), CHAINS * macs * INT_OPS
    if isa.int_dot == "vnni":
        words, octets = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
        name = f"@llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        args = f"{words} %x{{i}}, {octets} %c{{i}}, {octets} %c{{i}}"
        body = (
            f"  %c{{i}} = bitcast {words} %u to {octets}\n  %y{{i}} = call {words} {name}({args})\n"
        )
        declare = f"declare {words} {name}({words}, {octets}, {octets})\n"
        return _chains_ir("int_dot", words, body, declare), CHAINS * lanes * 4 * INT_OPS
    if isa.int_dot == "maddubs":
        # The product takes the running sum as an operand: it must not be the same every time.
        name = "@llvm.x86.avx2.pmadd.ub.sw"
        body = (
            "  %c{i} = bitcast <16 x i16> %x{i} to <32 x i8>\n"
            "  %d{i} = bitcast <16 x i16> %u to <32 x i8>\n"
            f"  %m{{i}} = call <16 x i16> {name}(<32 x i8> %d{{i}}, <32 x i8> %c{{i}})\n"
            "  %y{i} = add <16 x i16> %x{i}, %m{i}\n"
        )
        declare = f"declare <16 x i16> {name}(<32 x i8>, <32 x i8>)\n"
        return _chains_ir("int_dot", "<16 x i16>", body, declare), CHAINS * 32 * INT_OPS
    return None
