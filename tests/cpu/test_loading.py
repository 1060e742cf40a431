"""Objects of LLVM, loaded by the linker of our own: every kind of section and reference, and bytes
that are no object."""

from __future__ import annotations

import ctypes
import gc
import math
import mmap
import os
import re
import struct
import weakref
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terrazzo.targets.cpu import codegen, host, jit
from terrazzo.targets.cpu.elf import Object
from terrazzo.targets.cpu.link import LARGEST, Image
from terrazzo.targets.cpu.relocate import AARCH64, X86_64

MACHINE = jit._MACHINES[os.uname().machine]

TEXT = """
@table = private constant [4 x i32] [i32 10, i32 -20, i32 30, i32 -40]
@wide = private unnamed_addr constant <16 x i32> <i32 0, i32 1, i32 4, i32 9, i32 16, i32 25,
  i32 36, i32 49, i32 64, i32 81, i32 100, i32 121, i32 144, i32 169, i32 196, i32 225>, align 64
@functions = internal global [3 x ptr] [ptr @one, ptr @two,
  ptr getelementptr (i8, ptr @table, i64 8)]
@counter = internal global i64 40
@zeros = internal global [1000 x i64] zeroinitializer, align 64
@common = common global [10 x i32] zeroinitializer, align 32
@shared = global i32 7
@near = private constant i32 trunc (i64 sub (i64 ptrtoint (ptr @table to i64),
                                              i64 ptrtoint (ptr @near to i64)) to i32)
@weak = extern_weak global i32
declare float @expf(float) nounwind
declare double @sin(double) nounwind
declare ptr @memcpy(ptr, ptr, i64) nounwind
declare i64 @strlen(ptr) nounwind
declare ptr @PyLong_FromLongLong(i64) nounwind

define i32 @pick(i64 %i) nounwind {
  %p = getelementptr i32, ptr @table, i64 %i
  %v = load i32, ptr %p
  ret i32 %v
}
define float @constants(float %x) nounwind {
  %a = fmul float %x, 0x3FF3333340000000
  %b = fadd float %a, 0x4004CCCCC0000000
  ret float %b
}
define void @squares(ptr %out) nounwind {
  %v = load <16 x i32>, ptr @wide, align 64
  store <16 x i32> %v, ptr %out, align 4
  ret void
}
define i64 @one() nounwind { ret i64 1 }
define i64 @two() nounwind { ret i64 2 }
define i64 @indirect(i64 %i) nounwind {
  %p = getelementptr ptr, ptr @functions, i64 %i
  %f = load ptr, ptr %p
  %v = call i64 %f()
  ret i64 %v
}
define i32 @pointed() nounwind {
  %p = getelementptr ptr, ptr @functions, i64 2
  %f = load ptr, ptr %p
  %v = load i32, ptr %f
  ret i32 %v
}
define i64 @count() nounwind {
  %v = load i64, ptr @counter
  %n = add i64 %v, 1
  store i64 %n, ptr @counter
  ret i64 %n
}
define i64 @fill(i64 %x) nounwind {
  %p = getelementptr i64, ptr @zeros, i64 999
  %old = load i64, ptr %p
  store i64 %x, ptr %p
  ret i64 %old
}
define i64 @places(i64 %i) nounwind {
  %c = icmp eq i64 %i, 0
  %z = ptrtoint ptr @zeros to i64
  %m = ptrtoint ptr @common to i64
  %v = select i1 %c, i64 %z, i64 %m
  ret i64 %v
}
define i32 @bump_shared() nounwind {
  %v = load i32, ptr @shared
  %n = add i32 %v, 1
  store i32 %n, ptr @shared
  %p = getelementptr i32, ptr @common, i64 9
  store i32 %n, ptr %p
  %w = load i32, ptr %p
  ret i32 %w
}
define i32 @through_offset() nounwind {
  %o = load i32, ptr @near
  %w = sext i32 %o to i64
  %p = getelementptr i8, ptr @near, i64 %w
  %v = load i32, ptr %p
  ret i32 %v
}
define i1 @has_weak() nounwind {
  %v = icmp ne ptr @weak, null
  ret i1 %v
}
define i1 @even(i64 %n) nounwind noinline {
  %z = icmp eq i64 %n, 0
  br i1 %z, label %yes, label %more
yes:
  ret i1 true
more:
  %m = sub i64 %n, 1
  %v = call i1 @odd(i64 %m)
  ret i1 %v
}
define i1 @odd(i64 %n) nounwind noinline {
  %z = icmp eq i64 %n, 0
  br i1 %z, label %no, label %more
no:
  ret i1 false
more:
  %m = sub i64 %n, 1
  %v = call i1 @even(i64 %m)
  ret i1 %v
}
define float @exp_sum(float %x, double %y) nounwind {
  %a = call float @expf(float %x)
  %b = call double @sin(double %y)
  %c = fptrunc double %b to float
  %d = fadd float %a, %c
  ret float %d
}
define i64 @length(ptr %text) nounwind {
  %to = alloca [64 x i8]
  call ptr @memcpy(ptr %to, ptr %text, i64 64)
  %n = call i64 @strlen(ptr %to)
  ret i64 %n
}
define i64 @address_of_strlen() nounwind {
  %v = ptrtoint ptr @strlen to i64
  ret i64 %v
}
define ptr @number(ptr %self, ptr %args) nounwind {
  %v = call ptr @PyLong_FromLongLong(i64 1234567890123)
  ret ptr %v
}
"""
OPERATIONS = ("mul", "xor", "sub", "shl")
SWITCH = "\n".join(
    [
        "define i64 @choose(i64 %x) nounwind {",
        "  switch i64 %x, label %none [",
        *(f"    i64 {n}, label %case{n}" for n in range(64)),
        "  ]",
        "none:\n  ret i64 -1",
        # different things to do, so that no table of values will do
        *(
            f"case{n}:\n  %v{n} = {OPERATIONS[n % 4]} i64 %x, {n % 61 + 1}\n"
            f"  store volatile i64 %v{n}, ptr getelementptr (i64, ptr @seen, i64 {n * 7 % 64})\n"
            f"  ret i64 %v{n}"
            for n in range(64)
        ),
        "}",
        "@seen = internal global [64 x i64] zeroinitializer",
    ]
)


