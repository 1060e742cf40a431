"""The table of instruction sets: what is chosen, what is refused and with which words."""

from __future__ import annotations

import pytest

from terrazzo.errors import OptionError
from terrazzo.targets.cpu import isa as isas


def test_detects_the_best_this_machine_runs() -> None:
    best = isas.detect()
    assert not [x for x in isas._NEEDS[best.name] if x not in isas.host_features()]
    for better in isas.NAMES[: isas.NAMES.index(best.name)]:
        assert [x for x in isas._NEEDS[better] if x not in isas.host_features()]
    assert best.name in best.why() and best.cpu in best.why()


def test_plain_can_be_forced_everywhere() -> None:
    assert isas.detect("plain").name == "plain"


def test_unknown_name_is_refused() -> None:
    with pytest.raises(OptionError, match="unknown instruction set 'sse9'.*avx2"):
        isas.detect("sse9")


def test_what_the_cpu_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isas, "host_features", lambda: frozenset({"avx2", "fma", "f16c"}))
    isas.detect.cache_clear()
    with pytest.raises(OptionError, match="lacks .*avx512vnni.* for avx512vnni"):
        isas.detect("avx512vnni")
    assert isas.detect().name == "avx2"
    isas.detect.cache_clear()


@pytest.mark.parametrize("name", isas.NAMES)
def test_tiles_end_with_single_rows(name: str) -> None:
    isa = isas.cross(name)
    for tiles in (isa.f32_tiles, isa.int_tiles):
        assert tiles[-1][0] == 1 and list(tiles) == sorted(tiles, key=lambda t: -t[0])
