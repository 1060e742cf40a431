"""Checks in generated code: indices within their dims, finite values, expectations.

A check that fails reports its fault and leaves the phase at once, so nothing outside a tensor is
read or written; the program stops at the barrier behind the phase. All but expectations are strict
mode's: in ordinary mode these functions emit nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from terrazzo.ir.graph import Graph, walk
from terrazzo.ir.ops import Expect, Load, Loop, LoopVar, Stmt, Store
from terrazzo.ir.types import DTYPES, DType
from terrazzo.targets.cpu import faults
from terrazzo.targets.cpu.builder import VI, Function, W
from terrazzo.targets.cpu.frame import Frame

# bits of the exponent, all ones in infinities and NaN
_EXPONENT = {"f32": ("i32", 0x7F800000), "f16": ("i16", 0x7C00), "bf16": ("i16", 0x7F80)}

# The first fault of all threads is kept; the detail is read after the barrier.
_REPORT = f"""
define internal void @report_fault(ptr %table, i32 %fault, i64 %detail) noinline cold {{
  %slot = getelementptr i64, ptr %table, i64 {faults.CONTROL}
  %control = load ptr, ptr %slot
  %word = getelementptr i8, ptr %control, i64 4
  %pair = cmpxchg ptr %word, i32 0, i32 %fault seq_cst seq_cst
  %first = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %first, label %tell, label %out
tell:
  %where = getelementptr i8, ptr %control, i64 8
  store i64 %detail, ptr %where
  br label %out
out:
  ret void
}}"""


class Guards:
    def __init__(self, frame: Frame, graph: Graph, strict: bool) -> None:
        self.fr, self.f, self.graph, self.strict = frame, frame.f, graph, strict
        self.number = {id(s): n for n, s in enumerate(walk(graph.kernel.body))}

    def fail(self, bad: str, fault: int, s: Stmt, dimension: int = -1,
             number: Callable[[], str] | None = None) -> None:  # fmt: skip
        """If the i1 `bad` holds, report and leave the phase. `number`: emits the i64 to name."""
        f: Function = self.f
        f.decls.add(_REPORT)
        failed, fine = f.fresh("fault"), f.fresh("fine")
        weights = '!{!"branch_weights", i32 1, i32 100000}'
        f.put(f"br i1 {bad}, label %{failed}, label %{fine}, !prof {weights}")
        f.label(failed)
        detail = str(faults.pack(self.number[id(s)], dimension))
        if number is not None:
            detail = f.op(f"or i64 {detail}, {f.op(f'and i64 {number()}, 4294967295')}")
        args = [("ptr", "%table"), ("i32", str(fault)), ("i64", detail)]
        f.call("void", "report_fault", args)
        f.put("ret void")
        f.label(fine)

    def expect(self, s: Expect, holds: str) -> None:
        self.fail(self.f.op(f"xor i1 {holds}, true"), faults.EXPECTATION, s)

    # -- strict mode ----------------------------------------------------------------------------
    def dim_of(self, s: Load | Store, dimension: int) -> str:
        return self.fr.dim(self.fr.kernel.param(s.param).dims[dimension])

    def outside(self, at: str, extent: str) -> str:
        return self.f.op(f"icmp uge i64 {at}, {extent}")  # negative ones are large

    def index(self, s: Load | Store, dimension: int, at: str) -> None:
        """The i64 `at` is an index of this dimension."""
        if self.strict:
            bad = self.outside(at, self.dim_of(s, dimension))
            self.fail(bad, faults.BOUNDS, s, dimension, lambda: at)

    def span(self, s: Load | Store, dimension: int, at: str, step: int, count: str) -> None:
        """So are at, at + step, .. of `count`; without any, nothing is read."""
        if not self.strict:
            return
        f, extent = self.f, self.dim_of(s, dimension)
        last = f.add(at, f.mul(f.sub(count, 1), step))
        first_bad = self.outside(at, extent)
        bad = f.op(f"or i1 {first_bad}, {self.outside(last, extent)}")
        bad = f.op(f"and i1 {bad}, {f.op(f'icmp sgt i64 {count}, 0')}")
        self.fail(bad, faults.BOUNDS, s, dimension,
                  lambda: f.op(f"select i1 {first_bad}, i64 {at}, i64 {last}"))  # fmt: skip

    def lanes(self, s: Load | Store, dimension: int, x: str, mask: tuple[str, str] | None) -> None:
        """So are the 16 i32 of `x`, those of the mask."""
        if not self.strict:
            return
        f = self.f
        extent = f.splat("i32", f.narrow(self.dim_of(s, dimension)))
        bits = self._lanes(f.op(f"icmp uge {VI} {x}, {extent}"), mask)

        def first() -> str:
            lane = f.call("i16", "llvm.cttz.i16", [("i16", bits), ("i1", "false")])
            return f.wide(f.op(f"extractelement {VI} {x}, i16 {lane}"))

        self.fail(f.op(f"icmp ne i16 {bits}, 0"), faults.BOUNDS, s, dimension, first)

    def _lanes(self, bad: str, mask: tuple[str, str] | None) -> str:
        """The lanes of <16 x i1> `bad` that count, as i16."""
        f = self.f
        if mask is not None:
            bad = f.op(f"and <{W} x i1> {bad}, {mask[0]}")
        return f.op(f"bitcast <{W} x i1> {bad} to i16")

    def finite(self, s: Store, t: str, x: str, vec: bool, mask: tuple[str, str] | None) -> None:
        """The value `x` (LLVM type t, or 16 of it) that `s` writes is finite, if it is a float."""
        dtype = self.fr.kernel.param(s.param).dtype
        if not self.strict or not isinstance(dtype, DType) or dtype.kind != "float":
            return
        f, (whole, ones) = self.f, _EXPONENT[dtype.name]
        many, from_ = (f"<{W} x {whole}>", f"<{W} x {t}>") if vec else (whole, t)
        if t != whole:
            x = f.op(f"bitcast {from_} {x} to {many}")
        exponent = f"splat ({whole} {ones})" if vec else str(ones)
        bad = f.op(f"icmp eq {many} {f.op(f'and {many} {x}, {exponent}')}, {exponent}")
        if vec:
            bad = f.op(f"icmp ne i16 {self._lanes(bad, mask)}, 0")
        self.fail(bad, faults.NONFINITE, s)

    def finite_row(self, s: Store, row: str, count: str) -> None:
        """So are the f32 row[0 .. count - 1], which `s` writes in a packed format."""
        if not self.strict:
            return
        f, (whole, ones) = self.f, _EXPONENT[DTYPES["f32"].name]

        def one(i: str) -> None:
            x = f.op(f"and i32 {f.load(whole, f.gep(row, i, whole), 4)}, {ones}")
            self.fail(f.op(f"icmp eq i32 {x}, {ones}"), faults.NONFINITE, s)

        self.fr.loop(0, count, one)

    def bounds(self, s: Loop, v: LoopVar, lo: str, hi: str) -> None:
        """The blocks of a loop from lo to hi (i64) lie in the dim."""
        whole = self.graph.op(v.hi)
        full = self.graph.const(v.lo) == 0 and whole is not None and whole.op == "dim"
        full = full and whole is not None and whole.attr("name") == v.dim
        if not self.strict or v.step is None or full or v.dim not in self.fr.known:
            return
        f, extent = self.f, self.fr.dim(v.dim)
        low = f.op(f"icmp slt i64 {lo}, 0")
        bad = f.op(f"or i1 {low}, {f.op(f'icmp sgt i64 {hi}, {extent}')}")
        bad = f.op(f"and i1 {bad}, {f.op(f'icmp slt i64 {lo}, {hi}')}")
        worst = f.op(f"select i1 {low}, i64 {lo}, i64 {f.sub(hi, 1)}")
        self.fail(bad, faults.BOUNDS, s, number=lambda: worst)

    def page(self, s: Load, dimension: int, page: int) -> None:
        """This dimension, the places of a page, holds whole pages."""
        if self.strict:
            extent = self.dim_of(s, dimension)
            bad = self.f.op(f"icmp slt i64 {extent}, {page}")
            self.fail(bad, faults.BOUNDS, s, dimension, lambda: str(page - 1))
