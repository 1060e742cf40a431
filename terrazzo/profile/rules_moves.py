"""Rules of the advice about loads and stores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from terrazzo.profile import names
from terrazzo.profile.case import Advice, Case, listed, percent, tile, view_bytes
from terrazzo.profile.replay import Use, trips
from terrazzo.targets.davinci import expr
from terrazzo.targets.davinci.expr import Scalar
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    CoreKind,
    For,
    Gm,
    Let,
    Pipe,
    View,
    walk,
)

WORTH = 0.1  # of the launch's time: less is not worth a sentence
LARGE = 16 << 10  # bytes from which a transfer is bound by its bytes (the vendor's advice)
LINE = 512  # bytes that device memory and L2 move at a time
MANY = 8  # cores that read one address before they are in each other's way
# Pipes of a core that free what its MTE2 has loaded.
READERS: dict[CoreKind, tuple[Pipe, ...]] = {"cube": ("MTE1", "M"), "vector": ("V", "MTE3")}


def _gm(u: Use) -> tuple[View, tuple[int, ...]] | None:
    """The side of a transfer that lies in global memory, and its sizes."""
    if isinstance(u.instr.out.memory, Gm):
        return u.instr.out, u.sizes
    for v, sizes in zip((v for v in u.instr.ins if isinstance(v, View)), u.sources, strict=True):
        if isinstance(v.memory, Gm):
            return v, sizes
    return None


def _local(u: Use) -> View:
    """The side of a transfer that lies on the core."""
    source = u.instr.ins[0]
    assert isinstance(source, View)
    return source if isinstance(u.instr.out.memory, Gm) else u.instr.out


def single_buffered(case: Case) -> Iterator[Advice]:
    """Loads in a loop into a buffer with one slot, while the load pipe waits for its readers."""
    groups: dict[For, list[Use]] = defaultdict(list)
    for u in case.uses:
        buffer = u.instr.out.memory
        if TABLE[u.instr.op].pipe != "MTE2" or not isinstance(buffer, Buffer) or buffer.slots > 1:
            continue
        if u.loops and trips(u.loops[-1], u.env, case.inputs) > 1:
            groups[u.loops[-1]].append(u)
    for loop, loads in groups.items():
        kind = loads[0].fn.kind
        idle = case.waits(kind, "MTE2", READERS[kind])
        if idle < WORTH:
            continue
        waits = case.pipe(kind, "MTE2").waits
        on = max(READERS[kind], key=lambda p: waits.get(p, 0.0))
        buffers = list(dict.fromkeys(u.instr.out.memory for u in loads))
        space = loads[0].instr.out.memory.space  # type: ignore[union-attr]
        need, free = sum(b.bytes for b in buffers), case.free(space)  # type: ignore[union-attr]
        capacity = names.nbytes(case.timeline.chip.capacity[space])
        used = names.nbytes(case.peak(space))
        fits = (
            f"which fits ({used} of {capacity} are in use)"
            if need <= free
            else f"which does not fit ({used} of {capacity} are in use): take smaller tiles with it"
        )
        one = "a single buffer" + (" each" if len(buffers) > 1 else "")
        place = f" in the loop at line {line}" if (line := case.line(loop.loc)) else ""
        yield Advice(
            "single_buffered",
            case.line(loop.loc) or case.line(loads[0].instr.loc),
            f"MTE2 is idle {percent(idle)} of the time (it starts nothing) waiting for"
            f" {names.spoken(on)}:"
            f" {listed(tile(b) for b in buffers)}{case.at(loads[0].instr.loc)} have {one}{place}"
            f" (stages=1); stages=2 needs {names.nbytes(need)} more of {space}, {fits}".replace(
                "have a single buffer in", "has a single buffer in"
            ),
            idle,
        )


def short_transfers(case: Case) -> Iterator[Advice]:
    """Transfers from or to global memory below 16 KiB: their issue and latency count."""
    groups: dict[tuple[CoreKind, Pipe, int, int], list[tuple[Use, View]]] = defaultdict(list)
    for u in case.uses:
        side = _gm(u)
        if side is None or u.times < 4:
            continue
        moved = view_bytes(_local(u), side[1])
        if moved < LARGE:
            key = (u.fn.kind, TABLE[u.instr.op].pipe, case.line(u.instr.loc), moved)
            groups[key].append((u, side[0]))
    for (kind, pipe, line, moved), found in groups.items():
        busy = case.timeline.ratio(kind, pipe)
        if busy > 0.3:
            whose = listed(tile(v.memory) for _, v in found)
            many = len({v.memory for _, v in found}) > 1
            yield Advice(
                "short_transfers",
                line,
                f"{whose}{case.at(found[0][0].instr.loc)} move{'' if many else 's'}"
                f" {names.nbytes(moved)} at a time, {found[0][0].times:,} times a core: below"
                f" 16 KiB issue and latency count, and {names.spoken(pipe)} has one under way"
                f" {percent(busy)} of the time; tiles {-(-LARGE // max(moved, 1))} times as large"
                " would be bound by their bytes",
                busy * (1 - moved / LARGE),
            )


def narrow_rows(case: Case) -> Iterator[Advice]:
    """ND to NZ on rows below 512 B: the pipe takes one row at a time."""
    for u in case.uses:
        side = _gm(u)
        if u.instr.op != "nd2nz" or side is None:
            continue
        busy = case.timeline.ratio(u.fn.kind, "MTE2")
        bits = side[0].dtype.bits
        row = side[1][-1] * bits // 8
        if row < LINE and busy > 0.3:
            yield Advice(
                "narrow_rows",
                case.line(u.instr.loc),
                f"{tile(side[0].memory)}{case.at(u.instr.loc)} is brought into NZ layout in rows"
                f" of {row} B, one at a time: MTE2 is busy {percent(busy)}; rows of {LINE} B"
                f" ({LINE * 8 // bits} elements) cost little more each",
                busy * (1 - row / LINE),
            )


def unaligned_rows(case: Case) -> Iterator[Advice]:
    """Rows in global memory that start anywhere: they touch a line of 512 B more than they need."""
    for u in case.uses:
        side = _gm(u)
        if side is None:
            continue
        view, sizes = side
        busy = case.timeline.ratio(u.fn.kind, TABLE[u.instr.op].pipe)
        strides = [s for s, n in zip(view.strides[:-1], sizes[:-1], strict=True) if n > 1]
        stride = strides[-1] if strides else 0
        row = sizes[-1] * view.dtype.bits // 8
        if not isinstance(stride, int) or busy < 0.3 or row < LINE:
            continue
        apart = stride * view.dtype.bits // 8
        if apart % LINE:
            lines = -(-row // LINE)
            yield Advice(
                "unaligned_rows",
                case.line(u.instr.loc),
                f"rows of {tile(view.memory)}{case.at(u.instr.loc)} lie {apart:,} B apart, no"
                f" multiple of {LINE}: a piece of {row:,} B touches {lines + 1} lines of {LINE} B"
                f" instead of {lines}; pad the rows to"
                f" {-(-apart // LINE) * LINE * 8 // view.dtype.bits:,} elements",
                busy / (lines + 1),
            )


def same_address(case: Case) -> Iterator[Advice]:
    """All cores read the same bytes at the same time: such reads are served one by one."""
    total = sum(b for path, b in case.timeline.traffic.items() if path.startswith("GM->"))
    for u in case.uses:
        side = _gm(u)
        if side is None or TABLE[u.instr.op].pipe != "MTE2" or u.fn.cores < MANY:
            continue
        view = side[0]
        moved = view_bytes(view, side[1]) * u.times * u.fn.cores
        if moved < 0.2 * total or "core" in _depends(u.fn, view.offset):
            continue
        busy = case.timeline.ratio(u.fn.kind, "MTE2")
        yield Advice(
            "same_address",
            case.line(u.instr.loc),
            f"all {u.fn.cores} {u.fn.kind} cores read {tile(view.memory)}{case.at(u.instr.loc)}"
            f" from the same address at once, {percent(moved / total)} of all that is read: equal"
            " lines are served one after the other; let each core start at another block",
            busy * moved / total,
        )


def _depends(fn: CoreFn, e: Scalar) -> set[str]:
    """All variables that `e` is made from, also through loops' bounds and `Let`s."""
    made: dict[str, set[str]] = defaultdict(set)
    for s in walk(fn.body):
        if isinstance(s, Let):
            made[s.name] |= expr.names(s.value)
        elif isinstance(s, For):
            made[s.var] |= expr.names(s.lo) | expr.names(s.hi) | expr.names(s.step)
    seen: set[str] = set()
    todo = expr.names(e)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo |= made[name]
    return seen


