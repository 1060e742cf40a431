"""Evaluation of tile values at a point: the current row, and 16 columns (or one) of the column
axis."""

from __future__ import annotations

from terrazzo.errors import KernelError
from terrazzo.ir.graph import Graph
from terrazzo.ir.ops import Load, LoopVar, Op
from terrazzo.ir.types import DType, Format, Value, bf16, bool_, f16, f32, i32, u32
from terrazzo.targets.cpu import vecmath
from terrazzo.targets.cpu.builder import LANES, VI, W, fconst
from terrazzo.targets.cpu.frame import Frame, Slot, register_type
from terrazzo.targets.cpu.guards import Guards
from terrazzo.targets.cpu.memory import Memory
from terrazzo.targets.cpu.nest import Buf

ARITH = {"add": ("fadd", "add"), "sub": ("fsub", "sub"), "mul": ("fmul", "mul")}
BITS = {"and": "and", "or": "or", "xor": "xor", "shl": "shl"}
ORDER = {
    "lt": ("olt", "slt", "ult"),
    "le": ("ole", "sle", "ule"),
    "gt": ("ogt", "sgt", "ugt"),
    "ge": ("oge", "sge", "uge"),
    "eq": ("oeq", "eq", "eq"),
    "ne": ("une", "ne", "ne"),
}


