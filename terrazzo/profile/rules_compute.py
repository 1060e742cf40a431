"""Rules of the advice about the Cube, the vector unit, and how work is spread over the cores."""

from __future__ import annotations

from collections.abc import Iterator

from terrazzo.profile import names
from terrazzo.profile.case import Advice, Case, percent, tile
from terrazzo.profile.figures import BOUND
from terrazzo.profile.replay import Use, start, trips, value
from terrazzo.targets.davinci.chips import BLOCK, FRACTAL_ROWS, REPEAT
from terrazzo.targets.davinci.isa import TABLE, VECTOR_HEAD
from terrazzo.targets.davinci.program import Buffer, CoreKind, For, Let, View

WORTH = 0.1  # of the launch's time
FEW = 8  # repeats below which a vector instruction's head counts
GROUPS = 16  # bank groups of UB, a block of 32 B wide
BANK = 64 << 10  # bytes of UB after which the bank within a group changes


def bank_conflicts(case: Case) -> Iterator[Advice]:
    """Two operands of a vector instruction that meet in the same bank group or bank."""
    lost = case.figures.conflict_ratio
    if lost < 0.03:
        return
    found = [
        (u.times * u.elements, u, clash)
        for u in case.uses
        if TABLE[u.instr.op].pipe == "V" and (clash := _clash(case, u))
    ]
    if found:
        _, u, (a, b, how) = max(found, key=lambda f: f[0])
        where = " and ".join(f"{tile(v.memory)} (0x{_address(case, u, v):05x})" for v in (a, b))
        yield Advice(
            "bank_conflicts",
            case.line(u.instr.loc),
            f"bank conflicts cost the vector cores {percent(lost)} of the time, most of it in"
            f" {u.instr.op}{case.at(u.instr.loc)}: {where} {how}",
            lost,
        )


def _address(case: Case, u: Use, v: View) -> int:
    assert isinstance(v.memory, Buffer)
    slot = value(v.slot, u.env, case.inputs) % v.memory.slots
    offset = value(v.offset, u.env, case.inputs) * v.dtype.bits // 8
    return v.memory.addresses[slot] + offset


def _placed(v: View) -> bool:
    return isinstance(v.memory, Buffer) and v.space == "UB" and bool(v.memory.addresses)


def _clash(case: Case, u: Use) -> tuple[View, View, str] | None:
    """Sources 8 groups (256 B) apart never meet, for a repeat is 8 blocks. A destination is written
    one repeat after its source is read, so that equal places do not meet either. Masks have no
    address in a plan of the vendor's."""
    sources = [v for v in u.instr.ins if isinstance(v, View) and _placed(v)]
    places = [_address(case, u, v) for v in sources]
    for at, (v, a) in enumerate(zip(sources, places, strict=True)):
        for w, b in zip(sources[at + 1 :], places[at + 1 :], strict=True):
            if (a - b) // BLOCK % GROUPS != GROUPS // 2:
                return v, w, "are read from the same bank groups; move one by 256 B"
    if not _placed(u.instr.out):
        return None
    target = _address(case, u, u.instr.out)
    for v, a in zip(sources, places, strict=True):
        if a // BANK == target // BANK and (a - target) % (GROUPS * BLOCK):
            return v, u.instr.out, "share banks, one read and one written; let both start alike"
    return None


