"""The figures of a launch: time, share of the roof, what bounds it, pipes, traffic.

A roof is what the launch would take if one resource were all that counted. The rule for the bound
is the vendor's: above 80 % of a roof it is that resource; below, a pipe that is busy for more than
80 % of the time; and otherwise latency, named with the busiest pipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from terrazzo.profile import names
from terrazzo.targets.davinci.isa import MACS, TABLE
from terrazzo.targets.davinci.program import Instr, Program, views, walk
from terrazzo.targets.davinci.timing.constants import DEFAULT
from terrazzo.targets.davinci.timing.timeline import Timeline

BOUND = 0.8
REPEAT = 256  # bytes of one operand that a vector core works on in a cycle
# Bytes a cycle and core that a path is built for (the vendor's guide; L1 -> L0 as measured there).
PATH_PEAK = {
    "GM->UB": 128, "GM->L1": 256, "UB->GM": 128, "L1->L0A": 256, "L1->L0B": 128, "L0C->GM": 128,
    "UB->UB": 256,
}  # fmt: skip


@dataclass(frozen=True)
class Roof:
    """`used` of `peak` in TFLOP/s ("cube", "vector") or TB/s ("memory": HBM, "l2")."""

    name: str
    used: float
    peak: float

    @property
    def share(self) -> float:
        return self.used / self.peak if self.peak else 0.0

    @property
    def unit(self) -> str:
        return "TB/s" if self.name in ("memory", "l2") else "TFLOP/s"


@dataclass(frozen=True)
class Traffic:
    """`path` such as "GM->UB", over all cores, or "HBM". The peak is that of the cores in use."""

    path: str
    bytes: float
    gb_s: float
    peak_gb_s: float

    @property
    def share(self) -> float:
        return self.gb_s / self.peak_gb_s if self.peak_gb_s else 0.0


@dataclass(frozen=True)
class Figures:
    """`bound`: cube, vector, memory, l2, a pipe (mte1, mte2, mte3, fixpipe, scalar) or latency;
    `why`: the sentence that goes with it. `roof`: the one that is nearest. `intensity`: operations
    a byte of device memory; `l2_intensity`: a byte that the cores read or write. `pipes`: busy
    share of the cores' time by the vendor's names ("aic_mac_ratio"), `times` likewise in µs.
    `conflict_ratio`: of the vector cores' time that bank conflicts cost."""

    timeline: Timeline
    bound: str
    why: str
    roof: Roof
    roofs: tuple[Roof, ...]
    intensity: float
    l2_intensity: float
    pipes: dict[str, float]
    times: dict[str, float]
    traffic: tuple[Traffic, ...]
    conflict_ratio: float

    @property
    def roof_percent(self) -> float:
        return 100 * self.roof.share

    def json(self) -> dict[str, Any]:
        t = self.timeline
        return {
            "time_us": t.us,
            "launch_us": t.launch_us,
            "cycles": t.cycles,
            "tflops": t.tflops,
            "roof_percent": self.roof_percent,
            "bound": self.bound,
            "why": self.why,
            "roofs": {
                r.name: {"used": r.used, "peak": r.peak, "unit": r.unit, "percent": 100 * r.share}
                for r in self.roofs
            },
            "intensity": self.intensity,
            "cores": dict(t.cores),
            "pipes": self.pipes | self.times,
            "traffic": {
                x.path: {"bytes": x.bytes, "gb_s": x.gb_s, "peak_percent": 100 * x.share}
                for x in self.traffic
            },
            "conflict_ratio": self.conflict_ratio,
        }


