"""How each instruction of `isa.TABLE` is spelt in HIVM, for what the vendor's library links (see
docs/design/ascend-ops.md).

A form that the library lacks (a scalar of `vand`, a repeated operand of `vcmp`) is an error: the
lowering knows these, and makes the buffers that they need where the plan sees them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from terrazzo.errors import KernelError
from terrazzo.ir.place import mark
from terrazzo.ir.types import DType, bool_, i8, u8, u32
from terrazzo.targets.ascend.mlir_writer import TYPES, Writer
from terrazzo.targets.ascend.views import Memref
from terrazzo.targets.davinci.expr import Expr, Scalar
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import Instr, View

_FIXPIPE = {("f32", "f16"): "F322F16", ("f32", "bf16"): "F322BF16", ("i32", "i8"): "S322I8"}
_COMMUTES = ("vadd", "vmul", "vmax", "vmin")
# Operations that take no scalar and those that take no broadcast operand.
_VECTORS_ONLY = ("vand", "vor", "vxor")
_WHOLE_ONLY = ("vcmp", "vsel", "vxor")


@dataclass
class Operands:
    """An instruction on its way out. `view(v, broadcast)` prints a view."""

    w: Writer
    s: Instr
    view: Callable[[View, bool], Memref]

    def fail(self, what: str, remedy: str) -> KernelError:
        return mark(KernelError(what, remedy), self.s.loc)

    def at(self, v: object, broadcast: bool = False) -> Memref:
        assert isinstance(v, View)
        return self.view(v, broadcast)

    def emit(
        self, name: str, ins: list[Memref], out: Memref, tail: str = "", attrs: str = ""
    ) -> None:
        """`name ins(…) outs(…) tail`."""
        values = ", ".join(m.value for m in ins)
        kinds = ", ".join(m.type for m in ins)
        self.w.line(
            f"hivm.hir.{name}{attrs} ins({values} : {kinds}) outs({out.value} : {out.type})"
            + (f" {tail}" if tail else "")
        )

    def scalar(self, e: Scalar, dtype: DType) -> Memref:
        """There are no constants without a sign: the signed one of the same bits."""
        if dtype in (u8, u32) and not isinstance(e, Expr):
            e = int(e) - (int(e) >> dtype.bits - 1 << dtype.bits)
        signed = i8 if dtype == u8 else dtype
        return Memref(self.w.of_type(e, signed), TYPES[signed.name])

    def fill(self, source: View | Scalar, to: Memref, dtype: DType) -> None:
        """vbrc: a scalar everywhere, or a view along the dimensions where it has one element."""
        if isinstance(source, View):
            a = self.at(source, True)
            repeated = _repeated(a, to)
            tail = f"broadcast_dims = [{', '.join(map(str, repeated))}]"
            self.emit("vbrc" if repeated else "copy", [a], to, tail if repeated else "")
            return
        if dtype == u8:
            kind = to.type.replace("ui8", "i8")
            to = Memref(self.w.op(f"hivm.hir.bitcast {to.value} : {to.type} -> {kind}"), kind)
        self.emit("vbrc", [self.scalar(source, dtype)], to)


def _repeated(a: Memref, out: Memref) -> list[int]:
    """Dimensions along which `a` has one element and the output more."""
    return [d for d, (n, m) in enumerate(zip(a.sizes, out.sizes, strict=True)) if n == 1 and m != 1]


def _move(name: str, attrs: str = "") -> Callable[[Operands], None]:
    def spell(o: Operands) -> None:
        a, out = o.at(o.s.ins[0]), o.at(o.s.out)
        if o.s.out.dtype == bool_:
            raise o.fail("masks do not leave the core", "convert the mask to i8 or f16 first")
        o.emit(name, [a], out, attrs=attrs)

    return spell


def _elementwise(o: Operands) -> None:
    s = o.s
    out = o.at(s.out)
    ins = list(s.ins)
    name = TABLE[s.op].hivm
    if s.op in _COMMUTES and not isinstance(ins[0], View):
        ins.reverse()
    kinds = [x.dtype for x in ins if isinstance(x, View)]
    dtype = s.out.dtype if s.op == "vsel" else (kinds[0] if kinds else s.out.dtype)
    if u32 in kinds and s.op in ("vmax", "vmin", "vcast", "vdiv"):
        raise o.fail(f"{s.op} takes no unsigned integers", "convert to i32 first")
    if s.op in _VECTORS_ONLY and not all(isinstance(x, View) for x in ins):
        raise o.fail(f"{s.op} takes no scalar", "fill a block by vbrc and repeat it")
    made = [o.at(x, True) if isinstance(x, View) else o.scalar(x, dtype) for x in ins]
    repeated = sorted({d for m in made if m.sizes for d in _repeated(m, out)})
    tail = [_mode(o)] if _mode(o) else []
    if repeated and s.op in _WHOLE_ONLY:
        raise o.fail(f"{s.op} repeats no operand", "repeat it by vbrc first")
    if repeated:
        tail.append(f"broadcast = [{', '.join(map(str, repeated))}]")
    o.emit(name, made, out, " ".join(tail))


def _mode(o: Operands) -> str:
    """The operation's own attribute, as the table's attributes ask for it."""
    s = o.s
    if s.op == "vcmp":
        return f"compare_mode = #hivm.compare_mode<{s.attr('mode')}>"
    if s.op == "vcast":
        how = s.attr("round") or ("trunc" if s.out.dtype.kind in ("int", "uint") else "rint")
        (a,) = s.ins
        assert isinstance(a, View)
        return f"round_mode = #hivm.round_mode<{how}>" if a.dtype.kind == "float" else ""
    return "round : false" if s.op == "vshr" else ""


def _copy(o: Operands) -> None:
    """With `bits`, the same bytes under the output's type."""
    a, out = o.at(o.s.ins[0]), o.at(o.s.out)
    source, target = (TYPES[x.dtype.name] for x in (o.s.ins[0], o.s.out) if isinstance(x, View))
    if o.s.attr("bits") and source != target:
        kind = a.type.replace(f"x{source},", f"x{target},", 1)
        a = Memref(o.w.op(f"hivm.hir.bitcast {a.value} : {a.type} -> {kind}"), kind, a.sizes)
    o.emit("copy", [a], out)