class Evaluator:
    """`col` is the column axis in flight, `chunk` its 16-lane position (i64) and `mask` a tail's
    lanes: (i1 vector, number of lanes as i64) or None for a full chunk; `around`: tensors
    whose contiguous stores bypass the caches (see around.py)."""

    def __init__(self, frame: Frame, graph: Graph, helpers: set[str], strict: bool) -> None:
        self.fr, self.f, self.graph, self.helpers = frame, frame.f, graph, helpers
        self.guards = Guards(frame, graph, strict)
        self.buf_of: dict[int, Buf] = {}
        self.holds: set[int] = set()  # conditions that are known to be true here
        self.col: str | None = None
        self.chunk: str | None = None
        self.mask: tuple[str, str] | None = None
        self.around: frozenset[str] = frozenset()
        self.memory = Memory(frame, self, self.guards)

    # -- domains --------------------------------------------------------------------------------
    def is_vector(self, v: Value) -> bool:
        return self.col is not None and self.col in v.axes

    def lanes(self, left: str) -> tuple[str, str]:
        """The mask of a tail of `left` columns (i64; all lanes if 16 or more, none if negative)."""
        f = self.f
        n = f.splat("i32", f.narrow(left))
        return f.op(f"icmp sgt {VI} {n}, {LANES}"), left

    def scalar(self, v: Value) -> str:
        return self.ev(v)

    def vector(self, v: Value) -> str:
        """v on 16 lanes, splat if it does not vary along the column."""
        if self.graph.const(v) is not None:
            return self.constant_lanes(v)
        if self.is_vector(v):
            return self.ev(v)
        key = ("splat", v.id)
        got = self.fr.get(key)
        return got or self.fr.keep(key, self.f.splat(register_type(v, False), self.ev(v)))

    def constant_lanes(self, v: Value) -> str:
        c = self.graph.const(v)
        if v.dtype == f32:
            return f"splat (float {fconst(float(c or 0))})"
        if v.dtype in (i32, u32):
            return f"splat (i32 {int(c or 0)})"
        return self.f.splat(register_type(v, False), self.compute(v, False))

    def ev(self, v: Value) -> str:
        vec = self.is_vector(v)
        key = (v.id, self.chunk if vec else None)
        got = self.fr.get(key)
        if got is not None:
            return got
        return self.fr.keep(key, self.compute(v, vec))

    def arg(self, v: Value, vec: bool) -> str:
        return self.vector(v) if vec else self.ev(v)

    # -- values ---------------------------------------------------------------------------------
    def compute(self, v: Value, vec: bool) -> str:
        f = self.f
        if v.id in self.buf_of:
            return self.from_buffer(v, self.buf_of[v.id], vec)
        d = self.graph.defs[v.id]
        if isinstance(d, Load):
            return self.memory.load(d, vec)
        if not isinstance(d, Op):
            kind = "loop variable" if isinstance(d, LoopVar) else "carried value"
            raise KernelError(f"internal: {kind} {v} has no place")
        a = d.args
        if d.op == "const":
            value = d.attr("value")
            if vec:
                return self.constant_lanes(v)
            if v.dtype == f32:
                return fconst(float(value))  # type: ignore[arg-type]
            if v.dtype in (f16, bf16):
                return self.round_to(fconst(float(value)), v, False)  # type: ignore[arg-type]
            return ("true" if value else "false") if v.dtype == bool_ else str(int(value))  # type: ignore[call-overload]
        if d.op == "dim":
            return f.narrow(self.fr.dim(str(d.attr("name"))))
        if d.op == "arg":
            return self.fr.args[Slot("scalar", str(d.attr("name")))]
        if d.op == "start":
            return f.narrow(self.fr.start(str(d.attr("axis"))))
        if d.op == "extent":
            return f.narrow(self.fr.extent(str(d.attr("axis"))))
        if d.op == "index":
            axis = str(d.attr("axis"))
            at = f.add(
                self.fr.start(axis),
                self.chunk if vec and self.chunk else self.fr.position.get(axis, "0"),
            )
            if not vec:
                return f.narrow(at)
            return f.op(f"add {VI} {f.splat('i32', f.narrow(at))}, {LANES}")
        if d.op == "where" and a[0].id in self.holds:
            return self.arg(a[1], vec)
        if d.op == "where":
            c, x, y = (self.arg(z, vec) for z in a)
            t = register_type(v, vec)
            ct = register_type(a[0], vec)
            return f.op(f"select {ct} {c}, {t} {x}, {t} {y}")
        if d.op == "cast":
            return self.cast(self.arg(a[0], vec), a[0], v, vec)
        if d.op == "bitcast":
            x = f"{register_type(a[0], vec)} {self.arg(a[0], vec)}"
            return f.op(f"bitcast {x} to {register_type(v, vec)}")
        args = [self.arg(x, vec) for x in a]
        if a[0].dtype in (f16, bf16):
            wide = [self.widen(x, z, vec) for x, z in zip(args, a, strict=True)]
            y = self.elementwise(d, f32, wide, vec)
            return y if v.dtype == bool_ else self.round_to(y, v, vec)
        if not isinstance(a[0].dtype, DType):
            raise KernelError(
                f"{d.op} of a packed value {a[0].type}: decode it first with .to(f32)"
            )
        return self.elementwise(d, a[0].dtype, args, vec)

    def elementwise(self, d: Op, dtype: DType, x: list[str], vec: bool) -> str:
        f = self.f
        fl = dtype.kind == "float"
        t = {"float": "float", "bool": "i1"}.get(dtype.kind, "i32")
        if dtype.bits == 8 and dtype.kind in ("int", "uint"):
            t = "i8"
        ty = f"<{W} x {t}>" if vec else t
        op = d.op
        if op in ARITH:
            return f.op(f"{ARITH[op][0 if fl else 1]} {ty} {x[0]}, {x[1]}")
        if op in BITS:
            return f.op(f"{BITS[op]} {ty} {x[0]}, {x[1]}")
        if op == "shr":
            return f.op(f"{'lshr' if dtype.kind == 'uint' else 'ashr'} {ty} {x[0]}, {x[1]}")
        if op == "not":
            ones = (
                ("splat (i1 true)" if vec else "true")
                if t == "i1"
                else (f"splat ({t} -1)" if vec else "-1")
            )
            return f.op(f"xor {ty} {x[0]}, {ones}")
        if op in ORDER:
            pick = 0 if fl else (2 if dtype.kind != "int" else 1)
            return f.op(f"{'fcmp' if fl else 'icmp'} {ORDER[op][pick]} {ty} {x[0]}, {x[1]}")
        if op in ("max", "min"):
            gt = ("ogt" if fl else "ugt" if dtype.kind == "uint" else "sgt") if op == "max" else (
                "olt" if fl else "ult" if dtype.kind == "uint" else "slt")  # fmt: skip
            cmp = f.op(f"{'fcmp' if fl else 'icmp'} {gt} {ty} {x[0]}, {x[1]}")
            ct = f"<{W} x i1>" if vec else "i1"
            y = f.op(f"select {ct} {cmp}, {ty} {x[0]}, {ty} {x[1]}")
            if fl:  # a NaN in either argument stays: y is x[1] then; take x[0] if that is the NaN
                bad = f.op(f"fcmp uno {ty} {x[0]}, {x[0]}")
                y = f.op(f"select {ct} {bad}, {ty} {x[0]}, {ty} {y}")
            return y
        if op == "div":
            return f.op(f"fdiv {ty} {x[0]}, {x[1]}")
        if op == "neg":
            return (
                f.op(f"fneg {ty} {x[0]}")
                if fl
                else f.op(f"sub {ty} zeroinitializer, {x[0]}" if vec else f"sub {ty} 0, {x[0]}")
            )
        if op in ("floordiv", "mod"):
            return self.floor_division(op, d, dtype, x, vec, t)
        if op == "umulhi":
            w = f"<{W} x i64>" if vec else "i64"
            p = f.op(
                f"mul {w} {f.op(f'zext {ty} {x[0]} to {w}')}, {f.op(f'zext {ty} {x[1]} to {w}')}"
            )
            return f.op(
                f"trunc {w} {f.op(f'lshr {w} {p}, ' + ('splat (i64 32)' if vec else '32'))} to {ty}"
            )
        if op == "fma":
            return f.call(ty, "llvm.fma." + ("v16f32" if vec else "f32"), [(ty, y) for y in x])
        if op == "abs" and not fl:
            if dtype.kind == "uint":
                return x[0]
            name = f"llvm.abs.{f'v{W}' if vec else ''}{t}"
            return f.call(ty, name, [(ty, x[0]), ("i1", "false")])
        if op in vecmath.FUNCTIONS and fl:
            fn = vecmath.FUNCTIONS[op]
            if vec:
                return fn(f, x[0])
            return f.op(f"extractelement <{W} x float> {fn(f, f.splat('float', x[0]))}, i32 0")
        raise KernelError(f"the CPU target has no {op} on {dtype}")

    def floor_division(self, op: str, d: Op, dtype: DType, x: list[str], vec: bool, t: str) -> str:
        """Rounds towards minus infinity, as Python does; powers of two by shift and mask.

        Never traps, since lanes beyond a tail hold zeros: x // 0 is x, x % 0 is 0, and the lowest
        number // -1 wraps to itself."""
        f, (a, y) = self.f, x
        ty, ct = (f"<{W} x {t}>", f"<{W} x i1>") if vec else (t, "i1")

        def lit(n: int) -> str:
            return f"splat ({t} {n})" if vec else str(n)

        c = self.graph.const(d.args[1])
        n = None if c is None else int(c)
        if n is not None and n > 0 and n & (n - 1) == 0:
            if op == "mod":
                return f.op(f"and {ty} {a}, {lit(n - 1)}")
            shift = "lshr" if dtype.kind == "uint" else "ashr"
            return f.op(f"{shift} {ty} {a}, {lit(n.bit_length() - 1)}")
        if not n:
            y = f.op(f"select {ct} {f.op(f'icmp eq {ty} {y}, {lit(0)}')}, {ty} {lit(1)}, {ty} {y}")
        if dtype.kind == "uint":
            return f.op(f"{'udiv' if op == 'floordiv' else 'urem'} {ty} {a}, {y}")
        wrap = f.op(f"icmp eq {ty} {y}, {lit(-1)}") if n in (None, -1) else ""
        by = f.op(f"select {ct} {wrap}, {ty} {lit(1)}, {ty} {y}") if wrap else y
        r = f.op(f"srem {ty} {a}, {by}")
        mixed = f.op(f"icmp slt {ty} {f.op(f'xor {ty} {r}, {by}')}, {lit(0)}")
        off = f.op(f"and {ct} {mixed}, {f.op(f'icmp ne {ty} {r}, {lit(0)}')}")
        if op == "mod":
            return f.op(f"select {ct} {off}, {ty} {f.op(f'add {ty} {r}, {by}')}, {ty} {r}")
        q = f.op(f"sdiv {ty} {a}, {by}")
        q = f.op(f"select {ct} {off}, {ty} {f.op(f'sub {ty} {q}, {lit(1)}')}, {ty} {q}")
        minus = f.op(f"sub {ty} {lit(0)}, {a}") if wrap else ""
        return f.op(f"select {ct} {wrap}, {ty} {minus}, {ty} {q}") if wrap else q

    # -- conversions ----------------------------------------------------------------------------
    def widen(self, x: str, v: Value, vec: bool) -> str:
        """f16 or bf16 -> f32."""
        f = self.f
        if v.dtype == f16:
            return f.op(
                f"fpext {register_type(v, vec)} {x} to {'<16 x float>' if vec else 'float'}"
            )
        if v.dtype == bf16:
            if vec:
                return vecmath.bf16_to_f32(f, x)
            wide = f.op(f"zext i16 {x} to i32")
            return f.op(f"bitcast i32 {f.op(f'shl i32 {wide}, 16')} to float")
        return x

    def round_to(self, x: str, v: Value, vec: bool) -> str:
        """f32 -> f16 or bf16, to nearest even."""
        f = self.f
        if v.dtype == f16:
            return f.op(
                f"fptrunc {'<16 x float>' if vec else 'float'} {x} to {register_type(v, vec)}"
            )
        if v.dtype == bf16:
            y = vecmath.f32_to_bf16(f, x if vec else f.splat("float", x))
            return y if vec else f.op(f"extractelement <16 x i16> {y}, i32 0")
        return x

    def cast(self, x: str, src: Value, dst: Value, vec: bool) -> str:
        f, a, b = self.f, src.dtype, dst.dtype
        if isinstance(a, Format) and a.name == "a8" and b == f32:
            return x
        if not isinstance(a, DType) or not isinstance(b, DType):
            raise KernelError(f"internal: cast {src.type} to {dst.type} outside a decode")
        if a == b:
            return x
        ts, td = register_type(src, vec), register_type(dst, vec)
        if a.kind == "float":
            x = self.widen(x, src, vec)
            wide = "<16 x float>" if vec else "float"
            if b.kind == "float":
                return self.round_to(x, dst, vec)
            if b == bool_:
                return f.op(f"fcmp une {wide} {x}, {'zeroinitializer' if vec else fconst(0.0)}")
            name = f"llvm.fpto{'u' if b.kind == 'uint' else 's'}i.sat"  # NaN gives 0
            many = f"v{W}" if vec else ""
            return f.call(td, f"{name}.{many}i{b.bits}.{many}f32", [(wide, x)])
        if b.kind == "float":
            wide = "<16 x float>" if vec else "float"
            y = f.op(f"{'sitofp' if a.kind == 'int' else 'uitofp'} {ts} {x} to {wide}")
            return self.round_to(y, dst, vec)
        if b == bool_:
            return f.op(f"icmp ne {ts} {x}, {'zeroinitializer' if vec else '0'}")
        bits = 1 if a == bool_ else a.bits
        if bits == b.bits:
            return x
        if bits > b.bits:
            return f.op(f"trunc {ts} {x} to {td}")
        return f.op(f"{'sext' if a.kind == 'int' else 'zext'} {ts} {x} to {td}")

    # -- buffers --------------------------------------------------------------------------------
    def from_buffer(self, v: Value, b: Buf, vec: bool) -> str:
        """Buffers keep floats as f32 (exact for f16, bf16) and integers as i32."""
        f = self.f
        is_int = isinstance(v.dtype, DType) and v.dtype.kind != "float"
        t = "i32" if is_int else "float"
        if vec:
            if not b.axes or b.axes[-1] != self.col:
                return self.lanes_from_buffer(v, b, t)
            x = f.load(f"<{W} x {t}>", f.gep(self.fr.row_of(b), self.chunk or "0", "float"), 4)
        else:
            x = f.load(t, self.fr.element_of(b), 4)
        if v.dtype in (f16, bf16):
            return self.round_to(x, v, vec)
        if isinstance(v.dtype, DType) and is_int and v.dtype.bits < 32:
            return f.op(f"trunc {f'<{W} x i32>' if vec else 'i32'} {x} to {register_type(v, vec)}")
        return x

    def lanes_from_buffer(self, v: Value, b: Buf, t: str) -> str:
        """The column runs across rows of the buffer: gather 16 elements."""
        f, out = self.f, "poison"
        had = self.fr.position.get(self.col or "")
        for lane in range(W):
            at = f.add(self.chunk or "0", lane)
            if self.mask is not None:
                at = f.min(at, f.sub(self.fr.extent(self.col or ""), 1))
            self.fr.position[self.col or ""] = at
            x = f.load(t, self.fr.element_of(b), 4)
            out = f.op(f"insertelement <{W} x {t}> {out}, {t} {x}, i32 {lane}")
        self.fr.position.pop(self.col or "", None)
        if had is not None:
            self.fr.position[self.col or ""] = had
        return out
