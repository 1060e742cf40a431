"""Prints one phase of a buffer-level program as AscendNPU-IR: HIVM operations on memrefs with
explicit spaces, the level at which the vendor's passes plan memory, insert flags and lower to
library calls.

A function takes the address of the cross-core flags (mixed phases), the workspaces, the kernel's
tensors, its scalars; pointers are bare, so tensors have this launch's shapes. `SetFlag`, `WaitFlag`
and `PipeBarrier` are the vendor's to insert: a program that has them cannot be printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from terrazzo.errors import KernelError
from terrazzo.ir.place import mark
from terrazzo.targets.ascend import single
from terrazzo.targets.ascend.allocs import places, rings
from terrazzo.targets.ascend.hivm_ops import OPERATIONS, Operands
from terrazzo.targets.ascend.masks import align
from terrazzo.targets.ascend.mlir_writer import TYPES, Scope, Writer, location
from terrazzo.targets.ascend.views import (
    SPACES,
    Memref,
    base_type,
    geometry,
    print_view,
    ring_slot,
    slot_elements,
)
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
    Phase,
    Pipe,
    Program,
    Stmt,
    View,
    walk,
)

CORE = {"cube": "AIC", "vector": "AIV"}
_FFTS = "%ffts: i64 {hacc.arg_type = #hacc.arg_type<ffts_base_address>}"


@dataclass(frozen=True)
class Module:
    """`text`: the module. `functions`: names by core kind. `arguments`: names of the parameters of
    each function, in order ("ffts" the first one of a mixed phase)."""

    text: str
    functions: dict[str, str]
    arguments: tuple[str, ...]


def entry_name(program: Program, number: int) -> str:
    """Of phase `number`: the program's, with the number if there are several."""
    return program.name if len(program.phases) == 1 else f"{program.name}_{number}"


def print_phase(program: Program, number: int) -> Module:
    """Phase `number` of a buffer-level program. Raises KernelError, with the kernel's line, for
    what HIVM cannot express."""
    phase = program.phases[number]
    name = entry_name(program, number)
    core = "MIX" if phase.mixed else CORE[phase.functions[0].kind]
    functions: dict[str, str] = {}
    parts: list[str] = []
    arguments: tuple[str, ...] = ()
    for f in phase.functions:
        functions[f.kind] = f"{name}_mix_{CORE[f.kind].lower()}" if phase.mixed else name
        printer = _Function(program, phase, align(f), functions[f.kind])
        parts += printer.text()
        arguments = printer.arguments
    aliases = [f"#{s} = #hivm.address_space<{s}>" for s in SPACES.values()]
    head = f"module attributes {{hivm.module_core_type = #hivm.module_core_type<{core}>}} {{"
    return Module("\n".join([*aliases, head, *parts, "}", ""]), functions, arguments)


