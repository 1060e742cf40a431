"""Reading what the vendor's tools write: MLIR's generic form, affine maps, bitcode's symbols."""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding as llvm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrazzo.ir.types import f32
from terrazzo.targets.ascend.affine import apply_map
from terrazzo.targets.ascend.bitcode import defined_functions
from terrazzo.targets.ascend.mlir_text import (
    DYNAMIC,
    MemrefType,
    MlirError,
    Op,
    Place,
    memref_type,
    parse,
)
from terrazzo.targets.ascend.planned_views import Shaped, collapse, expand, reinterpret, subview
from terrazzo.targets.davinci.expr import compiled, var
from terrazzo.targets.davinci.program import Gm

MODULE = """
#loc3 = loc("k.py":7:5)
#map = affine_map<()[s0] -> (s0 mod 2)>
"builtin.module"() ({
  "func.func"() <{function_type = (i32, memref<4xf32>) -> (), sym_name = "f"}> ({
  ^bb0(%arg0: i32 loc("k.py":1:2), %arg1: memref<4xf32>):
    %0:2 = "d.two"(%arg0) <{a = array<i64: 1, -2>, b = [[0, 1], [2]], empty = array<i64>,
      f = 0xFF800000 : f32, kind = #d.kind<A, B>, map = #map, unit, x = 1.5e-3 : f32}>
      : (i32) -> (i32, i1) loc(#loc4)
    "d.use"(%0#1, %arg1) : (i1, memref<4xf32>) -> () loc(fused[unknown, "k.py":9:1])
    "d.loop"() ({
      "d.in"() : () -> () loc(callsite("k.py":3:3 at "k.py":4:4))
    }, {
    }) {s = "a\\"}b"} : () -> ()
  }) {hacc.entry} : () -> () loc(unknown)
}) : () -> ()
#loc4 = loc("tile"(#loc3))
"""


def test_generic_form() -> None:
    (f,) = parse(MODULE).regions[0].ops
    assert f.attrs["sym_name"] == "f" and f.attrs["hacc.entry"] is True and f.place is None
    two, use, loop = f.regions[0].ops
    assert f.regions[0].args == (("%arg0", "i32"), ("%arg1", "memref<4xf32>"))
    assert two.results == ("%0#0", "%0#1") and two.result_types == ("i32", "i1")
    assert two.place == Place("k.py", 7, 5, "tile")
    assert two.attrs == {
        "a": (1, -2), "b": ((0, 1), (2,)), "empty": (), "f": float("-inf"),
        "kind": "#d.kind<A, B>", "map": "affine_map<()[s0] -> (s0 mod 2)>", "unit": True,
        "x": 0.0015,
    }  # fmt: skip
    assert use.operands == ("%0#1", "%arg1") and use.place == Place("k.py", 9, 1)
    assert loop.regions[0].ops[0].place == Place("k.py", 3, 3) and loop.regions[1].ops == ()
    assert loop.attrs["s"] == 'a\\"}b'


@pytest.mark.parametrize(
    "text",
    ["", '"a"() : () ->', '"a"( : () -> ()', '"a"() : () -> () x', '"a"() <{x = }> : () -> ()'],
)
def test_what_is_not_generic_form_is_an_error(text: str) -> None:
    with pytest.raises(MlirError, match="line 1"):
        parse(text)


def test_memref_types() -> None:
    assert memref_type("memref<8x?xf16, strided<[?, 1], offset: ?>, #hivm.address_space<ub>>") == (
        MemrefType((8, None), "f16", (None, 1), None, "ub")
    )
    assert memref_type("memref<2x3x4xi8>") == MemrefType((2, 3, 4), "i8", (12, 4, 1), 0, "")
    assert memref_type("memref<f32, strided<[]>>") == MemrefType((), "f32", (), 0, "")
    with pytest.raises(MlirError):
        memref_type("tensor<4xf32>")


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9), st.integers(-9, 9))
def test_affine_maps(a: int, b: int, c: int, d: int) -> None:
    text = (
        f"affine_map<(d0)[s0] -> (d0 * {d} - (s0 floordiv {c}) * 2 + 1, "
        f"-d0 + s0 mod {c}, (d0 + s0) ceildiv {c})>"
    )
    results = apply_map(text, [var("a"), var("b")])
    expected = [a * d - b // c * 2 + 1, -a + b % c, -(-(a + b) // c)]
    assert [compiled(e)({"a": a, "b": b}, {}) for e in results] == expected


@pytest.mark.parametrize("text", ["affine_map<(d0) -> (d1)>", "affine_map<(d0) -> (d0 + )>", "x"])
def test_wrong_maps(text: str) -> None:
    with pytest.raises(MlirError):
        apply_map(text, [0] * text.count("(d0)"))


# -- views -----------------------------------------------------------------------------------------

X = Shaped(Gm("x", f32, (4, 6, 8)), (4, 6, 8), (48, 8, 1))


def _op(result: str, **attrs: object) -> Op:
    return Op("memref.x", (), (), attrs, (), (), (result,))


def test_subview_offsets_strides_and_dropped_dimensions() -> None:
    op = _op(
        "memref<3x?xf32, strided<[8, 2], offset: ?>>",
        static_offsets=(DYNAMIC, 1, 2), static_sizes=(1, 3, DYNAMIC), static_strides=(1, 1, 2),
    )  # fmt: skip
    made = subview(op, X, [[var("i")], [var("n")], []])
    assert (made.sizes, made.strides) == ((3, var("n")), (8, 2))
    assert compiled(made.offset)({"i": 2}, {}) == 2 * 48 + 8 + 2


def test_reinterpret_collapse_expand() -> None:
    flat = collapse(_op("memref<4x48xf32>", reassociation=((0,), (1, 2))), X)
    assert (flat.sizes, flat.strides) == ((4, 48), (48, 1))
    op = _op("memref<4x3x16xf32>", reassociation=((0,), (1, 2)), static_output_shape=(4, 3, 16))
    cube = expand(op, flat, [])
    assert (cube.sizes, cube.strides) == ((4, 3, 16), (48, 16, 1))
    op = _op("memref<?xf32>", static_offsets=(5,), static_sizes=(DYNAMIC,), static_strides=(3,))
    row = reinterpret(op, flat, [[], [var("n")], []])
    assert (row.sizes, row.strides, row.offset) == ((var("n"),), (3,), 5)


# -- bitcode ---------------------------------------------------------------------------------------


def test_what_is_not_bitcode(tmp_path: Path) -> None:
    path = tmp_path / "m.bc"
    path.write_bytes(b"\x7fELF")
    with pytest.raises(ValueError, match="not LLVM bitcode"):
        defined_functions(path)
    module = llvm.parse_assembly("define void @f() { ret void }")
    path.write_bytes(module.as_bitcode())  # llvmlite writes no symbol table
    with pytest.raises(ValueError, match="no symbol table"):
        defined_functions(path)
