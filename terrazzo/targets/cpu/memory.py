"""Reads and writes of global memory at a point: the current row, and 16 columns (or one) of the
column axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from terrazzo.errors import KernelError
from terrazzo.ir.ops import Block, Load, Store, Whole
from terrazzo.ir.pages import whole_pages
from terrazzo.ir.types import DType, Format, Value, bool_
from terrazzo.targets.cpu.access import affine
from terrazzo.targets.cpu.builder import VI, Function, W
from terrazzo.targets.cpu.frame import Frame, element_type, register_type
from terrazzo.targets.cpu.guards import Guards

if TYPE_CHECKING:
    from terrazzo.targets.cpu.evaluate import Evaluator

PIECE = 16  # bytes of one store around the caches, and what it is aligned to


class Memory:
    """Loads and stores of `ev`, at its column, chunk and mask."""

    def __init__(self, frame: Frame, ev: Evaluator, guards: Guards) -> None:
        self.fr, self.f, self.ev, self.guards = frame, frame.f, ev, guards

    def place_of(self, s: Load | Store) -> tuple[str, str | int | None]:
        """(pointer at column position 0 of the current row, stride in elements along the column).

        The stride is None if an index entry varies along the column in a way that is not affine."""
        f = self.f
        key = ("place", s, self.ev.col)
        known = self.fr.get(key)
        if known is not None:
            return known
        dtype = self.kernel_dtype(s.param)
        stride: str | int | None = 0
        offset = "0"
        for dim, entry in enumerate(s.index):
            by = self.fr.stride(s.param, dim)
            if isinstance(entry, (Whole, Block)):
                axis = entry.axis
                at = self.fr.start(axis)
                if axis == self.ev.col:
                    stride = by if stride == 0 else f.add(str(stride), by)
                else:
                    at = f.add(at, self.fr.position.get(axis, "0"))
            elif self.ev.col is not None and self.ev.col in entry.axes:
                form = affine(self.ev.graph, entry)
                if form is None:
                    stride = None
                    continue
                coef = form.coef(self.ev.col)
                if stride is not None:
                    step = f.mul(by, coef)
                    stride = step if stride == 0 else f.add(str(stride), step)
                at = str(form.const)
                for c, x in form.scalars:
                    at = f.add(at, f.mul(f.wide(self.ev.ev(x)), c))
                for c, axis in form.axes:
                    here = self.fr.start(axis)
                    if axis != self.ev.col:
                        here = f.add(here, self.fr.position.get(axis, "0"))
                    at = f.add(at, f.mul(here, c))
                count = self.fr.extent(self.ev.col)
                self.guards.span(s, dim, at, coef, count)
            else:
                at = f.wide(self.ev.ev(entry))
                self.guards.index(s, dim, at)
            offset = f.add(offset, f.mul(at, by))
        pointer = f.gep(self.fr.pointer(s.param), offset, element_type(dtype))
        return self.fr.keep(key, (pointer, stride))

    def kernel_dtype(self, param: str) -> DType | Format:
        return self.fr.kernel.param(param).dtype

    def lane_pointers(self, s: Load | Store) -> list[str]:
        """One pointer a lane, for accesses that are not affine along the column."""
        f, base = self.f, self.place_of(s)[0]
        total: list[str] = ["0"] * W
        for dim, entry in enumerate(s.index):
            if (
                isinstance(entry, Value)
                and self.ev.col in entry.axes
                and affine(self.ev.graph, entry) is None
            ):
                x, by = self.ev.vector(entry), self.fr.stride(s.param, dim)
                self.guards.lanes(s, dim, x, self.ev.mask)
                for lane in range(W):
                    i = f.wide(f.op(f"extractelement {VI} {x}, i32 {lane}"))
                    total[lane] = f.add(total[lane], f.mul(i, by))
            elif isinstance(entry, (Whole, Block)) and entry.axis == self.ev.col:
                for lane in range(W):
                    at = f.mul(f.add(self.ev.chunk or "0", lane), self.fr.stride(s.param, dim))
                    total[lane] = f.add(total[lane], at)
            elif isinstance(entry, Value) and self.ev.col in entry.axes:
                form = affine(self.ev.graph, entry)
                coef = form.coef(self.ev.col or "") if form else 0
                for lane in range(W):
                    at = f.mul(
                        f.mul(f.add(self.ev.chunk or "0", lane), coef), self.fr.stride(s.param, dim)
                    )
                    total[lane] = f.add(total[lane], at)
        t = element_type(self.kernel_dtype(s.param))
        return [f.gep(base, off, t) for off in total]

    def load(self, s: Load, vec: bool) -> str:
        f = self.f
        fmt = self.kernel_dtype(s.param)
        if isinstance(fmt, Format) and fmt.name == "a8":
            return self.load_a8(s, vec)
        if isinstance(fmt, Format):
            raise KernelError(
                f"a packed tensor ({s.param}) is read by `@` or .to(f32) of whole rows"
            )
        t = element_type(self.kernel_dtype(s.param))
        size = _bytes(t)
        bool_in = s.result.dtype == bool_
        if not vec:
            x = f.load(t, self.place_of(s)[0], size)
            return f.op(f"icmp ne i8 {x}, 0") if bool_in else x
        if self.within_page(s):
            x = masked_load(f, self.ev.helpers, t, self.first_lane(s), self.ev.mask)
            return f.op(f"icmp ne <{W} x i8> {x}, zeroinitializer") if bool_in else x
        p, stride = self.place_of(s)
        if stride is None:
            x = self.load_lanes(t, self.lane_pointers(s))
        elif str(stride) == "1":
            x = masked_load(f, self.ev.helpers, t, f.gep(p, self.ev.chunk or "0", t), self.ev.mask)
        else:
            at = f.mul(self.ev.chunk or "0", stride)
            if str(stride) == "2" and self.ev.mask is None:
                x = load_even(f, t, f.gep(p, at, t))
            else:
                ps = [f.gep(p, f.add(at, f.mul(str(stride), lane)), t) for lane in range(W)]
                x = self.load_lanes(t, ps)
        return f.op(f"icmp ne <{W} x i8> {x}, zeroinitializer") if bool_in else x

    def within_page(self, s: Load) -> bool:
        """Whether 16 columns lie side by side in a page: chunks start at multiples of 16, blocks
        of the axis at pages."""
        p = whole_pages(self.ev.graph, s)
        if p is None or p.axis != self.ev.col or p.page % W or p.lane_dim != len(s.index) - 1:
            return False
        self.guards.page(s, p.lane_dim, p.page)
        return True

    def first_lane(self, s: Load) -> str:
        """Where the chunk's first column lies."""
        ev = self.ev
        col, ev.col = ev.col, None
        self.fr.position[str(col)] = ev.chunk or "0"
        self.fr.scopes.append({})
        pointer = self.place_of(s)[0]
        self.fr.scopes.pop()
        del self.fr.position[str(col)]
        ev.col = col
        return pointer

    def load_a8(self, s: Load, vec: bool) -> str:
        """q · scale in f32, of 16 columns with one scale (chunks start at multiples of 16) or of
        one."""
        f, dim = self.f, self.fr.dim(self.fr.kernel.param(s.param).dims[-1])
        last = s.index[-1]
        if not isinstance(last, (Whole, Block)):
            raise KernelError(
                f"{s.param}: an a8 row is read in order", "index its last axis by a block or `:`"
            )
        p, _ = self.place_of(s)
        start = self.fr.start(last.axis)
        here = (self.ev.chunk or "0") if vec else "0"
        column = f.add(start, here if vec else self.fr.position.get(last.axis, "0"))
        group = f.op(f"lshr i64 {column}, 4")
        row = f.gep(p, f.sub("0", start) if vec else f.op(f"sub i64 0, {column}"))
        scale = f.load("float", f.gep(f.gep(row, dim), group, "float"), 4)
        if not vec:
            q = f.load("i8", p, 1)
            return f.op(f"fmul float {f.op(f'sitofp i8 {q} to float')}, {scale}")
        q = masked_load(f, self.ev.helpers, "i8", f.gep(p, here), self.ev.mask)
        wide = f.op(f"sitofp <{W} x i8> {q} to <{W} x float>")
        return f.op(f"fmul <{W} x float> {wide}, {f.splat('float', scale)}")

    def load_lanes(self, t: str, pointers: list[str]) -> str:
        """Masked lanes read what the first valid lane reads, so that nothing outside is touched."""
        f, out = self.f, "zeroinitializer"
        for lane, p in enumerate(pointers):
            if self.ev.mask is not None and lane:
                ok = f.op(f"icmp slt i64 {lane}, {self.ev.mask[1]}")
                p = f.op(f"select i1 {ok}, ptr {p}, ptr {pointers[0]}")
            out = f.op(
                f"insertelement <{W} x {t}> {out}, {t} {f.load(t, p, _bytes(t))}, i32 {lane}"
            )
        return out

    def store(self, s: Store) -> None:
        """Write the store's value at the current point."""
        f = self.f
        t = element_type(self.kernel_dtype(s.param))
        vec = self.ev.col is not None and any(
            (isinstance(e, (Whole, Block)) and e.axis == self.ev.col)
            or (isinstance(e, Value) and self.ev.col in e.axes)
            for e in s.index
        )
        x = self.ev.vector(s.value) if vec else self.ev.ev(s.value)
        if s.value.dtype == bool_:
            x = f.op(f"zext {register_type(s.value, vec)} {x} to {f'<{W} x i8>' if vec else 'i8'}")
        p, stride = self.place_of(s)
        self.guards.finite(s, t, x, vec, self.ev.mask if vec else None)
        if not vec:
            f.store(t, x, p, _bytes(t))
            return
        if str(stride) == "1" and s.param in self.ev.around and self.ev.mask is None:
            self.store_around(t, x, f.gep(p, self.ev.chunk or "0", t))
            return
        if str(stride) == "1":
            masked_store(f, self.ev.helpers, t, x, f.gep(p, self.ev.chunk or "0", t), self.ev.mask)
            return
        if stride is None:
            pointers = self.lane_pointers(s)
        else:
            at = f.mul(self.ev.chunk or "0", stride)
            pointers = [f.gep(p, f.add(at, f.mul(str(stride), lane)), t) for lane in range(W)]
        for lane, q in enumerate(pointers):
            y = f.op(f"extractelement <{W} x {t}> {x}, i32 {lane}")
            if self.ev.mask is None:
                f.store(t, y, q, _bytes(t))
            else:
                ok = f.op(f"icmp slt i64 {lane}, {self.ev.mask[1]}")
                f.when(ok, lambda y=y, q=q: f.store(t, y, q, _bytes(t)))

    def store_around(self, t: str, x: str, p: str) -> None:
        """16 elements past the caches, in pieces that NumPy's and malloc's alignment allows: the
        processor puts lines together again."""
        f = self.f
        f.decls.add("!0 = !{i32 1}")
        lanes = PIECE // _bytes(t)
        for n in range(0, W, lanes):
            pick = ", ".join(f"i32 {n + i}" for i in range(lanes))
            part = f.op(
                f"shufflevector <{W} x {t}> {x}, <{W} x {t}> poison, <{lanes} x i32> <{pick}>"
            )
            at = f.gep(p, n, t)
            f.put(f"store <{lanes} x {t}> {part}, ptr {at}, align {PIECE}, !nontemporal !0")


