"""Reads the vendor's planned module back as a scheduled core program: its addresses, its slots, its
flags and barriers, each `mmadL1` as the library's own moves and products.

What the passes are known to leave at that point is read; any other operation is an error that
names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from terrazzo.ir.ops import Loc
from terrazzo.targets.ascend import planned_views as shapes
from terrazzo.targets.ascend.affine import apply_map
from terrazzo.targets.ascend.diagnostics import places
from terrazzo.targets.ascend.mlir_text import MlirError, Op, Place, Region, memref_type, parse
from terrazzo.targets.ascend.planned_scalars import SCALARS
from terrazzo.targets.ascend.planned_views import Buffers, Shaped
from terrazzo.targets.ascend.print_hivm import Module
from terrazzo.targets.ascend.product import Product, expand, l0_buffers
from terrazzo.targets.davinci.expr import Expr, Scalar, make, var
from terrazzo.targets.davinci.isa import TABLE
from terrazzo.targets.davinci.program import (
    Buffer,
    CoreFn,
    CrossSet,
    CrossWait,
    For,
    Gm,
    If,
    Instr,
    Let,
    Operand,
    Phase,
    Pipe,
    PipeBarrier,
    Program,
    SetFlag,
    Stmt,
    View,
    WaitFlag,
    views,
    walk,
)

_LONG = 32  # operations after which a scalar gets a name of its own
_IGNORED = {"hivm.hir.set_mask_norm", "hivm.hir.set_ffts_base_addr", "func.return", "scf.yield",
            "annotation.mark"}  # fmt: skip
_NAMES = {s.hivm: name for name, s in TABLE.items() if s.pipe == "V"}


def read_planned(program: Program, number: int, module: Module, text: str) -> Phase:
    """Phase `number` of `program` as the vendor planned it: `text` is the generic form of what
    became of `module`. Its tensors are `program`'s own, its lines those of the kernel. Raises
    MlirError."""
    phase = program.phases[number]
    locs = places(phase)
    found = {str(op.attrs.get("sym_name")): op for op in parse(text).regions[0].ops}
    gm = {g.name: g for g in program.gm}
    functions = []
    for f in phase.functions:
        op = found.get(module.functions[f.kind])
        if op is None:
            raise MlirError(f"the planned module has no function {module.functions[f.kind]}")
        values: dict[str, object] = {}
        region = op.regions[0]
        for (value, _), name in zip(region.args, module.arguments, strict=True):
            if name in gm:
                values[value] = _tensor(gm[name])
            elif name != "ffts":
                values[value] = Expr("arg", (name,))
        functions.append(_Reader(f, phase, values, locs).function(region))
    return Phase(tuple(functions), phase.ratio)


def _tensor(g: Gm) -> Shaped:
    strides = [math.prod(g.shape[d + 1 :]) for d in range(len(g.shape))]
    return Shaped(g, g.shape, tuple(strides))


class _Reader:
    def __init__(
        self, f: CoreFn, phase: Phase, values: dict[str, object],
        locs: Mapping[tuple[str, int, int], Loc],
    ) -> None:  # fmt: skip
        self.f = f
        self.phase = phase
        self.values = values
        self.locs = locs
        self.buffers = Buffers()
        self.body: list[Stmt] = []
        self.names = 0
        self.loc: Loc | None = None

    def function(self, region: Region) -> CoreFn:
        self._block(region)
        used = dict.fromkeys(
            v.memory
            for s in walk(tuple(self.body))
            if isinstance(s, Instr)
            for v in (*views(s), *(x for _, x in s.attrs if isinstance(x, View)))
            if isinstance(v.memory, Buffer)
        )
        return replace(self.f, body=tuple(self.body), buffers=tuple(used))

    # -- values --------------------------------------------------------------------------------

    def _scalar(self, value: str) -> Scalar:
        found = self.values.get(value)
        if isinstance(found, (int, float, Expr)):
            return found
        raise MlirError(f"{value} is not a scalar")

    def _shaped(self, value: str) -> Shaped:
        found = self.values.get(value)
        if isinstance(found, Shaped):
            return found
        raise MlirError(f"{value} is not a memref")

    def _operand(self, value: str) -> Operand:
        found = self.values.get(value)
        return found.view() if isinstance(found, Shaped) else self._scalar(value)

    def _define(self, value: str, e: Scalar) -> None:
        """A long expression becomes a variable, so that text made of it stays short."""
        if _size(e) > _LONG:
            name = self._name()
            self.body.append(Let(name, e, self.loc))
            e = var(name)
        self.values[value] = e

    def _name(self, stem: str = "t") -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def _place(self, place: Place | None) -> Loc | None:
        if place is None:
            return None
        return self.locs.get((place.file, place.line, place.col))

    # -- operations ----------------------------------------------------------------------------

    def _block(self, region: Region) -> None:
        for op in region.ops:
            self.loc = self._place(op.place)
            self._op(op)

    def _op(self, op: Op) -> None:
        scalar = SCALARS.get(op.name)
        if scalar is not None and not op.result_types[0].startswith("memref"):
            self._define(op.results[0], scalar(op, [self._scalar(v) for v in op.operands]))
            return
        read = _READERS.get(op.name)
        name = _NAMES.get(op.name.removeprefix("hivm.hir."))
        if read is not None:
            read(self, op)
        elif name is not None:
            self._vector(op, name)
        elif op.name not in _IGNORED:
            where = f" at {op.place.file}:{op.place.line}" if op.place else ""
            raise MlirError(f"the planned module has an operation we do not read: {op.name}{where}")

    def _select(self, op: Op) -> None:
        condition, a, b = op.operands
        both = self._shaped(a), self._shaped(b)
        self.values[op.results[0]] = self.buffers.select(self._scalar(condition), *both)

    def _affine(self, op: Op) -> None:
        results = apply_map(str(op.attrs["map"]), [self._scalar(v) for v in op.operands])
        value = results[0]
        for other in results[1:]:
            value = make("min" if op.name == "affine.min" else "max", value, other)
        self._define(op.results[0], value)

    def _core(self, op: Op) -> None:
        mixed = self.phase.mixed and self.f.kind == "vector"
        core = make("div", var("core"), self.phase.ratio) if mixed else var("core")
        self.values[op.results[0]] = core

    def _half(self, op: Op) -> None:
        self.values[op.results[0]] = var("half")

    def _load(self, op: Op) -> None:
        memory, *at = op.operands
        a = self._shaped(memory)
        if not isinstance(a.memory, Gm):
            raise MlirError("scalar code that reads a tile: an operation that no vector unit has")
        index = [self._scalar(v) for v in at]
        if a.sizes != a.memory.shape:
            raise MlirError("a scalar read of a part of a tensor")
        self.values[op.results[0]] = Expr("load", (a.memory.name, *index))

    def _cast(self, op: Op) -> None:
        addresses = []
        for v in op.segments()[0]:
            address = self._scalar(v)
            if not isinstance(address, int):
                raise MlirError("a buffer whose address is not a number")
            addresses.append(address)
        self.values[op.results[0]] = self.buffers.cast(op, tuple(addresses), self.loc)

    def _view(self, op: Op) -> None:
        source, *rest = op.segments() if "operandSegmentSizes" in op.attrs else [op.operands]
        a = self._shaped(source[0])
        scalars: list[list[Scalar]] = [[self._scalar(v) for v in group] for group in rest]
        match op.name.removeprefix("memref."):
            case "reinterpret_cast":
                made = shapes.reinterpret(op, a, scalars)
            case "subview":
                made = shapes.subview(op, a, scalars)
            case "collapse_shape":
                made = shapes.collapse(op, a)
            case "expand_shape":
                made = shapes.expand(op, a, [self._scalar(v) for v in op.operands[1:]])
            case "hivm.hir.bitcast":
                made = self.buffers.retyped(a, memref_type(op.result_types[0]))
            case _:  # memref.cast, memory_space_cast
                made = a
        self.values[op.results[0]] = made

    def _metadata(self, op: Op) -> None:
        """The memory, and where a view of it lies."""
        a = self._shaped(op.operands[0])
        parts = (a, a.offset, *a.sizes, *a.strides)
        self.values.update(zip(op.results, parts, strict=True))

    # -- control -------------------------------------------------------------------------------

    def _for(self, op: Op) -> None:
        lo, hi, step = (self._scalar(v) for v in op.operands[:3])
        region = op.regions[0]
        counter, *carried = (name for name, _ in region.args)
        names = []
        for arg, start in zip(carried, op.operands[3:], strict=True):
            name = self._name("carried")
            self.body.append(Let(name, self._scalar(start), self.loc))
            self.values[arg] = var(name)
            names.append(name)
        loop = self._name("i")
        self.values[counter] = var(loop)
        place = self.loc
        body = self._nested(region, tuple(names))
        self.body.append(For(loop, lo, hi, step, body, place))
        for result, name in zip(op.results, names, strict=True):
            self.values[result] = var(name)

    def _if(self, op: Op) -> None:
        condition, place = self._scalar(op.operands[0]), self.loc
        names = tuple(self._name("chosen") for _ in op.results)
        if not names:
            self.body.append(If(condition, self._nested(op.regions[0], ()), place))
            if len(op.regions) > 1 and op.regions[1].ops:
                other = self._nested(op.regions[1], ())
                self.body.append(If(make("eq", condition, 0), other, place))
            return
        kept = self._name("which")
        self.body.append(Let(kept, condition, place))
        for wanted, region in zip((1, 0), op.regions, strict=True):
            test = make("eq", var(kept), wanted)
            self.body.append(If(test, self._nested(region, names), place))
        for result, name in zip(op.results, names, strict=True):
            self.values[result] = var(name)

    def _nested(self, region: Region, names: tuple[str, ...]) -> tuple[Stmt, ...]:
        outer, self.body = self.body, []
        self._block(region)
        last = region.ops[-1] if region.ops else None
        if names and last is not None:
            fresh = [self._name() for _ in names]
            for name, v in zip(fresh, last.operands, strict=True):
                self.body.append(Let(name, self._scalar(v), self.loc))
            for name, new in zip(names, fresh, strict=True):
                self.body.append(Let(name, var(new), self.loc))
        body, self.body = tuple(self.body), outer
        return body

    # -- flags ---------------------------------------------------------------------------------

    def _flag(self, op: Op) -> None:
        src, dst = _pipe(op, "set_pipe"), _pipe(op, "wait_pipe")
        static = op.attrs.get("static_event_id")
        if isinstance(static, str):
            event: Scalar = int(_inner(static).removeprefix("EVENT_ID"))
        else:
            event = self._scalar(op.operands[0])
        make_flag = SetFlag if op.name.endswith("set_flag") else WaitFlag
        self.body.append(make_flag(src, dst, event, self.loc))

    def _barrier(self, op: Op) -> None:
        name = _inner(str(op.attrs["pipe"])).removeprefix("PIPE_")
        self.body.append(PipeBarrier(_PIPES[name] if name != "ALL" else "ALL", self.loc))

    def _cross(self, op: Op) -> None:
        static = op.attrs.get("static_flag_id")
        flag = static if isinstance(static, int) else self._scalar(op.operands[0])
        if op.name.endswith("set"):
            self.body.append(CrossSet(flag, _pipe(op, "tpipe"), self.loc))
        else:
            self.body.append(CrossWait(flag, _pipe(op, "pipe"), self.loc))

    # -- instructions --------------------------------------------------------------------------

    def _emit(self, op: str, out: View, ins: list[Operand], **attrs: object) -> None:
        kept = tuple(sorted((k, v) for k, v in attrs.items() if v is not None))
        self.body.append(Instr(op, out, tuple(ins), kept, self.loc))

    def _vector(self, op: Op, name: str) -> None:
        groups = op.segments()
        if name in ("vbrc", "varange") and "operandSegmentSizes" not in op.attrs:
            groups = [(op.operands[0],), (op.operands[1],), op.operands[2:]]
        ins = [self._operand(v) for v in groups[0]]
        out = self._shaped(groups[1][0]).view()
        temp = next(
            (self._shaped(v).view() for g in groups[2:] for v in g if self._is_memref(v)), None
        )
        attrs: dict[str, object] = {"temp": temp}
        match name:
            case "vcmp":
                attrs["mode"] = _inner(str(op.attrs.get("compare_mode", "<eq>"))).lower()
            case "vcast":
                attrs["round"] = _inner(str(op.attrs.get("round_mode", "<rint>"))).lower()
            case "vreduce":
                attrs["kind"] = _inner(str(op.attrs["arith"])).lower()
                (attrs["axis"],) = _numbers(op, "reduce_dims")
        if op.attrs.get("transpose"):
            raise MlirError(f"{op.name} with a transposition")
        self._emit(name, out, ins, **attrs)

    def _is_memref(self, value: str) -> bool:
        return isinstance(self.values.get(value), Shaped)

    def _arange(self, op: Op) -> None:
        out, offset, strides = op.segments()
        to = self._shaped(out[0]).view()
        steps = [self._scalar(v) for v in strides]
        if steps[-1] != 1 or any(steps[:-1]):
            raise MlirError("varange along more than the innermost dimension")
        self._emit("varange", to, [self._scalar(offset[0]) if offset else 0])

    def _move(self, op: Op) -> None:
        source, target, *rest = (self.values.get(v) for v in op.operands)
        if not isinstance(source, Shaped) or not isinstance(target, Shaped):
            raise MlirError(f"{op.name} between what are not memrefs")
        name = op.name.removeprefix("hivm.hir.")
        if (
            name == "load"
            and target.memory in self.buffers.known.values()
            and _space(target) == "L1"
        ):
            name = "load_nz"
        if name == "copy":
            name = "vcopy"
        self._emit(name, target.view(), [source.view()])

    def _nd2nz(self, op: Op) -> None:
        source, target = (self._shaped(v) for v in op.operands[:2])
        rows, columns = source.sizes
        self._emit("nd2nz", target.tile(rows, columns), [source.view()])

    def _fixpipe(self, op: Op) -> None:
        source, target = (self._shaped(v) for v in op.operands[:2])
        rows, columns = target.sizes
        relu = "pre_relu" in op.attrs and not str(op.attrs["pre_relu"]).endswith("NO_RELU>")
        self._emit("fixpipe", target.view(), [source.tile(rows, columns)], relu=1 if relu else None)

    def _product(self, op: Op) -> None:
        a, b, first, m, k, n, c, events, *_ = op.segments()
        left, right, out = (self._shaped(v[0]) for v in (a, b, c))
        turn_a, turn_b = ("a_transpose" in op.attrs, "b_transpose" in op.attrs)
        rows, inner, columns = (self._scalar(v[0]) for v in (m, k, n))
        flags = [None if e == -1 else e for e in (self._scalar(v) for v in events)]
        wait_a, wait_b, set_a, set_b, trip, free0, free1 = flags or [None] * 7
        room_a, room_b = _room(left, turn_a), _room(right, turn_b)
        product = Product(
            out=out.tile(rows, columns),
            a=left.tile(*((inner, rows) if turn_a else (rows, inner))),
            b=right.tile(*((columns, inner) if turn_b else (inner, columns))),
            first=self._scalar(first[0]),
            k=inner,
            room=(room_a[0], room_b[1], min(room_a[1], room_b[0])),
            turn_a=turn_a,
            turn_b=turn_b,
            waits=(wait_a, wait_b),
            sets=(set_a, set_b),
            round=trip,
            free=(free0, free1),
            loc=self.loc,
        )
        dtype = left.memory.dtype
        key = ("l0", dtype)
        l0 = tuple(self.buffers.known.setdefault((key, b.space), b) for b in l0_buffers(dtype))
        self.body += expand(product, (l0[0], l0[1]))


def _room(a: Shaped, turned: bool) -> tuple[int, int]:
    """Rows and columns, of the matrix as it is multiplied, that a tile has room for."""
    sizes = [n for n in a.sizes if isinstance(n, int)]
    if len(sizes) != 4:
        raise MlirError("a Cube tile of unknown size")
    rows, columns = sizes[1] * sizes[2], sizes[0] * sizes[3]
    return (columns, rows) if turned else (rows, columns)


def _space(a: Shaped) -> str:
    return "GM" if isinstance(a.memory, Gm) else a.memory.space


_PIPES: dict[str, Pipe] = {
    p: p for p in ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
}  # fmt: skip


def _pipe(op: Op, name: str) -> Pipe:
    found = _PIPES.get(_inner(str(op.attrs[name])).removeprefix("PIPE_"))
    if found is None:
        raise MlirError(f"no pipe {op.attrs[name]}")
    return found


def _inner(attribute: str) -> str:
    """VALUE of `#dialect.kind<VALUE>`."""
    return attribute[attribute.index("<") + 1 : attribute.rindex(">")]


def _numbers(op: Op, name: str) -> tuple[int, ...]:
    found = op.attrs[name]
    assert isinstance(found, tuple)
    return tuple(int(n) for n in found)


def _size(e: Scalar) -> int:
    return 1 + sum(map(_size, e.args)) if isinstance(e, Expr) and e.op not in ("var", "arg") else 0


_READERS: dict[str, Callable[[_Reader, Op], None]] = {
    "arith.select": _Reader._select,
    "affine.apply": _Reader._affine,
    "affine.min": _Reader._affine,
    "affine.max": _Reader._affine,
    "hivm.hir.get_block_idx": _Reader._core,
    "hivm.hir.get_sub_block_idx": _Reader._half,
    "memref.load": _Reader._load,
    "hivm.hir.pointer_cast": _Reader._cast,
    "memref.reinterpret_cast": _Reader._view,
    "memref.subview": _Reader._view,
    "memref.collapse_shape": _Reader._view,
    "memref.expand_shape": _Reader._view,
    "memref.cast": _Reader._view,
    "memref.extract_strided_metadata": _Reader._metadata,
    "memref.memory_space_cast": _Reader._view,
    "hivm.hir.bitcast": _Reader._view,
    "scf.for": _Reader._for,
    "scf.if": _Reader._if,
    "hivm.hir.set_flag": _Reader._flag,
    "hivm.hir.wait_flag": _Reader._flag,
    "hivm.hir.pipe_barrier": _Reader._barrier,
    "hivm.hir.sync_block_set": _Reader._cross,
    "hivm.hir.sync_block_wait": _Reader._cross,
    "hivm.hir.load": _Reader._move,
    "hivm.hir.store": _Reader._move,
    "hivm.hir.copy": _Reader._move,
    "hivm.hir.varange": _Reader._arange,
    "hivm.hir.nd2nz": _Reader._nd2nz,
    "hivm.hir.fixpipe": _Reader._fixpipe,
    "hivm.hir.mmadL1": _Reader._product,
}