def chosen(n: int) -> int:
    k = n % 61 + 1
    return (n * k, n ^ k, n - k, n << k)[n % 4]


@cache
def built(text: str = TEXT) -> bytes:
    return codegen.compile_object(text, host.HostIsa())


@cache
def loaded() -> jit.Module:
    return jit.load(built())


def call(name: str, *args: float, restype: type = ctypes.c_int64) -> float:
    kinds = [ctypes.c_float if isinstance(a, float) else ctypes.c_int64 for a in args]
    return loaded().function(name, restype, *kinds)(*args)


def test_constants() -> None:
    assert [call("pick", i, restype=ctypes.c_int32) for i in range(4)] == [10, -20, 30, -40]
    x = ctypes.c_float
    expected = x(x(x(2.5).value * x(1.2).value).value + x(2.6).value).value
    assert abs(call("constants", 2.5, restype=x) - expected) < 1e-6  # may be fused
    out = (ctypes.c_int32 * 16)()
    loaded().function("squares", None, ctypes.c_void_p)(out)
    assert list(out) == [n * n for n in range(16)]


def test_jump_table() -> None:
    obj = codegen.compile_object(SWITCH, host.HostIsa())
    assert any(s.name == ".rodata" for s in Object(obj, MACHINE).sections.values())
    choose = jit.load(obj).function("choose", ctypes.c_int64, ctypes.c_int64)
    for n in range(64):
        assert choose(n) == ctypes.c_int64(chosen(n)).value
    assert choose(64) == choose(-1) == -1


def test_data_with_pointers() -> None:
    assert (call("indirect", 0), call("indirect", 1)) == (1, 2)
    assert call("pointed", restype=ctypes.c_int32) == 30
    assert call("through_offset", restype=ctypes.c_int32) == 10


def test_data_is_each_module_s_own() -> None:
    one, two = (jit.load(built()).function("count", ctypes.c_int64) for _ in range(2))
    assert [one(), one(), two(), one()] == [41, 42, 41, 43]


def test_zeroed_and_common_data() -> None:
    module = jit.load(built())
    fill = module.function("fill", ctypes.c_int64, ctypes.c_int64)
    assert [fill(5), fill(6), fill(0)] == [0, 5, 6]
    places = module.function("places", ctypes.c_int64, ctypes.c_int64)
    assert places(0) % 64 == 0 and places(1) % 32 == 0 and places(0) != places(1)
    assert not any((ctypes.c_int64 * 999).from_address(places(0)))
    assert module.function("bump_shared", ctypes.c_int32)() == 8
    assert ctypes.c_int32.from_address(module.address("shared")).value == 8
    assert ctypes.c_int32.from_address(module.address("common") + 36).value == 8


def test_functions_that_call_each_other() -> None:
    assert [call("even", n, restype=ctypes.c_bool) for n in range(4)] == [True, False] * 2


def test_functions_of_libraries_and_of_python() -> None:
    double = loaded().function("exp_sum", ctypes.c_float, ctypes.c_float, ctypes.c_double)
    assert abs(double(1.5, 0.5) - (math.exp(1.5) + math.sin(0.5))) < 1e-5
    text = ctypes.create_string_buffer(b"twelve bytes", 64)
    assert loaded().function("length", ctypes.c_int64, ctypes.c_void_p)(text) == 12
    strlen = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
    assert call("address_of_strlen") == strlen
    assert not call("has_weak", restype=ctypes.c_bool)
    number = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
    assert number(loaded().address("number"))(None, None) == 1234567890123