def figures(timeline: Timeline, program: Program) -> Figures:
    """The figures of `timeline`, which is `program`'s."""
    seconds = timeline.us / 1e6
    moved = sum(b for path, b in timeline.traffic.items() if "GM" in path.split("->"))
    chip = timeline.chip
    roofs = []
    if timeline.flops:
        peak = chip.cube_tflops(MACS[timeline.cube_bits])
        roofs.append(Roof("cube", timeline.flops / seconds / 1e12, peak))
    if timeline.vector_flops:
        peak = vector_tflops(timeline, program)
        roofs.append(Roof("vector", timeline.vector_flops / seconds / 1e12, peak))
    roofs.append(Roof("memory", timeline.hbm_bytes / seconds / 1e12, chip.hbm_tb_s))
    roofs.append(Roof("l2", moved / seconds / 1e12, l2_tb_s(timeline)))
    nearest = max(roofs, key=lambda r: r.share)
    bound, why = _bound(timeline, nearest)
    flops = timeline.flops or timeline.vector_flops
    used = {(use.kind, use.pipe) for use in timeline.pipes}
    ratios = {
        names.prefix(kind, pipe): timeline.ratio(kind, pipe)
        for kind, pipes in names.PIPES.items()
        for pipe in pipes
        if (kind, pipe) in used
    }
    core_us = timeline.cycles / chip.mhz
    return Figures(
        timeline,
        bound,
        why,
        nearest,
        tuple(roofs),
        flops / timeline.hbm_bytes if timeline.hbm_bytes else 0.0,
        flops / moved if moved else 0.0,
        {f"{name}_ratio": ratio for name, ratio in ratios.items()},
        {f"{name}_time(us)": ratio * core_us for name, ratio in ratios.items()},
        traffic(timeline),
        timeline.conflicts / timeline.cycles if timeline.cycles else 0.0,
    )


def vector_tflops(timeline: Timeline, program: Program) -> float:
    """The vector cores' peak for the widest element that the program's vector instructions take:
    one operation an element and 256 bytes a cycle and core."""
    bits = 16
    for phase in program.phases:
        for fn in phase.functions:
            for s in walk(fn.body):
                if isinstance(s, Instr) and TABLE[s.op].pipe == "V":
                    bits = max(bits, *(v.dtype.bits for v in views(s)))
    return REPEAT * 8 / bits * timeline.chip.vector_cores * timeline.chip.mhz / 1e6


def l2_tb_s(timeline: Timeline) -> float:
    """What the L2 cache gives all cores together, as the simulator has it."""
    return DEFAULT.l2_rate * timeline.chip.cube_cores * timeline.chip.mhz / 1e6


def traffic(timeline: Timeline) -> tuple[Traffic, ...]:
    """Device memory first, then every path over all cores, while the cores ran."""
    us = timeline.cycles / timeline.chip.mhz
    hbm, mhz = timeline.hbm_bytes, timeline.chip.mhz
    out = [Traffic("HBM", hbm, hbm / us / 1e3, timeline.chip.hbm_tb_s * 1e3)]
    for path, moved in sorted(timeline.traffic.items(), key=lambda kv: -kv[1]):
        cores = timeline.cores.get("vector" if "UB" in path else "cube", 0)
        peak = PATH_PEAK.get(path, 0) * cores * mhz / 1e3
        out.append(Traffic(path, moved, moved / us / 1e3, peak))
    return tuple(out)


def _bound(timeline: Timeline, nearest: Roof) -> tuple[str, str]:
    spoken = {"memory": "device memory", "l2": "the L2 cache"}.get(
        nearest.name, f"the {nearest.name} cores"
    )
    share = f"{100 * nearest.share:.0f} % of what {spoken} can do"
    if nearest.share > BOUND:
        return nearest.name, f"the launch reaches {share}"
    busiest = max(timeline.pipes, key=lambda use: use.busy, default=None)
    if busiest is None:
        return "latency", "no pipe is used"
    ratio = timeline.ratio(busiest.kind, busiest.pipe)
    said = f"{names.spoken(busiest.pipe)} of the {busiest.kind} cores is busy {100 * ratio:.0f} %"
    if timeline.launch_us > 0.5 * timeline.us:
        part = 100 * timeline.launch_us / timeline.us
        return "latency", f"the launch itself takes {part:.0f} % of the time"
    if ratio > BOUND:
        return names.bound(busiest.pipe), f"{said} of the time, at {share}"
    return "latency", f"no pipe is busy throughout ({said}); the launch reaches {share}"
