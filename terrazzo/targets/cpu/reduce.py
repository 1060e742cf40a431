"""Reductions along a column loop: 16 running values, folded at the end.

The order of combination depends on the column's extent alone, never on blocks, threads or
neighbours.
"""

from __future__ import annotations

from collections.abc import Callable

from terrazzo.errors import KernelError
from terrazzo.ir.graph import Graph
from terrazzo.ir.types import DType, Value, bf16, f16
from terrazzo.targets.cpu.builder import LANES, VB, VF, VI, W, isplat
from terrazzo.targets.cpu.evaluate import Evaluator
from terrazzo.targets.cpu.frame import Frame, element_type
from terrazzo.targets.cpu.nest import Root


def is_float(v: Value) -> bool:
    """Whether v is f32 (or narrower floats, or a decoded packed value) in a register."""
    return not isinstance(v.dtype, DType) or v.dtype.kind == "float"


def is_unsigned(v: Value) -> bool:
    return isinstance(v.dtype, DType) and v.dtype.kind == "uint"


def as_stored(ev: Evaluator, v: Value, x: str, vec: bool) -> str:
    """A value as buffers and accumulators keep it: floats as f32, integers as i32."""
    if v.dtype in (f16, bf16):
        return ev.widen(x, v, vec)
    if isinstance(v.dtype, DType) and v.dtype.kind != "float" and v.dtype.bits < 32:
        t = "i1" if v.dtype.kind == "bool" else element_type(v.dtype)
        ext = "sext" if v.dtype.kind == "int" else "zext"
        return ev.f.op(f"{ext} {f'<{W} x {t}>' if vec else t} {x} to {VI if vec else 'i32'}")
    return x


