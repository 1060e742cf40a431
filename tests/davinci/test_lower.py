"""Lowering to the buffer level: what the core programs of the library's kernels consist of."""

from __future__ import annotations

import pytest

from terrazzo.errors import KernelError
from terrazzo.ir.types import DTYPES, f16, f32
from terrazzo.kernels import linear, math, norm, rope, sampling
from terrazzo.lang.kernel import Kernel
from terrazzo.targets.davinci import program as p
from terrazzo.targets.davinci.chips import chip
from terrazzo.targets.davinci.expr import compiled
from terrazzo.targets.davinci.lowering.lower import Options, lower
from terrazzo.targets.davinci.printer import text


def lowered(kernel: Kernel, dims: dict[str, int], types: dict[str, str],
            options: Options | None = None) -> p.Program:  # fmt: skip
    bound = {name: DTYPES[dtype] for name, dtype in types.items()}
    return lower(kernel.specialise(bound, {}, set(), dims, "davinci"), dims, chip("910b2"), options)


def ops(program: p.Program) -> list[str]:
    body = program.phases[0].functions[0].body
    return [s.op for s in p.walk(body) if isinstance(s, p.Instr)]


def test_add_is_two_loads_an_addition_and_a_store() -> None:
    program = lowered(math.add, {"n": 1_000_000}, {"T": "f32"})
    assert ops(program) == ["load", "load", "vadd", "store"]
    (function,) = program.phases[0].functions
    assert (function.kind, function.cores) == ("vector", 48)


@pytest.mark.parametrize("n", [1, 63, 1000, 1_000_000, 12_345_678])
def test_blocks_cover_the_grid_once(n: int) -> None:
    program = lowered(math.add, {"n": n}, {"T": "f32"})
    (loop,) = [s for s in program.phases[0].functions[0].body if isinstance(s, p.For)]
    store = next(s for s in loop.body if isinstance(s, p.Instr) and s.op == "store")
    start, size = compiled(store.out.offset), compiled(store.out.sizes[0])
    covered = 0
    for block in range(int(compiled(loop.hi)({}, {}))):
        env = {"block": block}
        assert start(env, {}) == covered
        covered += size(env, {})
    assert covered == n


def test_the_grid_fills_whole_rounds_of_cores() -> None:
    program = lowered(norm.rms_norm, {"rows": 512, "dim": 576}, {"T": "f16", "R": "f16"})
    loop = next(s for s in program.phases[0].functions[0].body if isinstance(s, p.For))
    assert compiled(loop.hi)({}, {}) == 86  # blocks of 6 rows: two rounds of 48 cores


def test_a_product_that_is_stored_needs_the_cube_only() -> None:
    dims = {"m": 1024, "n": 512, "k": 1000}
    program = lowered(linear.matmul, dims, {"T": "f16", "R": "f16"})
    assert ops(program) == ["nd2nz", "nd2nz", "mmad_l1", "fixpipe"]
    (function,) = program.phases[0].functions
    assert {b.name: (b.space, b.dtype, b.slots) for b in function.buffers} == {
        "acc": ("L0C", f32, 1), "a": ("L1", f16, 2), "b": ("L1", f16, 2),
    }  # fmt: skip


def test_swizzled_blocks_are_all_visited() -> None:
    dims = {"m": 1000, "n": 2000, "k": 64}
    program = lowered(linear.matmul, dims, {"T": "f16", "R": "f16"}, Options(swizzle=3))
    (loop,) = program.phases[0].functions[0].body
    assert isinstance(loop, p.For)
    out = next(s.out for s in loop.body if isinstance(s, p.Instr) and s.op == "fixpipe")
    places = {compiled(out.offset)({"block": b}, {}) for b in range(int(compiled(loop.hi)({}, {})))}
    assert places == {i * 2000 + j for i in range(0, 1000, 128) for j in range(0, 2000, 256)}


def test_scalars_read_index_tensors() -> None:
    dims = {"tokens": 4, "heads": 2, "two": 2, "half": 32, "positions": 64}
    program = lowered(rope.rope, dims, {"T": "f16", "R": "f16"})
    assert "cos+(position[block] * 32)" in text(program)


def test_what_has_no_rule_names_its_line() -> None:
    dims = {"tokens": 4, "heads": 2, "half": 32, "two": 2, "positions": 64}
    with pytest.raises(KernelError, match="stride of 2 elements") as caught:
        lowered(rope.rope_interleaved, dims, {"T": "f16", "R": "f16"})
    assert "rope.py:" in str(caught.value) and "^" in str(caught.value)


def test_bounds_that_only_vector_units_know_are_refused_with_their_line() -> None:
    dims = {"seqs": 2, "vocab": 512, "two": 2}
    with pytest.raises(KernelError, match="bounds of this loop are computed from a tile's") as e:
        lowered(sampling.draw, dims, {})
    assert "sampling.py:" in str(e.value) and "^" in str(e.value)
