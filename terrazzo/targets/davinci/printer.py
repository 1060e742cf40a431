"""A core program as text, for people and for the tests' golden files."""

from __future__ import annotations

from collections.abc import Iterator

from terrazzo.targets.davinci import program as p


def text(program: p.Program) -> str:
    """All phases, functions, buffers and statements, one a line."""
    return "\n".join(_program(program)) + "\n"


def _program(program: p.Program) -> Iterator[str]:
    yield f"program {program.name}{' scheduled' if program.scheduled else ''}"
    for g in program.gm:
        kind = "workspace" if g.workspace else "gm"
        bypass = "" if g.l2 == "normal" else " past L2"
        yield f"  {kind} {g.name}: {g.dtype}[{', '.join(map(str, g.shape))}]{bypass}"
    for name, dtype in program.scalars:
        yield f"  scalar {name}: {dtype}"
    yield from (f"  note {n}" for n in program.notes)
    for n, phase in enumerate(program.phases):
        yield f"phase {n}"
        for f in phase.functions:
            yield f"  {f.kind} function on {f.cores} cores"
            for b in f.buffers:
                slots = f" x {b.slots}" if b.slots > 1 else ""
                at = f" at {', '.join(map(str, b.addresses))}" if b.addresses else ""
                yield f"    {b.space} {b.name}: {b.dtype} x {b.elements}{slots}{at}"
            yield from _body(f.body, "    ")


def _body(body: tuple[p.Stmt, ...], indent: str) -> Iterator[str]:
    for s in body:
        match s:
            case p.For():
                yield f"{indent}for {s.var} = {s.lo} .. {s.hi} step {s.step}"
                yield from _body(s.body, indent + "  ")
            case p.If():
                yield f"{indent}if {s.condition}"
                yield from _body(s.body, indent + "  ")
            case p.Let():
                yield f"{indent}{s.name} = {s.value}"
            case p.Instr():
                attrs = "".join(f" {k}={v}" for k, v in s.attrs)
                ins = ", ".join(operand(x) for x in s.ins)
                yield f"{indent}{s.op} {operand(s.out)} <- {ins}{attrs}"
            case p.SetFlag():
                yield f"{indent}set {s.src} -> {s.dst} event {s.event}"
            case p.WaitFlag():
                yield f"{indent}wait {s.src} -> {s.dst} event {s.event}"
            case p.PipeBarrier():
                yield f"{indent}barrier {s.pipe}"
            case p.CrossSet():
                yield f"{indent}cross set {s.flag} after {s.pipe}"
            case p.CrossWait():
                yield f"{indent}cross wait {s.flag} on {s.pipe}"


def operand(x: p.Operand) -> str:
    """A view as name[slot]+offset(size:stride, …), a scalar as itself."""
    if not isinstance(x, p.View):
        return str(x)
    slot = "" if x.slot == 0 else f"[{x.slot}]"
    offset = "" if x.offset == 0 else f"+{x.offset}"
    dims = ", ".join(f"{n}:{s}" for n, s in zip(x.sizes, x.strides, strict=True))
    nz = f" nz{x.fractal}" if x.fractal else ""
    return f"{x.memory.name}{slot}{offset}({dims}){nz}"
