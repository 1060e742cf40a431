"""Where the rows of a mask start.

A mask has a bit an element. The vendor's passes turn a comparison of matrices into one of their
rows, unless all of its operands are dense and it becomes one of a long row; a row's bits are
written at a byte address that must be a multiple of 32. They would arrange that for buffers of
their own shape; ours have our strides, so the rows of a mask that is not dense start at multiples
of 256 elements.
"""

from __future__ import annotations

from dataclasses import replace

from terrazzo.ir.types import bool_
from terrazzo.targets.davinci.chips import BLOCK
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    For,
    If,
    Instr,
    Operand,
    Stmt,
    View,
    views,
    walk,
)

_ROW = BLOCK * 8


def align(f: CoreFn) -> CoreFn:
    """The same function with such masks padded. Raises ValueError for a mask that is viewed in ways
    that no one padding serves."""
    pitches: dict[Buffer, int] = {}
    for s in walk(f.body):
        if isinstance(s, Instr) and not all(map(_dense, views(s))):
            for v in views(s):
                if v.dtype == bool_ and isinstance(v.memory, Buffer) and len(v.sizes) > 1:
                    pitch = v.strides[-2]
                    if not isinstance(pitch, int) or pitches.setdefault(v.memory, pitch) != pitch:
                        raise ValueError(f"mask {v.memory.name} is viewed with several row lengths")
    changed = {b: _padded(b, pitch) for b, pitch in pitches.items() if pitch % _ROW}
    if not changed:
        return f

    def view(v: Operand) -> Operand:
        if not isinstance(v, View) or v.memory not in changed:
            return v
        assert isinstance(v.memory, Buffer)
        pitch = pitches[v.memory]
        if v.offset != 0 or any(isinstance(st, int) and st % pitch for st in v.strides[:-1]):
            raise ValueError(f"mask {v.memory.name} is viewed in parts of rows")
        wide = -(-pitch // _ROW) * _ROW
        strides = tuple(
            st if st == 1 or not isinstance(st, int) else st // pitch * wide for st in v.strides
        )
        return replace(v, memory=changed[v.memory], strides=strides)

    def rewrite(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, (For, If)):
                s = replace(s, body=rewrite(s.body))
            elif isinstance(s, Instr):
                to = view(s.out)
                assert isinstance(to, View)
                s = replace(s, out=to, ins=tuple(map(view, s.ins)))
            out.append(s)
        return tuple(out)

    return replace(f, body=rewrite(f.body), buffers=tuple(changed.get(b, b) for b in f.buffers))


def _padded(b: Buffer, pitch: int) -> Buffer:
    rows = -(-b.elements // pitch)
    return replace(b, elements=rows * (-(-pitch // _ROW) * _ROW))


def _dense(v: View) -> bool:
    """One long row, or a matrix whose rows follow one another."""
    dense = 1
    for n, st in zip(reversed(v.sizes), reversed(v.strides), strict=True):
        if st != dense or not isinstance(n, int):
            return len(v.sizes) == 1 and st == 1
        dense *= n
    return True
