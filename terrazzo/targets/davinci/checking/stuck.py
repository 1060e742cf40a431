"""Why a group of cores stands still: the one wait to blame."""

from __future__ import annotations

from collections.abc import Iterable

from terrazzo.targets.davinci.checking.finding import Finding
from terrazzo.targets.davinci.numbers.items import Item
from terrazzo.targets.davinci.numbers.unit import Core
from terrazzo.targets.davinci.program import CrossWait, WaitFlag

Place = tuple[int, str]  # a core's place in its group, a pipe


def blamed(cores: list[Core]) -> tuple[Core, Item, Finding]:
    """Of cores whose pipes all wait: a wait for what nobody will set if there is one, else the
    first one of a circle of waits."""
    heads = {(c.index, p): (c, q[0]) for c in cores for p, q in c.queues.items() if q}
    waits = sorted(heads.values(), key=lambda w: (w[1].order, w[0].index))
    lost = [w for w in waits if not _may_come(*w)]
    core, item = lost[0] if lost else min(
        (heads[p] for p in _circle(heads)), key=lambda w: (w[1].order, w[0].index)
    )  # fmt: skip
    s = item.s
    assert isinstance(s, (WaitFlag, CrossWait))
    if isinstance(s, WaitFlag):
        what = f"{s.dst} waits for event {item.key[2]} of {s.src}"
    else:
        what = f"{s.pipe} of the {core.f.kind} core waits for flag {item.key}"
    why = "which nobody sets" if lost else "and what would set it waits too, in a circle"
    remedy = "set it before, or remove the wait" if lost else "change the order of the flags"
    return core, item, Finding("deadlock", f"{what}, {why}", remedy, s.loc)


def _may_come(core: Core, item: Item) -> bool:
    """Whether what would end this wait has been issued, or still may be."""
    if isinstance(item.s, WaitFlag):
        return core.will_set(item.key) or core.issuing
    return bool(core.peers) and all(
        core.flags.get((p.index, item.key)) or p.will_set(item.key)
        or p.issuing and p.sets_ever(item.key) for p in core.peers
    )  # fmt: skip


def _circle(heads: dict[Place, tuple[Core, Item]]) -> list[Place]:
    """Pipes that wait for each other. Each waits for one that stands still itself."""
    path = [next(iter(heads))]
    while True:
        after = next(p for p in _behind(*heads[path[-1]]) if p in heads)
        if after in path:
            return path[path.index(after) :]
        path.append(after)


def _behind(core: Core, item: Item) -> Iterable[Place]:
    """The pipes that what would end this wait is stuck on."""
    if isinstance(item.s, WaitFlag):
        yield from _setters(core, item)
        return
    for p in core.peers:
        if not core.flags.get((p.index, item.key)):
            yield from _setters(p, item)


def _setters(core: Core, item: Item) -> Iterable[Place]:
    """The pipe whose queue holds the flag, or else those that keep it from being issued."""
    pipes = [p for p in core.queues if core.holds_set(p, item.key)]
    return ((core.index, p) for p in pipes or core.queues)