def _bytes(t: str) -> int:
    return {"float": 4, "i32": 4, "half": 2, "i16": 2, "i8": 1}[t]


def load_even(f: Function, t: str, p: str) -> str:
    """p[0], p[2], .. p[30]: two overlapping loads that stay within p[0..30]."""
    ty = f"<{W} x {t}>"
    a, b = f.load(ty, p, _bytes(t)), f.load(ty, f.gep(p, W - 1, t), _bytes(t))
    pick = ", ".join(f"i32 {2 * i if i < 8 else W + 2 * i - 15}" for i in range(W))
    return f.op(f"shufflevector {ty} {a}, {ty} {b}, <{W} x i32> <{pick}>")


def masked_load(
    f: Function, helpers: set[str], t: str, p: str, mask: tuple[str, str] | None
) -> str:
    ty = f"<{W} x {t}>"
    if mask is None:
        return f.load(ty, p, _bytes(t))
    if t in ("float", "i32"):
        sfx = "v16f32" if t == "float" else "v16i32"
        f.decls.add(f"declare {ty} @llvm.masked.load.{sfx}.p0(ptr, <16 x i1>, {ty})")
        args = f"ptr align 4 {p}, <16 x i1> {mask[0]}, {ty} zeroinitializer"
        return f.op(f"call {ty} @llvm.masked.load.{sfx}.p0({args})")
    helpers.add(t)
    return f.op(f"call {ty} @tail_load_{t}(ptr {p}, i64 {mask[1]})")