def store_bound(case: Case) -> Iterator[Advice]:
    """What is computed leaves the core more slowly than it is made."""
    stores: tuple[tuple[Pipe, Pipe], ...] = (("MTE3", "V"), ("FIX", "M"))
    for store, maker in stores:
        mine = [u for u in case.uses if TABLE[u.instr.op].pipe == store and _gm(u)]
        if not mine:
            continue
        kind = mine[0].fn.kind
        wait = case.waits(kind, maker, (store,))
        busy = case.timeline.ratio(kind, store)
        most = max(mine, key=lambda u: u.times * u.elements)
        place = f"{tile(most.instr.out.memory)}{case.at(most.instr.loc)}"
        source = _local(most).memory
        if wait > 0.05 and isinstance(source, Buffer) and source.slots == 1:
            fits = (
                "a second slot fits"
                if source.bytes <= case.free(source.space)
                else "half the tile in two slots would"
            )
            yield Advice(
                "store_bound",
                case.line(most.instr.loc),
                f"{names.spoken(maker)} waits {percent(wait)} of the time for"
                f" {names.spoken(store)} to store {place}: {tile(source)} has one slot of"
                f" {names.nbytes(source.bytes)} in {source.space}; {fits} let both work at once",
                wait,
            )
        elif busy > 0.6 and busy >= case.timeline.ratio(kind, "MTE2"):
            yield Advice(
                "store_bound",
                case.line(most.instr.loc),
                f"{names.spoken(store)} is busy {percent(busy)} of the time with {place}, more than"
                " any load: a narrower type or a fused consumer would store fewer bytes",
                busy,
            )