def _fill(o: Operands) -> None:
    source = o.s.ins[0]
    o.fill(source, o.at(o.s.out), o.s.out.dtype)


def _arange(o: Operands) -> None:
    out = o.at(o.s.out)
    start = o.s.ins[0]
    assert not isinstance(start, View)
    zero, one = (o.w.constant(n, "index") for n in (0, 1))
    strides = ", ".join([zero] * (len(out.sizes) - 1) + [one])
    o.w.line(
        f"hivm.hir.varange offset[{o.w.index(start)}] strides[{strides}] "
        f"outs({out.value} : {out.type})"
    )


def _reduce(o: Operands) -> None:
    a, out = o.at(o.s.ins[0]), o.at(o.s.out)
    axis = o.s.attr("axis")
    place = len(a.sizes) - 1 if axis is None else axis
    o.emit(f"vreduce <{o.s.attr('kind')}>", [a], out, f"reduce_dims = [{place}]")


def _product(o: Operands) -> None:
    """mmadL1: the library moves both operands on to L0A and L0B itself."""
    s, w = o.s, o.w
    a, b, first = s.ins
    assert isinstance(a, View) and isinstance(b, View) and not isinstance(first, View)
    turned = [n for n in ("a", "b") if s.attr(f"transpose_{n}")]
    inner = a.sizes[0] if "a" in turned else a.sizes[1]
    extents = [w.index(n) for n in (s.out.sizes[0], inner, s.out.sizes[1])]
    left, right, out = o.at(a), o.at(b), o.at(s.out)
    attrs = " {" + ", ".join(f"{n}_transpose" for n in turned) + "}" if turned else ""
    w.line(
        f"hivm.hir.mmadL1{attrs} ins({left.value}, {right.value}, {w.condition(first)}, "
        f"{', '.join(extents)} : {left.type}, {right.type}, i1, index, index, index) "
        f"outs({out.value} : {out.type})"
    )


def _fixpipe(o: Operands) -> None:
    s = o.s
    (a,) = s.ins
    assert isinstance(a, View)
    if s.attr("scale") is not None:
        raise o.fail(
            "AscendNPU-IR's FixPipe has no scale", "store i32 and scale it on the vector core"
        )
    pair = (a.dtype.name, s.out.dtype.name)
    parts = ["dma_mode = #hivm.dma_mode<nz2nd>"]
    if pair in _FIXPIPE:
        parts.append(f"pre_quant = #hivm.fixpipe_pre_quant_mode<{_FIXPIPE[pair]}>")
    elif pair[0] != pair[1]:
        raise o.fail(
            f"FixPipe does not turn {pair[0]} into {pair[1]}",
            "f32 becomes f16 or bf16, i32 becomes i8; do others on the vector core",
        )
    if s.attr("relu"):
        parts.append("pre_relu = #hivm.fixpipe_pre_relu_mode<NORMAL_RELU>")
    o.emit("fixpipe", [o.at(a)], o.at(s.out), attrs=" {" + ", ".join(parts) + "}")


_ELEMENTWISE = (
    "vexp", "vln", "vabs", "vrec", "vrsqrt", "vsqrt", "vrelu", "vnot", "vcast", "vadd", "vsub",
    "vmul", "vmax", "vmin", "vdiv", "vand", "vor", "vxor", "vshl", "vshr", "vcmp", "vsel",
)  # fmt: skip
OPERATIONS: dict[str, Callable[[Operands], None]] = {
    "load": _move("load"),
    "load_nz": _move("load"),
    "store": _move("store"),
    "nd2nz": _move("nd2nz", " {dst_continuous}"),
    "fixpipe": _fixpipe,
    "mmad_l1": _product,
    "vcopy": _copy,
    "vbrc": _fill,
    "varange": _arange,
    "vreduce": _reduce,
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
}
