"""Tile IR as text. `parser.parse` reads it back exactly; the grammar is in README.md."""

from __future__ import annotations

import json
import math
import re

from terrazzo.ir.ops import (
    Block,
    Expect,
    Index,
    Kernel,
    Load,
    Loop,
    LoopVar,
    Op,
    Param,
    Stmt,
    Store,
    Whole,
)

_BARE = re.compile(r"[A-Za-z_]\w*\Z")
_WORDS = {"inf", "nan", "true", "false"}


def format(kernel: Kernel) -> str:
    """The kernel as text, one statement a line, ending in a newline."""
    lines = [f"kernel {kernel.name}({', '.join(map(_param, kernel.params))})"]
    lines += [f"  const {n} = {_attr(v)}" for n, v in kernel.consts]
    lines += [f"  static {n} = {v}" for n, v in kernel.statics]
    lines += [f"  alias {a} {b}" for a, b in kernel.aliases]
    for a in kernel.axes:
        cap = "" if a.cap is None else f" cap {a.cap}"
        lines.append(f"  axis {a.name} of {a.dim}{' block' if a.block else ''}{cap}")
    lines.append("{")
    for stmt in kernel.body:
        _stmt(stmt, "  ", lines)
    lines.append("}")
    return "\n".join(lines) + "\n"


def statement(stmt: Stmt) -> str:
    """One statement as text; of a loop the first line."""
    lines: list[str] = []
    _stmt(stmt, "", lines)
    return lines[0]


def _param(p: Param) -> str:
    return f"{p.name}: gm {p.dtype}[{', '.join(p.dims)}]" if p.tensor else f"{p.name}: {p.dtype}"


def _attr(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, str) and (not _BARE.match(value) or value in _WORDS):
        return json.dumps(value)
    return str(value)


def _index(index: tuple[Index, ...]) -> str:
    def entry(e: Index) -> str:
        if isinstance(e, Whole):
            return f":{e.axis}"
        return e.axis if isinstance(e, Block) else repr(e)

    return f"[{', '.join(map(entry, index))}]"


def _var(v: LoopVar) -> str:
    var = f" {v.var}" if v.var is not None else ""
    step = f" step {v.step}" if v.step is not None else ""
    dim = f" of {v.dim}" if v.dim else ""
    return f"{v.name}{var} in {v.lo}..{v.hi}{step}{dim}"


def _stmt(s: Stmt, pad: str, out: list[str]) -> None:
    if isinstance(s, Op):
        args = f"({', '.join(map(repr, s.args))})" if s.args else ""
        attrs = "".join(f" {k}={_attr(v)}" for k, v in s.attrs)
        out.append(f"{pad}{s.result} = {s.op}{args}{attrs} : {s.result.type}")
    elif isinstance(s, Load):
        space = f" in {s.space}" if s.space else ""
        out.append(f"{pad}{s.result} = load {s.param}{_index(s.index)}{space} : {s.result.type}")
    elif isinstance(s, Store):
        out.append(f"{pad}store {s.param}{_index(s.index)} = {s.value}")
    elif isinstance(s, Expect):
        out.append(f"{pad}expect {s.condition} {json.dumps(s.text)}")
    else:
        _loop(s, pad, out)


def _loop(s: Loop, pad: str, out: list[str]) -> None:
    head = f"{pad}{s.kind} {', '.join(map(_var, s.vars))}"
    if s.stages != 1:
        head += f" stages {s.stages}"
    if s.carries:
        head += " carry " + ", ".join(f"{c.var} = {c.init} : {c.var.type}" for c in s.carries)
    out.append(head + " {")
    for stmt in s.body:
        _stmt(stmt, pad + "  ", out)
    if s.carries:
        out.append(f"{pad}  next {', '.join(repr(c.next) for c in s.carries)}")
        out.append(f"{pad}}} -> {', '.join(repr(c.result) for c in s.carries)}")
    else:
        out.append(pad + "}")