class Reducer:
    """Emits the parts of a reduction: start, one chunk's step, the fold of 16 lanes to one."""

    def __init__(self, frame: Frame, ev: Evaluator, graph: Graph) -> None:
        self.fr, self.f, self.ev, self.graph = frame, frame.f, ev, graph

    def kind_of(self, r: Root) -> tuple[str, Value]:
        op = self.graph.op(r.value)
        if op is None:
            raise KernelError("internal: a reduction without its operation")
        return str(op.attr("kind")), op.args[0]

    def attr(self, r: Root, name: str) -> object:
        op = self.graph.op(r.value)
        return op.attr(name) if op is not None else None

    def identity(self, r: Root) -> list[tuple[str, str]]:
        kind, x = self.kind_of(r)
        fl = is_float(x)
        if kind == "sum":
            return [(VF if fl else VI, "zeroinitializer")]
        low = kind in ("max", "argmax")
        if fl:
            value = (
                "splat (float 0xFFF0000000000000)" if low else "splat (float 0x7FF0000000000000)"
            )
        else:
            bits = x.dtype.bits if isinstance(x.dtype, DType) else 32
            signed = isinstance(x.dtype, DType) and x.dtype.kind == "int"
            least = -(1 << bits - 1) if signed else 0
            most = (1 << bits - 1) - 1 if signed else (1 << bits) - 1
            value = isplat(least if low else (-1 if most == 2**32 - 1 else most))
        first = [(VF if fl else VI, value)]
        if kind != "argmax":
            return first
        # Each lane starts with its first column: if nothing is greater, the lowest one is right.
        start = self.f.splat("i32", self.f.narrow(self.fr.start(str(self.attr(r, "axis")))))
        return [*first, (VI, self.f.op(f"add {VI} {start}, {LANES}"))]

    def combine(self, r: Root, acc: list[str], c: str, mask: tuple[str, str] | None) -> list[str]:
        """Lane l of the accumulator takes columns l, l + 16, ... in order: the order depends on
        nothing but the extent."""
        f = self.f
        kind, v = self.kind_of(r)
        t, start = self.identity(r)[0]
        x = as_stored(self.ev, v, self.ev.vector(v), True)
        if mask is not None:
            x = f.op(f"select {VB} {mask[0]}, {t} {x}, {t} {start}")
        if kind != "argmax":
            return [self.two(kind, v, acc[0], x)]
        begin = f.splat("i32", f.narrow(f.add(self.fr.start(self.ev.col or ""), c)))
        best, at = acc[0], f.op(f"add {VI} {begin}, {LANES}")
        if t != VF:
            keep = [f.op(f"icmp {'ule' if is_unsigned(v) else 'sle'} {t} {x}, {best}")]
        else:  # two selects: `and` of masks is slow where a register holds 8 lanes
            keep = [f.op(f"fcmp ole {t} {x}, {best}"), f.op(f"fcmp uno {t} {best}, {best}")]
        for no in keep:
            x = f.op(f"select {VB} {no}, {t} {best}, {t} {x}")
            at = f.op(f"select {VB} {no}, {VI} {acc[1]}, {VI} {at}")
        return [x, at]

    def greater(self, v: Value, t: str, x: str, y: str) -> str:
        """x > y on 16 lanes, a NaN being greater than every number (the first one is found)."""
        f = self.f
        if t != VF:
            return f.op(f"icmp {'ugt' if is_unsigned(v) else 'sgt'} {t} {x}, {y}")
        above = f.op(f"fcmp ugt {t} {x}, {y}")
        return f.op(f"and {VB} {above}, {f.op(f'fcmp ord {t} {y}, {y}')}")

    def two(self, kind: str, v: Value, a: str, b: str) -> str:
        """One combining step on 16 lanes. max and min let a NaN through."""
        f = self.f
        if not is_float(v):
            if kind == "sum":
                return f.op(f"add {VI} {a}, {b}")
            cmp = ("u" if is_unsigned(v) else "s") + ("gt" if kind == "max" else "lt")
            return f.op(f"select {VB} {f.op(f'icmp {cmp} {VI} {b}, {a}')}, {VI} {b}, {VI} {a}")
        if kind == "sum":
            return f.op(f"fadd {VF} {a}, {b}")
        order = "ogt" if kind == "max" else "olt"  # unordered: a NaN in b is taken
        y = f.op(f"select {VB} {f.op(f'fcmp {order} {VF} {a}, {b}')}, {VF} {a}, {VF} {b}")
        return f.op(f"select {VB} {f.op(f'fcmp uno {VF} {a}, {a}')}, {VF} {a}, {VF} {y}")

    def join(self, r: Root) -> Callable[[str, str], str] | None:
        """Combines two running values, where their order makes no difference; else None."""
        kind, v = self.kind_of(r)
        if kind not in ("max", "min"):
            return None
        return lambda a, b: self.two(kind, v, a, b)

    def fold(self, r: Root, acc: list[str]) -> str:
        """16 lanes to one by halves: (l, l + 8), then 4, 2, 1 apart."""
        f = self.f
        kind, v = self.kind_of(r)
        t = self.identity(r)[0][0]
        x = acc[0]
        half = 8
        index = acc[1] if kind == "argmax" else ""
        while half:
            pick = ", ".join(f"i32 {(i + half) % W}" for i in range(W))
            y = f.op(f"shufflevector {t} {x}, {t} {x}, {VI} <{pick}>")
            if kind == "argmax":
                other = f.op(f"shufflevector {VI} {index}, {VI} {index}, {VI} <{pick}>")
                gt = self.greater(v, t, y, x)
                eq = f.op(f"{'fcmp ueq' if t == VF else 'icmp eq'} {t} {y}, {x}")
                if t == VF:  # equal, or both NaN
                    eq = f.op(f"and {VB} {eq}, {f.op(f'xor {VB} {gt}, splat (i1 true)')}")
                    one = f.op(f"fcmp uno {t} {x}, {x}")
                    other_nan = f.op(f"fcmp uno {t} {y}, {y}")
                    same = f.op(f"icmp eq {VB} {one}, {other_nan}")
                    eq = f.op(f"and {VB} {eq}, {same}")
                lower = f.op(f"and {VB} {eq}, {f.op(f'icmp ult {VI} {other}, {index}')}")
                take = f.op(f"or {VB} {gt}, {lower}")
                index = f.op(f"select {VB} {take}, {VI} {other}, {VI} {index}")
                x = f.op(f"select {VB} {take}, {t} {y}, {t} {x}")
            else:
                x = self.two(kind, v, x, y)
            half //= 2
        if kind == "argmax":
            return f.op(f"extractelement {VI} {index}, i32 0")
        out = f.op(f"extractelement {t} {x}, i32 0")
        dtype = r.value.dtype
        if isinstance(dtype, DType) and dtype.kind != "float" and dtype.bits < 32:
            return f.op(f"trunc i32 {out} to {element_type(dtype)}")
        if r.value.dtype in (f16, bf16):  # buffers keep the rounded value as f32
            return self.ev.round_to(out, r.value, False)
        return out
