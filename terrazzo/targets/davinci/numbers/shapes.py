"""Which sizes the views of an instruction must have."""

from __future__ import annotations

from collections.abc import Sequence

from terrazzo.targets.davinci.program import Instr

Shape = tuple[int, ...]


def disagreement(s: Instr, out: Shape, ins: Sequence[Shape | None]) -> str:
    """What is wrong with the sizes of an instruction's operands (None: a scalar); "" if nothing."""
    shapes = [x for x in ins if x is not None]
    if any(len(x) != len(out) for x in shapes):
        return f"{s.op}: operands of {_list([out, *shapes])} differ in their number of dimensions"
    if s.op in ("mmad", "mmad_l1"):
        return _product(s, out, shapes)
    if s.op in ("l1_to_l0a", "l1_to_l0b", "nd2nz", "load_nz", "fixpipe", "load", "store"):
        source = shapes[0][::-1] if s.attr("transpose") else shapes[0]
        return "" if source == out else f"{s.op}: source {_of(source)} and result {_of(out)} differ"
    if s.op == "vreduce":
        axis = s.attr("axis", -1)
        assert isinstance(axis, int)
        one = list(shapes[0])
        one[axis] = 1
        good = tuple(one) == out
        return "" if good else f"vreduce: {_of(shapes[0])} does not reduce to {_of(out)}"
    for x in shapes:
        if any(n not in (1, m) for n, m in zip(x, out, strict=True)):
            return f"{s.op}: operand {_of(x)} does not broadcast to the result {_of(out)}"
    return ""


def _product(s: Instr, out: Shape, shapes: list[Shape]) -> str:
    if len(out) != 2 or len(shapes) != 2:
        return f"{s.op}: takes two matrices, has {_list(shapes)} for {_of(out)}"
    a = shapes[0][::-1] if s.attr("transpose_a") else shapes[0]
    b = shapes[1][::-1] if s.attr("transpose_b") else shapes[1]
    if a[1] == b[0] and (a[0], b[1]) == out:
        return ""
    return f"{s.op}: {_of(a)} times {_of(b)} does not give {_of(out)}"


def _of(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _list(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(_of, shapes))
