"""Takeover: a result that is made where its operand was loaded, if memory is short.

The loaded tile is then handed back later, when the result is no longer needed: with two slots that
costs nothing, with one the next load waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import Buffer, CoreFn, Instr, View, with_views
from terrazzo.targets.davinci.scheduling.accesses import Uses


def taken_over(fn: CoreFn, found: Sequence[Uses]) -> CoreFn | None:
    """`fn` with the largest such result in its operand's buffer, None if there is none."""
    by_buffer = {u.buffer: u for u in found}
    pairs = [(u.buffer, old) for u in found if (old := _operand(u, by_buffer)) is not None]
    if not pairs:
        return None
    new, old = max(pairs, key=lambda pair: pair[0].bytes)
    body = with_views(fn.body, lambda x: replace(x, memory=old) if x.memory is new else x)
    return replace(fn, body=body, buffers=tuple(b for b in fn.buffers if b is not new))


def same_place(out: View, x: View) -> bool:
    """Whether two views have the same shape and layout."""
    return (x.sizes, x.strides, x.offset) == (out.sizes, out.strides, out.offset)


def elementwise(s: Instr) -> bool:
    """Whether each element of the result depends on the operands' same element only."""
    return TABLE[s.op].pipe == "V" and TABLE[s.op].meaning is not None


def _operand(u: Uses, by_buffer: dict[Buffer, Uses]) -> Buffer | None:
    first = u.uses[0].instr
    if u.pipes != {"V"} or u.slots != {0} or not elementwise(first):
        return None
    if first.out.memory is not u.buffer:
        return None
    for x in first.ins:
        if not isinstance(x, View) or not isinstance(x.memory, Buffer) or x.memory is u.buffer:
            continue
        old = by_buffer[x.memory]
        loaded = old.loaded and old.pipes == {"MTE2", "V"} and len(old.slots) == 1
        dies = old.uses[-1].instr is first and old.home == u.home
        fits = x.dtype == u.buffer.dtype and u.buffer.elements <= x.memory.elements
        if loaded and dies and fits and same_place(first.out, x):
            return x.memory
    return None
