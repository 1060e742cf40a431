"""The table of instruction sets: what is chosen, what is refused and with which words."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Iterator

import numpy as np
import pytest

from terrazzo.errors import OptionError
from terrazzo.ir import formats
from terrazzo.targets.cpu import codegen, jit, micro
from terrazzo.targets.cpu import isa as isas
from terrazzo.targets.cpu.halves import HALVES_IR


@pytest.fixture
def detected_afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without the switch, and what a test detects is not remembered."""
    monkeypatch.delenv(isas.SWITCH, raising=False)
    isas.detect.cache_clear()
    yield
    monkeypatch.undo()
    isas.detect.cache_clear()


def test_detects_the_best_this_machine_runs(detected_afresh: None) -> None:
    best = isas.detect()
    assert not isas.lacking(best.name)
    ours = isas.names(platform.machine() == "aarch64")
    for better in ours[: ours.index(best.name)]:
        assert isas.lacking(better)
    assert best.name in best.why() and best.cpu in best.why()


def test_plain_can_be_forced_everywhere() -> None:
    assert isas.detect("plain").name == "plain"


def test_unknown_name_is_refused() -> None:
    with pytest.raises(OptionError, match="unknown instruction set 'sse9'.*avx2"):
        isas.detect("sse9")


def test_what_the_cpu_lacks_is_named(
    detected_afresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isas, "host_features", lambda: frozenset({"avx2", "fma", "f16c"}))
    with pytest.raises(OptionError, match="lacks .*avx512vnni.* for avx512vnni"):
        isas.detect("avx512vnni")
    assert isas.detect().name == "avx2"


@pytest.mark.parametrize("name", isas.NAMES)
def test_tiles_end_with_single_rows(name: str) -> None:
    isa = isas.cross(name)
    for tiles in (isa.f32_tiles, isa.int_tiles):
        assert tiles[-1][0] == 1 and list(tiles) == sorted(tiles, key=lambda t: -t[0])


@pytest.mark.parametrize("name", isas.runnable())
def test_the_switch_names_a_set(
    name: str, detected_afresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(isas.SWITCH, name)
    isa = isas.detect()
    assert isa.name == name and "TERRAZZO_ISA asks for it" in isa.why()
    assert not set(isas._NEEDS[name]) & set(isa.masked)
    assert not {f"+{x}" for x in isa.masked} & set(isa.features.split(","))


def test_plain_code_is_not_chosen_silently(
    detected_afresh: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isas, "host_features", lambda: frozenset({"sse4.2"}))
    assert isas.detect().name == "plain"
    assert "many times slower" in caplog.text and "needs" in caplog.text


def test_a_wrong_switch_is_named(detected_afresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(isas.SWITCH, "avx3")
    with pytest.raises(OptionError, match=r"set 'avx3' \(TERRAZZO_ISA\); choose from amx"):
        isas.detect()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86 registers")
@pytest.mark.parametrize(
    ("name", "later"),
    [("avx512", r"vpdpbusd|tmm"), ("avx2", r"zmm|vpdpbusd|\{%k|mm(1[6-9]|[23]\d)\b"),
     ("plain", r"[yz]mm|\tv[a-z]|pshufb|pmulld")],
)  # fmt: skip
def test_a_named_set_uses_nothing_that_came_later(name: str, later: str) -> None:
    if name not in isas.runnable():
        pytest.skip(f"this CPU does not run {name}")
    isa = isas.detect(name)
    parts = [micro.dot_q(isa, formats.FORMATS["q8_0"]), micro.quantize_a8(isa)]
    text = micro.module_text(parts).replace("define internal", "define")
    assert not re.findall(later, codegen.assembly(text, isa))


def test_halves_without_an_instruction() -> None:
    """Every f16 pattern, and f32 around each f16 and halfway between two, as NumPy converts."""
    text = (
        HALVES_IR
        + """
define void @widen(ptr %x, ptr %y) { %v = load i16, ptr %x
  %h = bitcast i16 %v to half
  %r = call float @__extendhfsf2(half %h)
  store float %r, ptr %y
  ret void }
define void @shorten(ptr %x, ptr %y) { %v = load float, ptr %x
  %h = call half @__truncsfhf2(float %v)
  %r = bitcast half %h to i16
  store i16 %r, ptr %y
  ret void }
"""
    )
    code = jit.load(codegen.compile_object(text, isas.detect()))
    half = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = np.empty(65536, np.float32)
    function = code.function("widen", None, ctypes.c_void_p, ctypes.c_void_p)
    for i in range(65536):
        function(half.ctypes.data + 2 * i, wide.ctypes.data + 4 * i)
    with np.errstate(invalid="ignore"):
        want = half.astype(np.float32)
    assert np.array_equal(wide, want, equal_nan=True)
    exact = want[np.isfinite(want)]
    with np.errstate(over="ignore"):
        above = np.nextafter(exact.astype(np.float16), np.float16(np.inf)).astype(np.float32)
    middle = (exact + above) / np.float32(2)
    x = np.concatenate(
        [exact, middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(9e9)),
         np.array([np.inf, -np.inf, np.nan, 65519, 65520, 65536, 1e-30, 3e38], np.float32)]
    )  # fmt: skip
    got = np.empty(len(x), np.uint16)
    function = code.function("shorten", None, ctypes.c_void_p, ctypes.c_void_p)
    for i in range(len(x)):
        function(x.ctypes.data + 4 * i, got.ctypes.data + 2 * i)
    with np.errstate(over="ignore"):
        want_bits = x.astype(np.float16)
    assert np.array_equal(got.view(np.float16), want_bits, equal_nan=True)
    assert np.array_equal(np.signbit(got.view(np.float16)), np.signbit(want_bits))