def masked_store(
    f: Function, helpers: set[str], t: str, x: str, p: str, mask: tuple[str, str] | None
) -> None:
    ty = f"<{W} x {t}>"
    if mask is None:
        f.store(ty, x, p, _bytes(t))
    elif t in ("float", "i32"):
        sfx = "v16f32" if t == "float" else "v16i32"
        f.decls.add(f"declare void @llvm.masked.store.{sfx}.p0({ty}, ptr, <16 x i1>)")
        f.put(
            f"call void @llvm.masked.store.{sfx}.p0({ty} {x}, ptr align 4 {p}, <16 x i1> {mask[0]})"
        )
    else:
        helpers.add(t)
        f.put(f"call void @tail_store_{t}({ty} {x}, ptr {p}, i64 {mask[1]})")


def tail_helpers(types: set[str]) -> list[Function]:
    """Loads and stores of the first n of 16 narrow elements, through the stack: few chips mask 8 or
    16 bits."""
    out: list[Function] = []
    for t in sorted(types):
        ty, size = f"<{W} x {t}>", _bytes(t)
        f = Function(
            f"tail_load_{t}", [("ptr", "p"), ("i64", "n")], ty, "nounwind noinline", "internal"
        )
        tmp = f.op(f"alloca {ty}, align 64")
        f.store(ty, "zeroinitializer", tmp, 64)

        def copy_in(
            i: str, _: list[str], f: Function = f, t: str = t, size: int = size, tmp: str = tmp
        ) -> None:
            f.store(t, f.load(t, f.gep("%p", i, t), size), f.gep(tmp, i, t), size)

        f.loop(0, "%n", 1, [], copy_in)
        f.put(f"ret {ty} {f.load(ty, tmp, 64)}")
        out.append(f)
        g = Function(f"tail_store_{t}", [(ty, "x"), ("ptr", "p"), ("i64", "n")], "void",
                     "nounwind noinline", "internal")  # fmt: skip
        tmp = g.op(f"alloca {ty}, align 64")
        g.store(ty, "%x", tmp, 64)

        def copy_out(
            i: str, _: list[str], f: Function = g, t: str = t, size: int = size, tmp: str = tmp
        ) -> None:
            f.store(t, f.load(t, f.gep(tmp, i, t), size), f.gep("%p", i, t), size)

        g.loop(0, "%n", 1, [], copy_out)
        g.put("ret void")
        out.append(g)
    return out
