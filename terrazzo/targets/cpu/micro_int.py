"""Sums of products of bytes, u8 or i8 weights times i8 activations: what each ISA has for it.

One class an instruction family, all with the interface of `IntDot`; all exact for every input that
our formats have, so what they return is the same.
"""

from __future__ import annotations

from typing import Protocol

from terrazzo.targets.cpu.builder import Function
from terrazzo.targets.cpu.isa import Isa
from terrazzo.targets.cpu.micro_base import splat
from terrazzo.targets.cpu.micro_neon import Sdot

_BIAS = {"q8_0": 128, "q6_k": 32}  # what makes the format's signed codes unsigned


class IntDot(Protocol):
    """Sums of products of 4 neighbouring bytes, in 32-bit lanes; exact for every input our formats
    have.

    `sum_type`: of the running sums, which start at 0, or at -`bias` times the sum of the
    activations: what `mac` sums are codes + bias.
    """

    sum_type: str
    bias: int

    def activation(self, f: Function, p: str) -> list[str]:
        """4 bytes at p, in every lane."""
        ...

    def weight(self, f: Function, codes: str) -> list[str]:
        """An operand of `mac` from <lanes x i32> of 4 codes each."""
        ...

    def mac(self, f: Function, acc: str, w: list[str], a: list[str]) -> str: ...

    def total(self, f: Function, acc: str, sub: str | None) -> str:
        """<lanes x i32> result; `sub`: <lanes x i32> factors of the codes summed in acc."""
        ...


class Vnni:
    """vpdpbusd: u8 codes, so those of signed formats are biased."""

    def __init__(self, name: str, lanes: int) -> None:
        self.name, self.lanes, self.bias = name, lanes, _BIAS.get(name, 0)
        self.vi, self.vb = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
        self.sum_type = self.vi

    def activation(self, f: Function, p: str) -> list[str]:
        word = splat(f, self.lanes, "i32", f.load("i32", p, 1))
        return [f.op(f"bitcast {self.vi} {word} to {self.vb}")]

    def weight(self, f: Function, codes: str) -> list[str]:
        bytes_ = f.op(f"bitcast {self.vi} {codes} to {self.vb}")
        return [f.op(f"xor {self.vb} {bytes_}, splat (i8 -128)") if self.name == "q8_0" else bytes_]

    def mac(self, f: Function, acc: str, w: list[str], a: list[str]) -> str:
        args = [(self.vi, acc), (self.vb, w[0]), (self.vb, a[0])]
        return f.call(self.vi, f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}", args)

    def total(self, f: Function, acc: str, sub: str | None) -> str:
        return acc if sub is None else f.op(f"mul {self.vi} {acc}, {sub}")


class Maddubs:
    """vpmaddubsw on 32 bytes. Its i16 pair sums saturate, so signed codes go in as |w| times a with
    w's sign, and i16 sums run only as far as they cannot overflow: 16 k of 4-bit
    codes (8 * 15 * 127 < 2^15) or of q6_k (8 * 32 * 127), one step of q8_0 (2 * 128 * 127)."""

    def __init__(self, name: str) -> None:
        self.name, self.signed = name, name in _BIAS
        self.sum_type, self.bias = "<8 x i32>" if name == "q8_0" else "<16 x i16>", 0

    def activation(self, f: Function, p: str) -> list[str]:
        word = splat(f, 8, "i32", f.load("i32", p, 1))
        return [f.op(f"bitcast <8 x i32> {word} to <32 x i8>")]

    def weight(self, f: Function, codes: str) -> list[str]:
        w = f.op(f"bitcast <8 x i32> {codes} to <32 x i8>")
        if not self.signed:
            return [w]
        if self.name == "q6_k":
            w = f.op(f"sub <32 x i8> {w}, splat (i8 32)")
        return [w, f.call("<32 x i8>", "llvm.abs.v32i8", [("<32 x i8>", w), ("i1", "false")])]

    def mac(self, f: Function, acc: str, w: list[str], a: list[str]) -> str:
        u, s = w[0], a[0]
        if self.signed:
            u = w[1]
            s = f.call(
                "<32 x i8>", "llvm.x86.avx2.psign.b", [("<32 x i8>", s), ("<32 x i8>", w[0])]
            )
        out = f.call(
            "<16 x i16>", "llvm.x86.avx2.pmadd.ub.sw", [("<32 x i8>", u), ("<32 x i8>", s)]
        )
        if self.name == "q8_0":
            out = self._pairs(f, out, "splat (i16 1)")
        return f.op(f"add {self.sum_type} {acc}, {out}")

    def total(self, f: Function, acc: str, sub: str | None) -> str:
        if self.name == "q8_0":
            return acc
        factor = "splat (i16 1)"
        if sub is not None:  # the factor in both halves of each lane
            low = f.op(f"and <8 x i32> {sub}, splat (i32 65535)")
            both = f.op(f"or <8 x i32> {low}, {f.op(f'shl <8 x i32> {sub}, splat (i32 16)')}")
            factor = f.op(f"bitcast <8 x i32> {both} to <16 x i16>")
        return self._pairs(f, acc, factor)

    @staticmethod
    def _pairs(f: Function, x: str, y: str) -> str:
        return f.call("<8 x i32>", "llvm.x86.avx2.pmadd.wd", [("<16 x i16>", x), ("<16 x i16>", y)])


class Plain:
    """Plain 32-bit lanes, one byte of four at a time: any target."""

    def __init__(self, name: str, lanes: int) -> None:
        self.name, self.lanes, self.vi = name, lanes, f"<{lanes} x i32>"
        self.sum_type, self.bias = self.vi, 0

    def activation(self, f: Function, p: str) -> list[str]:
        out = []
        for b in range(4):
            one = f.op(f"sext i8 {f.load('i8', f.gep(p, b), 1)} to i32")
            out.append(splat(f, self.lanes, "i32", one))
        return out

    def weight(self, f: Function, codes: str) -> list[str]:
        if self.name == "q8_0":
            high = [f.op(f"shl {self.vi} {codes}, splat (i32 {24 - 8 * b})") for b in range(4)]
            return [f.op(f"ashr {self.vi} {x}, splat (i32 24)") for x in high]
        low = [f.op(f"lshr {self.vi} {codes}, splat (i32 {8 * b})") for b in range(4)]
        out = [f.op(f"and {self.vi} {x}, splat (i32 255)") for x in low]
        return (
            [f.op(f"sub {self.vi} {x}, splat (i32 32)") for x in out]
            if self.name == "q6_k"
            else out
        )

    def mac(self, f: Function, acc: str, w: list[str], a: list[str]) -> str:
        for x, y in zip(w, a, strict=True):
            acc = f.op(f"add {self.vi} {acc}, {f.op(f'mul {self.vi} {x}, {y}')}")
        return acc

    def total(self, f: Function, acc: str, sub: str | None) -> str:
        return acc if sub is None else f.op(f"mul {self.vi} {acc}, {sub}")


def int_dot(isa: Isa, name: str) -> IntDot:
    if isa.int_dot in ("sdot", "smmla"):  # one token has no use for smmla's pairs
        return Sdot(name)
    if isa.int_dot == "maddubs":
        return Maddubs(name)
    return (Vnni if isa.int_dot == "vnni" else Plain)(name, isa.int_lanes)