def partial_fractals(case: Case) -> Iterator[Advice]:
    """Tiles that fill fractals of 16 rows and 32 bytes in part: the Cube multiplies padding."""
    for u in case.uses:
        if u.instr.op not in ("mmad", "mmad_l1"):
            continue
        a = u.instr.ins[0]
        assert isinstance(a, View)
        sizes = (*u.sizes, u.sources[0][-2 if u.instr.attr("transpose_a") else -1])
        units = (FRACTAL_ROWS, FRACTAL_ROWS, BLOCK * 8 // a.dtype.bits)
        padded = [-(-n // unit) * unit for n, unit in zip(sizes, units, strict=True)]
        full = sizes[0] * sizes[1] * sizes[2] / (padded[0] * padded[1] * padded[2])
        if full < 1 - WORTH and case.timeline.ratio(u.fn.kind, "M") > WORTH:
            yield Advice(
                "partial_fractals",
                case.line(u.instr.loc),
                f"the Cube multiplies {' × '.join(map(str, sizes))}{case.at(u.instr.loc)}, padded"
                f" to {' × '.join(map(str, padded))}: {percent(1 - full)} of its work is padding;"
                " take multiples of 16",
                case.timeline.ratio(u.fn.kind, "M") * (1 - full),
            )


def few_repeats(case: Case) -> Iterator[Advice]:
    """Vector instructions so short that their head is most of them."""
    busy = case.timeline.ratio("vector", "V")
    if busy < 0.3:
        return
    short: list[tuple[float, Use, int]] = []
    total = 0.0
    for u in case.uses:
        spec = TABLE[u.instr.op]
        if spec.pipe != "V":
            continue
        width = max(v.dtype.bits for v in (u.instr.out, *u.instr.ins) if isinstance(v, View)) // 8
        repeats = -(-u.elements * max(width, 1) // REPEAT)
        cycles = VECTOR_HEAD + repeats * (spec.cycles or {}).get(width, 1.0)
        total += u.times * cycles
        if repeats < FEW:
            short.append((u.times * VECTOR_HEAD, u, repeats))
    heads = sum(s[0] for s in short)
    if short and heads > WORTH * total:
        _, u, repeats = max(short, key=lambda s: s[0])
        yield Advice(
            "few_repeats",
            case.line(u.instr.loc),
            f"the vector unit works on {repeats} repeat{'s'[: repeats != 1]} of 256 B a time in"
            f" {u.instr.op}{case.at(u.instr.loc)}: the {VECTOR_HEAD:.0f} cycles before the first"
            f" one are exposed where the pipe was idle, up to {percent(heads / total)} of its time;"
            " more rows or longer ones at a time hide them",
            busy * heads / total,
        )


def few_cores(case: Case) -> Iterator[Advice]:
    """Cores that have nothing to do."""
    for kind, cores in case.timeline.cores.items():
        there = case.timeline.chip.cores(kind)
        idle = 1 - cores / there
        if idle > WORTH:
            loop = next(
                (s for _, f in case.functions if f.kind == kind for s in f.body
                 if isinstance(s, For)), None,
            )  # fmt: skip
            loc = loop.loc if loop else None
            yield Advice(
                "few_cores",
                case.line(loc),
                f"{cores} of {there} {kind} cores {'has' if cores == 1 else 'have'} work"
                f"{case.at(loc)}: more blocks (smaller tiles, or another dimension in the grid)"
                " would use the others",
                idle,
            )


def last_round(case: Case) -> Iterator[Advice]:
    """Blocks that do not divide by the cores: most cores wait for a few in the end."""
    for phase in case.program.phases:
        fn = phase.functions[0]  # the other function of a mixed phase follows its blocks
        work: dict[For, list[int]] = {}
        for core in range(fn.cores):
            env = start(core, phase, fn, case.inputs)
            for s in fn.body:
                if isinstance(s, Let):
                    env[s.name] = value(s.value, env, case.inputs)
                elif isinstance(s, For):
                    work.setdefault(s, []).append(trips(s, env, case.inputs))
        for loop, counts in work.items():
            most, mean = max(counts), sum(counts) / len(counts)
            waste = 1 - mean / most if most else 0.0
            if waste > WORTH:
                few = sum(c == most for c in counts)
                yield Advice(
                    "last_round",
                    case.line(loop.loc),
                    f"{sum(counts)} blocks over {fn.cores} {fn.kind} cores{case.at(loop.loc)}:"
                    f" {few} have {most}, the others fewer, so that {percent(waste)} of the cores'"
                    " time is waiting in the last round; choose tiles that make a multiple of"
                    f" {fn.cores} blocks",
                    waste,
                )


def hand_over(case: Case) -> Iterator[Advice]:
    """Cube and vector cores that wait for each other, neither of them busy throughout."""
    mixed = [p for p in case.program.phases if p.mixed]
    if not mixed:
        return
    other: dict[CoreKind, CoreKind] = {"cube": "vector", "vector": "cube"}
    busiest = max(u.busy for u in case.timeline.pipes) / case.timeline.cycles
    waiting = [(case.waits(u.kind, u.pipe, (other[u.kind],)), u) for u in case.timeline.pipes]
    idle, use = max(waiting, key=lambda w: w[0])
    if idle < WORTH or busiest > BOUND:
        return
    fn = next(f for f in mixed[0].functions if f.kind == use.kind)
    loc = next((s.loc for s in fn.body if isinstance(s, For)), None)
    yield Advice(
        "hand_over",
        case.line(loc),
        f"{names.spoken(use.pipe)} of the {use.kind} cores waits {percent(idle)} of the time for"
        f" the {other[use.kind]} cores to hand a tile over{case.at(loc)}, and no pipe is busy for"
        f" more than {percent(busiest)}: let the producer run further ahead (more stages of the"
        " tile in global memory)",
        idle,
    )


def launch_bound(case: Case) -> Iterator[Advice]:
    """A launch that does little but be launched."""
    part = case.timeline.launch_us / case.timeline.us
    if part > 0.3:
        yield Advice(
            "launch_bound",
            0,
            f"the launch takes {case.timeline.launch_us:.1f} of {case.timeline.us:.1f} µs: more"
            " work a launch (phases of one kernel, fused neighbours) is what helps",
            part,
        )


def near_the_roof(case: Case) -> Iterator[Advice]:
    """Nothing to gain: says so."""
    roof = case.figures.roof
    if roof.share <= BOUND:
        return
    said = f"the launch reaches {percent(roof.share)} of"
    rest = "tuning this kernel gains little"
    if roof.name in ("memory", "l2"):
        hbm = f"{names.rate(1e3 * roof.used)} of {names.rate(1e3 * roof.peak)}"
        what = "device memory" if roof.name == "memory" else "the L2 cache"
        text = (
            f"{said} {what} ({hbm}): {rest}; fewer bytes do (narrower types, or fusing it with what"
            " makes its inputs)"
        )
    else:
        peak = f"{roof.used:.0f} of {roof.peak:.0f} TFLOP/s"
        text = f"{said} the {roof.name} cores' peak ({peak}): {rest}; a narrower type does more"
    yield Advice("near_the_roof", 0, text, roof.share)