class _Function:
    def __init__(self, program: Program, phase: Phase, f: CoreFn, name: str) -> None:
        self.program = program
        self.phase = phase
        self.f = f
        self.name = name
        self.w = Writer()
        self.places = places(f.body)
        self.rings = rings(f.body)
        self.bases: dict[Buffer | Gm, str] = {}
        workspaces = [g for g in program.gm if g.workspace]
        self.tensors = workspaces + [g for g in program.gm if not g.workspace]
        ffts = ("ffts",) if phase.mixed else ()
        self.arguments = (*ffts, *(g.name for g in self.tensors), *(n for n, _ in program.scalars))

    def text(self) -> list[str]:
        w, core = self.w, CORE[self.f.kind]
        signature = [_FFTS] if self.phase.mixed else []
        for i, g in enumerate(self.tensors):
            self.bases[g] = f"%g{i}"
            role = " {hacc.arg_type = #hacc.arg_type<workspace>}" if g.workspace else ""
            signature.append(f"%g{i}: {base_type(g)}{role}{location(g.loc, g.name)}")
            w.bind(g.name, f"%g{i}", base_type(g))
        for i, (name, dtype) in enumerate(self.program.scalars):
            signature.append(f"%s{i}: {TYPES[dtype.name]}")
            w.bind(name, f"%s{i}", TYPES[dtype.name])
        if self.phase.mixed:
            w.line("hivm.hir.set_ffts_base_addr %ffts")
        self._cores()
        self._body(self.f.body, None)
        w.line("return")
        mix = ', hivm.part_of_mix, mix_mode = "mix"' if self.phase.mixed else ""
        attributes = (
            "hacc.entry, hacc.function_kind = #hacc.function_kind<DEVICE>, "
            f"hivm.func_core_type = #hivm.func_core_type<{core}>{mix}"
        )
        head = f"  func.func @{self.name}({', '.join(signature)})"
        return [head, f"      attributes {{{attributes}}} {{", *w.prologue(), *w.lines, "  }"]

    def _cores(self) -> None:
        """`core` and `half`. A mixed phase's block is a cube core and its vector cores."""
        w = self.w
        block = w.op("hivm.hir.get_block_idx -> i64")
        core = w.op(f"arith.index_cast {block} : i64 to index", "core")
        if self.phase.mixed and self.f.kind == "vector":
            half = w.op("hivm.hir.get_sub_block_idx -> i64")
            half = w.op(f"arith.index_cast {half} : i64 to index", "half")
            w.bind("half", half)
            ratio = w.constant(self.phase.ratio, "index")
            first = w.op(f"arith.muli {core}, {ratio} : index")
            core = w.op(f"arith.addi {first}, {half} : index", "core")
        w.bind("core", core)
        if any(isinstance(s, Instr) and single.is_single(s) for s in walk(self.f.body)):
            w.bind(str(single.ONE), w.index(single.MEANING))

    # -- statements ----------------------------------------------------------------------------

    def _body(self, body: tuple[Stmt, ...], owner: Stmt | None) -> None:
        for buffer in self.places.get(owner, []):
            self._alloc(buffer)
        for s in body:
            self.w.loc = s.loc
            match s:
                case Instr():
                    self._instruction(s)
                case Let():
                    self._let(s)
                case For():
                    self._for(s)
                case If():
                    self._if(s)
                case CrossSet() | CrossWait():
                    self._cross(s)
                case _:
                    raise mark(
                        KernelError(
                            "AscendNPU-IR's own passes insert flags and barriers",
                            "print the program before it is scheduled",
                        ),
                        s.loc,
                    )

    def _alloc(self, b: Buffer) -> None:
        if b.space not in SPACES:
            raise mark(
                KernelError(
                    f"AscendNPU-IR has no buffers in {b.space}, where {b.tile or b.name} lies",
                    "leave the product to mmad_l1",
                ),
                b.loc,
            )
        name = self.w.fresh("buffer")
        ring = b in self.rings
        kind = base_type(replace(b, elements=b.slots * slot_elements(b)) if ring else b)
        self.w.line(f"{name} = memref.alloc() : {kind}", b.loc, b.tile or b.name)
        if b.slots > 1 and not ring and any(b in x for o, x in self.places.items() if o):
            self.w.line(f"annotation.mark {name} {{hivm.multi_buffer = {b.slots} : i32}} : {kind}")
        self.bases[b] = name

    def _let(self, s: Let) -> None:
        self.w.bind(s.name, *self.w.scalar(s.value))

    def _for(self, s: For) -> None:
        w = self.w
        bounds = [w.index(e) for e in (s.lo, s.hi, s.step)]
        counter = w.fresh("i")
        with self._carried(s) as (names, results, values):
            head = f"scf.for {counter} = {bounds[0]} to {bounds[1]} step {bounds[2]}"
            if names:
                inside = [w.fresh() for _ in names]
                starts = ", ".join(f"{a} = {v}" for a, (v, _) in zip(inside, values, strict=True))
                kinds = ", ".join(k for _, k in values)
                head = f"{', '.join(results)} = {head} iter_args({starts}) -> ({kinds})"
                for n, a, (_, kind) in zip(names, inside, values, strict=True):
                    w.bind(n, a, kind)
            w.raw(f"{head} {{")
            w.bind(s.var, counter)
            self._nested(s)
            if names:
                self._yield(names, values)
            w.loc = s.loc
            w.line("}")

    def _if(self, s: If) -> None:
        w = self.w
        condition = w.condition(s.condition)
        with self._carried(s) as (names, results, values):
            kinds = ", ".join(k for _, k in values)
            head = f"{', '.join(results)} = " if names else ""
            w.raw(f"{head}scf.if {condition}{f' -> ({kinds})' if names else ''} {{")
            self._nested(s)
            if names:
                self._yield(names, values)
                w.raw("} else {")
                w.raw(f"  scf.yield {', '.join(v for v, _ in values)} : {kinds}")
            w.loc = s.loc
            w.line("}")

    @contextmanager
    def _carried(self, s: For | If) -> Iterator[tuple[list[str], list[str], list[tuple[str, str]]]]:
        """The scalars that `s` sets and that were set before it: their names, the values that they
        have after it, those before it."""
        w = self.w
        names = list(
            dict.fromkeys(x.name for x in walk(s.body) if isinstance(x, Let) and w.look_up(x.name))
        )
        before = [w.look_up(n) or ("", "") for n in names]
        results = [w.fresh() for _ in names]
        w.scopes.append(Scope())
        yield names, results, before
        w.scopes.pop()
        for n, r, (_, kind) in zip(names, results, before, strict=True):
            w.bind(n, r, kind)

    def _nested(self, s: For | If) -> None:
        self.w.indent += 1
        self._body(s.body, s)
        self.w.indent -= 1

    def _yield(self, names: list[str], before: list[tuple[str, str]]) -> None:
        w = self.w
        w.indent += 1
        values = [
            w.convert(*(w.look_up(n) or ("", "")), kind)
            for n, (_, kind) in zip(names, before, strict=True)
        ]
        w.line(f"scf.yield {', '.join(values)} : {', '.join(k for _, k in before)}")
        w.indent -= 1

    def _cross(self, s: CrossSet | CrossWait) -> None:
        """The flag's operation names both pipes: the one that raises it and the one that waits."""
        theirs = self._partner(s)
        flag = s.flag
        if isinstance(flag, (int, float)):
            number = str(int(flag))
        else:
            number = self.w.convert(self.w.index(flag), "index", "i64")
        core = "CUBE" if self.f.kind == "cube" else "VECTOR"
        setter, waiter = (s.pipe, theirs) if isinstance(s, CrossSet) else (theirs, s.pipe)
        name = "set" if isinstance(s, CrossSet) else "wait"
        self.w.line(
            f"hivm.hir.sync_block_{name}[<{core}>, <PIPE_{setter}>, <PIPE_{waiter}>] "
            f"flag = {number}"
        )

    def _partner(self, s: CrossSet | CrossWait) -> Pipe:
        wanted = CrossWait if isinstance(s, CrossSet) else CrossSet
        others = [
            x
            for f in self.phase.functions
            if f.kind != self.f.kind
            for x in walk(f.body)
            if isinstance(x, wanted)
        ]
        for x in others:
            if x.flag == s.flag:
                return x.pipe
        if others:  # a flag that depends on the trip: all of one loop's flags join the same pipes
            return others[0].pipe
        raise mark(
            KernelError(
                f"nothing on the other core answers flag {s.flag}",
                "a flag is raised on one kind of core and waited for on the other",
            ),
            s.loc,
        )

    # -- instructions --------------------------------------------------------------------------

    def _instruction(self, s: Instr) -> None:
        spell = OPERATIONS.get(s.op)
        if spell is None:
            raise mark(
                KernelError(
                    f"AscendNPU-IR has no operation for {s.op}", "leave the product to mmad_l1"
                ),
                s.loc,
            )
        try:
            whole = single.opened(s) if single.is_single(s) else s
            spell(Operands(self.w, whole, self._view))
        except KeyError as e:
            raise mark(
                KernelError(f"{e.args[0]} has no value here", "set it first"), s.loc
            ) from None

    def _view(self, v: View, broadcast: bool) -> Memref:
        base = self.bases.get(v.memory)
        if base is None:
            raise KeyError(v.memory.name)
        if isinstance(v.memory, Buffer) and v.memory in self.rings:
            v = ring_slot(v)
        key = (base, v.offset, v.fractal, *geometry(v, broadcast))
        return self.w.once(key, lambda: print_view(self.w, v, base, broadcast))
