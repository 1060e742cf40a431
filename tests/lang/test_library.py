"""Every kernel of the library prints and parses back, and is well-formed after each pass."""

import importlib
import pkgutil

import pytest

import terrazzo.kernels
import terrazzo.lang as tz
from terrazzo.ir import parser, printer, verify
from terrazzo.ir.passes import pipeline
from terrazzo.lang.kernel import Kernel

STAGE = {"simplify": "traced", "dead": "simplified", "accumulate": "accumulated"}


def library() -> list[Kernel]:
    out: dict[str, Kernel] = {}
    for module in pkgutil.iter_modules(terrazzo.kernels.__path__):
        found = vars(importlib.import_module(f"terrazzo.kernels.{module.name}"))
        out.update({k.name: k for k in found.values() if isinstance(k, Kernel)})
    return [out[name] for name in sorted(out)]


@pytest.mark.parametrize("last", [False, True], ids=["first_types", "last_types"])
@pytest.mark.parametrize("kernel", library(), ids=lambda k: k.name)
def test_kernel(kernel: Kernel, last: bool) -> None:
    types = {p.dtype.name: p.dtype.choices[-1 if last else 0]
             for p in kernel.params if isinstance(p.dtype, tz.TypeVar)}  # fmt: skip
    present = {p.name for p in kernel.params if p.optional and last}
    consts = {p.name: 1 for p in kernel.params if p.kind == "const" and p.default is ...}
    statics = {d.name: 64 for d in kernel.dims.values() if d.static}
    ir = kernel.specialise(types, consts, present, statics)
    assert ir is kernel.specialise(types, consts, present, statics)
    verify.verify(ir, "traced")
    for name, run in pipeline():
        ir = run(ir)
        verify.verify(ir, STAGE[name])
        assert parser.parse(printer.format(ir)) == ir
    assert kernel.doc
