"""Which thread does which unit of a grid, as code at the head of a phase.

A thread does its own units first, then takes from a shared counter what is left. What is shared
lets a thread that was held up (an interrupt, a slower core) be helped out by the others; what is
owned keeps data where it was cached and costs no atomic operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from terrazzo.targets.cpu.builder import Function

FEW = 4  # units a thread up to which all are owned
COUNTER = 3  # slot of the launch table


@dataclass(frozen=True)
class HandOut:
    """Units first .. last - 1 are this thread's, shared .. total - 1 anybody's (i64 values)."""

    first: str
    last: str
    shared: str
    total: str

    @staticmethod
    def equal(f: Function, total: str, uneven: bool) -> HandOut:
        """Units alike: three quarters are owned, of a few all: a sequence that decodes stays where
        its keys and values are cached. `uneven` units are all shared, if they are not few."""
        threads, tid = f.wide("%threads"), f.wide("%tid")
        few = f.op(f"icmp sle i64 {total}, {f.mul(threads, FEW)}")
        few = f.op(f"or i1 {few}, {f.op('icmp eq i32 %threads, 1')}")
        own = "0" if uneven else f.op(f"sdiv i64 {f.mul(total, 3)}, {f.mul(threads, 4)}")

        def begin(t: str) -> str:
            even = f.op(f"sdiv i64 {f.mul(total, t)}, {threads}")
            return f.op(f"select i1 {few}, i64 {even}, i64 {f.mul(own, t)}")

        return HandOut(begin(tid), begin(f.add(tid, 1)), begin(threads), total)

    def emit(self, f: Function, unit: Callable[[str], None]) -> None:
        """The loop. Shared units come last first: causal attention's later blocks are the heavier
        ones."""
        head, turn, take = f.fresh("units"), f.fresh("turn"), f.fresh("take")
        inside, out = f.fresh("unit"), f.fresh("none")
        begin, at, after = f.current, "%" + f.fresh("i"), "%" + f.fresh("n")
        f.put(f"br label %{head}")
        f.label(head)
        phi = len(f.lines)
        f.put("")
        mine = f.op(f"icmp slt i64 {at}, {self.last}")
        f.put(f"br i1 {mine}, label %{inside}, label %{turn}")
        f.label(turn)
        left = f.op(f"icmp slt i64 {self.shared}, {self.total}")
        f.put(f"br i1 {left}, label %{take}, label %{out}")
        f.label(take)
        counter = f.gep("%table", COUNTER, "i64")
        ticket = f.op(f"atomicrmw add ptr {counter}, i64 1 monotonic")
        taken = f.sub(f.add(self.total, -1), ticket)
        more = f.op(f"icmp sge i64 {taken}, {self.shared}")
        f.put(f"br i1 {more}, label %{inside}, label %{out}")
        f.label(inside)
        u = f.op(f"phi i64 [ {at}, %{head} ], [ {taken}, %{take} ]")
        unit(u)
        f.put(f"{after} = add nsw i64 {at}, 1")
        f.lines[phi] = f"  {at} = phi i64 [ {self.first}, %{begin} ], [ {after}, %{f.current} ]"
        f.put(f"br label %{head}")
        f.label(out)


class Shares:
    """Columns of a product with few rows, on several threads: each owns a run of them, seven
    eighths of all together, in blocks of up to `step`; the others are shared in blocks of `grain`
    columns. `single`: (i1) the grid has no other blocks than those of the columns; else, or with
    one thread or few columns, all of this is off."""

    def __init__(self, f: Function, span: str, step: int, grain: int, single: str) -> None:
        self.f, self.grain, self.span = f, grain, span
        threads = f.wide("%threads")
        own = f.op(f"sdiv i64 {f.mul(span, 7)}, {f.mul(threads, 8 * grain)}")
        many = f.op(f"and i1 {single}, {f.op('icmp sgt i32 %threads, 1')}")
        self.on = f.op(f"and i1 {many}, {f.op(f'icmp sgt i64 {own}, 0')}")
        self.own = f.mul(own, grain)
        self.blocks = f.max(f.cdiv(self.own, step), 1)
        self.size = f.roundup(f.cdiv(self.own, self.blocks), grain)
        self.owned = f.mul(threads, self.blocks)
        self.rim = f.mul(threads, self.own)

    def hand_out(self, other: HandOut) -> HandOut:
        """The shares' units, or `other` while they are off."""
        f = self.f
        tid = f.wide("%tid")
        first = f.mul(self.blocks, tid)
        small = f.cdiv(f.sub(self.span, self.rim), self.grain)
        mine = (first, f.add(first, self.blocks), self.owned, f.add(self.owned, small))
        both = zip(mine, (other.first, other.last, other.shared, other.total), strict=True)
        return HandOut(*(f.op(f"select i1 {self.on}, i64 {a}, i64 {b}") for a, b in both))

    def block(self, u: str, begin: str, extent: str) -> tuple[str, str]:
        """(first column, columns) of unit u; begin and extent while the shares are off."""
        f = self.f
        thread = f.op(f"sdiv i64 {u}, {self.blocks}")
        within = f.mul(f.sub(u, f.mul(thread, self.blocks)), self.size)
        piece = f.mul(f.sub(u, self.owned), self.grain)
        mine = f.op(f"icmp slt i64 {u}, {self.owned}")

        def pick(test: str, a: str, b: str) -> str:
            return f.op(f"select i1 {test}, i64 {a}, i64 {b}")

        at = pick(mine, f.add(f.mul(thread, self.own), within), f.add(self.rim, piece))
        left = f.sub(pick(mine, f.mul(f.add(thread, 1), self.own), self.span), at)
        size = f.min(pick(mine, self.size, str(self.grain)), left)
        return pick(self.on, at, begin), pick(self.on, size, extent)

    def rest(self, rest: str) -> str:
        """The unit's number among the other axes' blocks."""
        return self.f.op(f"select i1 {self.on}, i64 0, i64 {rest}")
