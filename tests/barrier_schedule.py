"""The simplest right schedule of a buffer-level program: tiles one behind the other in memory,
and a barrier of all pipes behind every instruction. What the checker must find nothing in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from terrazzo.targets.ascend.product import Product, expand, l0_buffers
from terrazzo.targets.davinci.chips import ALIGNMENT
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    For,
    If,
    Instr,
    PipeBarrier,
    Program,
    Stmt,
    View,
)


def scheduled(program: Program) -> Program:
    phases = [replace(p, functions=tuple(map(_function, p.functions))) for p in program.phases]
    return replace(program, phases=tuple(phases), scheduled=True)


def _function(f: CoreFn) -> CoreFn:
    ends: dict[str, int] = {}
    placed: dict[Buffer, Buffer] = {}
    for b in f.buffers:
        unit = max(32, ALIGNMENT[b.space])
        size = -(-b.bytes // unit) * unit
        at = ends.get(b.space, 0)
        slots = 1 if b.space == "L0C" else b.slots  # a second one there is for speed only
        ends[b.space] = at + size * slots
        placed[b] = replace(b, addresses=tuple(at + i * size for i in range(slots)))
    body = tuple(_body(f.body, placed))
    return replace(f, body=body, buffers=tuple(placed.values()))


def _body(body: tuple[Stmt, ...], placed: dict[Any, Buffer]) -> Iterator[Stmt]:
    for s in body:
        if isinstance(s, (For, If)):
            yield replace(s, body=tuple(_body(s.body, placed)))
        elif isinstance(s, Instr):
            out, *ins = (_view(x, placed) for x in (s.out, *s.ins))
            made = replace(s, out=out, ins=tuple(ins))
            yield from _product(made, placed) if s.op == "mmad_l1" else (made,)
            yield PipeBarrier("ALL", s.loc)
        else:
            yield s


def _view(x: Any, placed: dict[Any, Buffer]) -> Any:
    return replace(x, memory=placed.get(x.memory, x.memory)) if isinstance(x, View) else x


def _product(s: Instr, placed: dict[Any, Buffer]) -> list[Stmt]:
    a, b, first = s.ins
    assert isinstance(a, View) and isinstance(b, View) and not isinstance(first, View)
    turn_a, turn_b = bool(s.attr("transpose_a")), bool(s.attr("transpose_b"))
    (m, k), (other, n) = _room(a, turn_a), _room(b, turn_b)
    inner = a.sizes[0 if turn_a else 1]
    pair = l0_buffers(a.dtype)
    for l0 in pair:
        placed.setdefault((l0.space, l0.dtype), l0)
    l0a, l0b = (placed[l0.space, l0.dtype] for l0 in pair)
    none = (None, None)
    product = Product(s.out, a, b, first, inner, (m, n, min(k, other)), turn_a, turn_b, none, none,
                      None, none, s.loc)  # fmt: skip
    return expand(product, (l0a, l0b))


def _room(v: View, turned: bool) -> tuple[int, int]:
    pitch = v.strides[1]
    assert isinstance(v.memory, Buffer) and isinstance(pitch, int)
    rows, columns = pitch // v.fractal, v.memory.elements // pitch * v.fractal
    return (columns, rows) if turned else (rows, columns)
