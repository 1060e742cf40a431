"""A small builder of LLVM IR text: SSA names, counted loops with carried values, 16-lane vectors.

The vector unit is 16 lanes wide everywhere; LLVM splits it into what the chip has. Types are LLVM
type strings, operands are SSA names or literals. Nothing here decides anything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

W = 16
VF = "<16 x float>"
VI = "<16 x i32>"
VB = "<16 x i1>"
LANES = "<" + ", ".join(f"i32 {i}" for i in range(W)) + ">"


def fconst(v: float) -> str:
    """The LLVM literal of `v` rounded to f32 (written as the hexadecimal double it equals)."""
    rounded = struct.unpack("<f", struct.pack("<f", v))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


def fsplat(v: float) -> str:
    return f"splat (float {fconst(v)})"


def isplat(v: int) -> str:
    return f"splat (i32 {v})"


class Function:
    """One function under construction. `decls` collects what it needs at module level: intrinsics,
    constant tables. `scalef`: 16 lanes are scaled by powers of two in one instruction
    (AVX-512)."""

    def __init__(self, name: str, args: Sequence[tuple[str, str]], ret: str = "void",
                 attrs: str = "nounwind", linkage: str = "",
                 scalef: bool = False) -> None:  # fmt: skip
        self.scalef = scalef
        self.name, self.args, self.ret, self.attrs, self.linkage = name, args, ret, attrs, linkage
        self.lines: list[str] = ["entry:"]
        self.current = "entry"
        self.decls: set[str] = set()
        self._n = 0

    def fresh(self, prefix: str = "t") -> str:
        self._n += 1
        return f"{prefix}{self._n}"

    def put(self, line: str) -> None:
        self.lines.append("  " + line)

    def op(self, text: str) -> str:
        name = "%" + self.fresh()
        self.put(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.current = name

    def call(self, ret: str, name: str, args: Sequence[tuple[str, str]], flags: str = "") -> str:
        """Call `@name`; declares it when it is an intrinsic. Returns the result name ("" for
        void)."""
        if name.startswith("llvm."):
            self.decls.add(f"declare {ret} @{name}({', '.join(t for t, _ in args)})")
        given = ", ".join(f"{t} {v}" for t, v in args)
        text = f"call {flags}{' ' if flags else ''}{ret} @{name}({given})"
        if ret == "void":
            self.put(text)
            return ""
        return self.op(text)

    # -- integers -------------------------------------------------------------------------------
    def add(self, a: str | int, b: str | int) -> str:
        if str(a) == "0":
            return str(b)
        if str(b) == "0":
            return str(a)
        if isinstance(a, int) and isinstance(b, int):
            return str(a + b)
        return self.op(f"add nsw i64 {a}, {b}")

    def sub(self, a: str | int, b: str | int) -> str:
        return str(a) if str(b) == "0" else self.op(f"sub nsw i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        if str(a) == "0" or str(b) == "0":
            return "0"
        if str(a) == "1":
            return str(b)
        if str(b) == "1":
            return str(a)
        return self.op(f"mul nsw i64 {a}, {b}")

    def cdiv(self, a: str, b: str | int) -> str:
        return self.op(f"sdiv i64 {self.add(self.add(a, b), -1)}, {b}")

    def roundup(self, a: str | int, m: int) -> str:
        if isinstance(a, int) or a.lstrip("-").isdigit():
            return str((int(a) + m - 1) // m * m)
        return self.op(f"and i64 {self.add(a, m - 1)}, {-m}")

    def eighth(self, a: str) -> str:
        """a / 8, rounded down, of a >= 0."""
        return self.op(f"lshr i64 {a}, 3")

    def min(self, a: str, b: str | int) -> str:
        return self.op(f"select i1 {self.op(f'icmp slt i64 {a}, {b}')}, i64 {a}, i64 {b}")

    def max(self, a: str, b: str | int) -> str:
        return self.op(f"select i1 {self.op(f'icmp sgt i64 {a}, {b}')}, i64 {a}, i64 {b}")

    def wide(self, a: str) -> str:
        """i32 -> i64."""
        return a if a.lstrip("-").isdigit() else self.op(f"sext i32 {a} to i64")

    def narrow(self, a: str) -> str:
        return a if a.lstrip("-").isdigit() else self.op(f"trunc i64 {a} to i32")

    # -- memory ---------------------------------------------------------------------------------
    def gep(self, p: str, offset: str | int, ty: str = "i8") -> str:
        return p if str(offset) == "0" else self.op(f"getelementptr {ty}, ptr {p}, i64 {offset}")

    def load(self, ty: str, p: str, align: int) -> str:
        return self.op(f"load {ty}, ptr {p}, align {align}")

    def store(self, ty: str, v: str, p: str, align: int) -> None:
        self.put(f"store {ty} {v}, ptr {p}, align {align}")

    def splat(self, ty: str, v: str) -> str:
        one = self.op(f"insertelement <{W} x {ty}> poison, {ty} {v}, i32 0")
        return self.op(
            f"shufflevector <{W} x {ty}> {one}, <{W} x {ty}> poison, {VI} zeroinitializer"
        )

    # -- control --------------------------------------------------------------------------------
    def loop(self, start: str | int, end: str | int, step: str | int,
             carried: Sequence[tuple[str, str]],
             body: Callable[[str, list[str]], Sequence[str] | None]) -> list[str]:  # fmt: skip
        """for (iv = start; iv < end; iv += step), with carried (type, initial) values; returns
        their last."""
        head, inside, out = self.fresh("head"), self.fresh("body"), self.fresh("exit")
        before = self.current
        self.put(f"br label %{head}")
        self.label(head)
        iv = "%" + self.fresh("i")
        phis = ["%" + self.fresh("c") for _ in carried]
        at = len(self.lines)
        self.lines += [""] * (1 + len(carried))
        self.put(f"br i1 {self.op(f'icmp slt i64 {iv}, {end}')}, label %{inside}, label %{out}")
        self.label(inside)
        new = body(iv, phis) or []
        nxt = self.op(f"add nsw i64 {iv}, {step}")
        self.lines[at] = f"  {iv} = phi i64 [ {start}, %{before} ], [ {nxt}, %{self.current} ]"
        for n, ((ty, init), phi, v) in enumerate(zip(carried, phis, new, strict=True)):
            self.lines[at + 1 + n] = (
                f"  {phi} = phi {ty} [ {init}, %{before} ], [ {v}, %{self.current} ]"
            )
        self.put(f"br label %{head}")
        self.label(out)
        return phis

    def when(self, cond: str, body: Callable[[], None]) -> None:
        """Run `body` if the i1 `cond` holds."""
        yes, out = self.fresh("then"), self.fresh("endif")
        self.put(f"br i1 {cond}, label %{yes}, label %{out}")
        self.label(yes)
        body()
        self.put(f"br label %{out}")
        self.label(out)

    def text(self) -> str:
        args = ", ".join(f"{t} %{n}" for t, n in self.args)
        linkage = f"{self.linkage} " if self.linkage else ""
        head = f"define {linkage}{self.ret} @{self.name}({args}) {self.attrs} {{"
        return head + "\n" + "\n".join(self.lines) + "\n}\n"