def test_missing_symbols_are_named() -> None:
    text = "declare void @not_of_this_world()\ndefine void @f() {\n"
    text += "  call void @not_of_this_world()\n  ret void\n}"
    with pytest.raises(RuntimeError, match="`not_of_this_world` is not in this process"):
        jit.load(built(text))
    with pytest.raises(RuntimeError, match="no symbol `nothing`"):
        loaded().address("nothing")
    with pytest.raises(RuntimeError, match="no symbol `counter`"):  # internal
        loaded().address("counter")


def mapped(address: int) -> str:
    """Permissions of the memory at `address`, "" if there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.match(r"(\w+)-(\w+) (\S+)", line)
        assert found
        if int(found[1], 16) <= address < int(found[2], 16):
            return found[3]
    return ""


def test_memory_is_never_writable_and_executable_and_goes_with_the_module() -> None:
    module = jit.load(built())
    code, data = module.address("one"), module.address("shared")
    table = module.function("indirect", ctypes.c_int64, ctypes.c_int64)
    pages = range(code & -mmap.PAGESIZE, data, mmap.PAGESIZE)
    assert sorted({mapped(page) for page in pages}) == ["r--p", "r-xp", "rw-p"]
    assert (mapped(code), mapped(data)) == ("r-xp", "rw-p")
    gone = weakref.ref(module)
    del module
    assert gone() is not None and table(1) == 2  # the function holds on to it
    del table
    gc.collect()
    assert gone() is None and mapped(code) == ""


def test_an_empty_object_loads() -> None:
    with pytest.raises(RuntimeError, match="no symbol"):
        jit.load(built("")).address("f")


def test_objects_of_another_machine_are_refused() -> None:
    with pytest.raises(RuntimeError, match="it is for machine"):
        Object(built(), AARCH64 if MACHINE == X86_64 else X86_64)


def test_unknown_relocation() -> None:
    obj = Object(built(), MACHINE)
    data = bytearray(built())
    table = next(s for s in obj._sections if s.type == 4)
    struct.pack_into("<I", data, table.offset + 8, 77)
    with pytest.raises(RuntimeError, match="unknown relocation 77"):
        jit.load(bytes(data))


@pytest.mark.parametrize(("kind", "flags"), [(1, 7), (1, 0x402), (14, 3)])
def test_sections_that_are_not_supported(kind: int, flags: int) -> None:
    """Writable code, thread-local data, constructors."""
    data = bytearray(built())
    (start,) = struct.unpack_from("<Q", data, 40)
    obj = Object(built(), MACHINE)
    number = next(n for n, s in obj.sections.items() if s.name == ".text")
    struct.pack_into("<IQ", data, start + 64 * number + 4, kind, flags)
    with pytest.raises(RuntimeError, match=r"section .text of type .* is not supported"):
        jit.load(bytes(data))


def attempt(data: bytes) -> None:
    """Links for an address that is not ours; what it raises must be RuntimeError."""
    try:
        Image(Object(data, MACHINE)).link(0x7F00_0000_0000, lambda name: 0x7E00_0000_0000)
    except RuntimeError as error:
        assert "the object cannot be linked: " in str(error)


def test_cut_anywhere() -> None:
    whole = built()
    for length in [*range(200), *range(200, len(whole), 37), len(whole) - 1]:
        with pytest.raises(RuntimeError, match="cannot be linked"):
            Image(Object(whole[:length], MACHINE)).link(0x7F00_0000_0000, lambda name: 1)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_bytes_are_an_error_or_harmless(data: st.DataObject) -> None:
    """Damage in code stays unseen here (the cache's hash sees it); tables must not lead astray."""
    whole = bytearray(built())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 8))
        size = data.draw(st.sampled_from([1, 2, 4, 8]))
        whole[at : at + size] = data.draw(st.binary(min_size=size, max_size=size))
    attempt(bytes(whole))


def test_damaged_headers_and_tables() -> None:
    """Every byte of the header, the section table, the symbols and the relocations."""
    whole = built()
    obj = Object(whole, MACHINE)
    (start,) = struct.unpack_from("<Q", whole, 40)
    places = [*range(64), *range(start, len(whole), 3)]
    for section in obj._sections:
        if section.type in (2, 4):
            places += range(section.offset, section.offset + section.size, 7)
    for at in places:
        for value in (0, 0x7F, 0xFF):
            attempt(whole[:at] + bytes([value]) + whole[at + 1 :])


def test_too_large() -> None:
    text = f"@big = global [{LARGEST + 1} x i8] zeroinitializer"
    with pytest.raises(RuntimeError, match="too large"):
        jit.load(built(text))
