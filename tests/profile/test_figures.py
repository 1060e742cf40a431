"""Figures against what is worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from programs import CHIP, GEMM_LISTING, gemm, vector_add

from terrazzo.ir.ops import Loc
from terrazzo.ir.types import f32
from terrazzo.profile.figures import figures, vector_tflops
from terrazzo.profile.listing import Listing, annotated
from terrazzo.profile.report import Report
from terrazzo.targets.davinci.timing.constants import DEFAULT
from terrazzo.targets.davinci.timing.timeline import LineUse, PipeUse, Timeline

Make = Callable[..., Report]
US = 1800.0  # cycles a microsecond


def timeline(
    us: float, flops: float = 0.0, hbm: float = 0.0, elements: float = 0.0, launch: float = 0.0,
    pipes: tuple[PipeUse, ...] = (), traffic: dict[str, float] | None = None,
    lines: tuple[LineUse, ...] = (), conflicts: float = 0.0,
) -> Timeline:  # fmt: skip
    """A launch whose cores take `us` microseconds."""
    return Timeline(
        CHIP, "gemm", us * US, launch, {"cube": 24, "vector": 48}, pipes, lines, (), (),
        traffic or {}, hbm, flops, elements, 16 if flops else 0, 1.0, conflicts,
    )  # fmt: skip


def pipe(kind: str, name: str, ratio: float, us: float = 100.0) -> PipeUse:
    return PipeUse(kind, name, ratio * us * US, 10, 1000.0, {})  # type: ignore[arg-type]


def test_cube_bound() -> None:
    """4096 multiply-adds a cycle and core: 24 cores at 1800 MHz make 353.9 TFLOP/s."""
    peak = 2 * 4096 * 24 * 1.8e9
    t = timeline(100, flops=0.9 * peak * 100e-6, hbm=1e6, pipes=(pipe("cube", "M", 0.9),))
    f = figures(t, gemm())
    assert f.bound == "cube" and f.roof_percent == pytest.approx(90)
    assert t.tflops == pytest.approx(0.9 * peak / 1e12)
    assert f.intensity == pytest.approx(0.9 * peak * 100e-6 / 1e6)


def test_memory_bound_and_roofs() -> None:
    """1.76 TB/s of HBM for 100 µs are 176 MB; GM traffic counts for L2, on-chip moves do not."""
    paths = {"GM->UB": 150e6, "UB->GM": 50e6, "UB->UB": 1e9}
    f = figures(timeline(100, hbm=0.85 * 176e6, elements=1e6, traffic=paths), vector_add())
    assert f.bound == "memory" and f.roof_percent == pytest.approx(85)
    roofs = {r.name: r for r in f.roofs}
    assert roofs["l2"].used == pytest.approx(2.0) and roofs["l2"].peak == pytest.approx(
        DEFAULT.l2_rate * 24 * 1.8e-3
    )
    assert f.l2_intensity == pytest.approx(1e6 / 200e6)
    moved = {x.path: x for x in f.traffic}
    assert moved["HBM"].gb_s == pytest.approx(0.85 * 1760)
    assert moved["GM->UB"].share == pytest.approx(1500 / (128 * 48 * 1.8))


def test_pipe_bound_and_latency() -> None:
    busy = (pipe("cube", "MTE2", 0.85), pipe("cube", "M", 0.4))
    f = figures(timeline(100, flops=1e9, hbm=1e6, pipes=busy), gemm())
    assert f.bound == "mte2" and "85 %" in f.why
    assert f.pipes == {"aic_mac_ratio": pytest.approx(0.4), "aic_mte2_ratio": pytest.approx(0.85)}
    assert f.times["aic_mte2_time(us)"] == pytest.approx(85)
    slow = (pipe("cube", "MTE2", 0.5),)
    f = figures(timeline(100, flops=1e9, hbm=1e6, pipes=slow), gemm())
    assert f.bound == "latency" and "MTE2" in f.why


def test_launch_bound() -> None:
    f = figures(timeline(2, flops=1e6, launch=5.0, pipes=(pipe("cube", "M", 0.9, 2),)), gemm())
    assert f.bound == "latency" and "71 %" in f.why


def test_vector_peak_is_that_of_the_widest_type() -> None:
    """256 B a cycle on 48 cores: 128 elements of f16, 64 of f32."""
    t = timeline(1)
    assert vector_tflops(t, vector_add()) == pytest.approx(128 * 48 * 1.8e-3)
    assert vector_tflops(t, vector_add(dtype=f32)) == pytest.approx(64 * 48 * 1.8e-3)


def test_lines(gemm_report: Make) -> None:
    r = gemm_report()
    lines = {x.number: x for x in r.lines}
    assert [x.text for x in r.lines] == list(GEMM_LISTING.lines)
    assert lines[16].pipe == "aic_mte2" and lines[16].cycles > lines[17].cycles > 0
    assert lines[13].cycles == 0 and lines[13].pipe == ""
    use = r.timeline.pipe("cube", "MTE2")
    assert use and lines[16].cycles == pytest.approx(use.busy)


def test_line_of_an_inlined_function() -> None:
    """It counts for the line that calls it; code from elsewhere counts nowhere."""
    listing = Listing("k.py", 5, ("def k():", "    f(x)"))
    inner = Loc("other.py", 6, 0, 4, "y * 2", Loc("k.py", 6, 4, 8))
    uses = (
        LineUse(inner, "vector", {"V": 90.0}),
        LineUse(Loc("other.py", 6, 0, 1), "vector", {"V": 7.0}),
    )
    lines = annotated(listing, timeline(1, lines=uses))
    assert [x.cycles for x in lines] == [0.0, 90.0]
    assert lines[1].share == pytest.approx(0.05)


def test_json_keys(gemm_report: Make) -> None:
    keys = gemm_report().json().keys()
    assert {"time_us", "cycles", "tflops", "roof_percent", "bound", "pipes", "traffic", "occupancy",
            "advice", "lines", "plan"} <= keys  # fmt: skip
