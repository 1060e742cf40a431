"""How kernels reach memory: strides, gathers, scatters, pages, in place. CPU against reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import twin
from hypothesis import given, settings
from hypothesis import strategies as st

import terrazzo.lang as tz
from terrazzo.errors import KernelError
from terrazzo.kernels.norm import add_rms_norm

rows, cols, n, m, wide, pages, lanes, seqs, blocks, two, tall = tz.dims(
    "rows cols n m wide pages lanes seqs blocks two tall"
)
T = tz.dtypes("T", tz.f32, tz.f16, tz.bf16, tz.i32, tz.u32, tz.i8, tz.u8, tz.bool_)
EXTENTS = [*range(1, 20), 31, 32, 33, 48, 63, 64, 65, 127, 129, 300]
DTYPES = ("f32", "f16", "bf16", "i32", "u32", "i8", "u8", "bool")
extents, small_, seeds = st.sampled_from(EXTENTS), st.integers(1, 9), st.integers(0, 2**32 - 1)


def cases(**strategies: Any) -> Any:
    return lambda test: settings(max_examples=20, deadline=None)(given(**strategies)(test))


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "f32") -> np.ndarray:
    """Whole numbers: exact in every type."""
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(twin.NUMPY[dtype])


@tz.kernel
def copy_rows(x: tz.gm[T, rows, cols], out: tz.gm[T, rows, cols], turned: tz.gm[T, cols, rows],
              R: tz.const = 3):  # fmt: skip
    for r in tz.grid(rows, step=R):
        t = tz.load(x[r])
        out[r] = t
        turned[:, r] = t


@pytest.mark.parametrize("dtype", DTYPES)
@cases(a=small_, b=extents, pad=st.integers(0, 5), seed=seeds)
def test_strided_rows(dtype: str, a: int, b: int, pad: int, seed: int) -> None:
    """Views of wider arrays, read and written; every second row; rows in reverse order."""
    rng = np.random.default_rng(seed)
    whole = numbers(rng, (2 * a, b + pad), dtype)
    for x in (whole[:a, pad:], whole[::2, :b], whole[:a, :b]):
        twin.same(copy_rows, x=x, out=twin.empty((a, b + pad), dtype)[:, :b],
                  turned=twin.empty((2 * b, a), dtype)[::2])  # fmt: skip


@tz.kernel
def gathers(x: tz.gm[T, tall, cols], at: tz.gm[tz.i32, rows], order: tz.gm[tz.i32, cols],
            by_row: tz.gm[T, rows, cols], by_element: tz.gm[T, rows, cols],
            both: tz.gm[T, rows, cols], single: tz.gm[T, rows], R: tz.const = 4):  # fmt: skip
    for r in tz.grid(rows, step=R):
        to, where = tz.load(at[r]), tz.load(order)
        by_row[r] = x[to]
        by_element[r] = tz.load(x[0, where])
        both[r] = x[to, where]
    for r in tz.grid(rows):
        single[r] = x[at[r], order[0]]


@pytest.mark.parametrize("dtype", DTYPES)
@cases(a=small_, b=extents, c=small_, seed=seeds)
def test_gathers(dtype: str, a: int, b: int, c: int, seed: int) -> None:
    """Whole rows, elements along the column axis, both at once, single elements."""
    rng = np.random.default_rng(seed)
    at, order = rng.integers(0, c, a).astype(np.int32), rng.integers(0, b, b).astype(np.int32)
    outs: dict[str, Any] = {k: twin.empty((a, b), dtype) for k in ("by_row", "by_element", "both")}
    twin.same(gathers, x=numbers(rng, (c, b), dtype), at=at, order=order,
              single=twin.empty(a, dtype), **outs)  # fmt: skip


@tz.kernel
def affine(x: tz.gm[T, wide], y: tz.gm[T, tall, wide], even: tz.gm[T, n], odd: tz.gm[T, n],
           back: tz.gm[T, n], far: tz.gm[T, n], diagonal: tz.gm[T, n], s: tz.i32,
           STEP: tz.const = 48):  # fmt: skip
    for i in tz.grid(n, step=STEP):
        j = tz.index(i)
        even[i], odd[i] = x[2 * j], x[2 * j + 1]
        back[i] = x[n - 1 - j]
        far[i] = x[j * 3 + s]
        diagonal[i] = y[j, j + s]


@pytest.mark.parametrize("dtype", DTYPES)
@cases(a=extents, s=st.integers(0, 3), seed=seeds)
def test_affine_indices(dtype: str, a: int, s: int, seed: int) -> None:
    """2i, 2i + 1, n - 1 - i, 3i + s, the diagonal; the last element read is the array's last."""
    rng = np.random.default_rng(seed)
    outs: dict[str, Any] = {
        k: twin.empty(a, dtype) for k in ("even", "odd", "back", "far", "diagonal")
    }
    twin.same(affine, x=numbers(rng, (3 * a + s - 2 if a > 1 else a + 1 + s,), dtype),
              y=numbers(rng, (a, 3 * a + s - 2 if a > 1 else a + 1 + s), dtype), s=s,
              **outs)  # fmt: skip


@tz.kernel
def scatter(x: tz.gm[T, rows, cols], to: tz.gm[tz.i32, rows], place: tz.gm[tz.i32, cols],
            out: tz.gm[T, tall, cols], moved: tz.gm[T, rows, cols], pairs: tz.gm[T, rows, wide],
            mark: tz.gm[tz.i32, tall], R: tz.const = 2):  # fmt: skip
    for r in tz.grid(rows, step=R):
        t, where = tz.load(x[r]), tz.load(to[r])
        out[where] = t
        moved[r, tz.load(place)] = t
        pairs[r, 2 * tz.index(cols)] = t
        pairs[r, 2 * tz.index(cols) + 1] = t
        mark[where] = tz.index(r)


@pytest.mark.parametrize("dtype", DTYPES)
@cases(a=small_, b=extents, seed=seeds)
def test_scatter(dtype: str, a: int, b: int, seed: int) -> None:
    """Rows to places, elements to a permutation, interleaved; what is not named stays."""
    rng = np.random.default_rng(seed)
    c = a + int(rng.integers(0, 4))
    twin.same(scatter, x=numbers(rng, (a, b), dtype), to=rng.permutation(c)[:a].astype(np.int32),
              place=rng.permutation(b).astype(np.int32), out=numbers(rng, (c, b), dtype),
              moved=twin.empty((a, b), dtype), pairs=twin.empty((a, 2 * b), dtype),
              mark=numbers(rng, (c,), "i32"))  # fmt: skip


@tz.kernel
def paged(x: tz.gm[T, pages, lanes, m], y: tz.gm[T, pages, m, lanes],
          table: tz.gm[tz.i32, seqs, blocks], length: tz.gm[tz.i32, seqs],
          out: tz.gm[T, seqs, n, m], turned: tz.gm[T, seqs, m, n],
          P: tz.const = 16, STEP: tz.const = 64):  # fmt: skip
    for s in tz.grid(seqs):
        for j in tz.loop(0, length[s], of=n, step=STEP):
            page, lane = table[s, j // P], j % P
            out[s, j] = x[page, lane]
            turned[s, :, j] = y[page, :, lane]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8"])
@pytest.mark.parametrize("page", [16, 7])
@cases(lengths=st.lists(st.integers(0, 90), min_size=1, max_size=4), width=extents, seed=seeds)
def test_pages(page: int, dtype: str, lengths: list[int], width: int, seed: int) -> None:
    """Ragged sequences in shuffled pages; what lies past a sequence's end is not written."""
    rng = np.random.default_rng(seed)
    most = -(-90 // page)
    table = rng.permutation(len(lengths) * most).astype(np.int32).reshape(-1, most)
    shape = (table.size, page, width)
    size = max(lengths)
    twin.same(paged, x=numbers(rng, shape, dtype), y=numbers(rng, (shape[0], width, page), dtype),
              table=table, length=np.array(lengths, np.int32), P=page,
              out=numbers(rng, (len(lengths), size, width), dtype),
              turned=numbers(rng, (len(lengths), width, size), dtype))  # fmt: skip


@tz.kernel
def paged_products(q: tz.gm[tz.f32, rows, m], x: tz.gm[T, pages, lanes, m],
                   y: tz.gm[T, pages, m, lanes], unit: tz.gm[tz.f16, pages, lanes],
                   table: tz.gm[tz.i32, seqs, blocks], start: tz.gm[tz.i32, seqs],
                   stop: tz.gm[tz.i32, seqs], scores: tz.gm[tz.f32, seqs, rows, n],
                   all_scores: tz.gm[tz.f32, seqs, rows, n], out: tz.gm[tz.f32, seqs, rows, m],
                   P: tz.const = 16, STEP: tz.const = 64, WHOLE: tz.const = False):  # fmt: skip
    """WHOLE: blocks start with pages."""
    for s in tz.grid(seqs):
        total = tz.zeros(rows, m)
        first = start[s] // P * P if WHOLE else start[s]
        for j in tz.loop(first, stop[s], of=n, step=STEP):
            page, lane = table[s, j // P], j % P
            w = tz.load(q) @ tz.load(y[page, :, lane]).to(tz.f32)
            w = w * tz.load(unit[page, lane]).to(tz.f32)
            scores[s, :, j] = w
            total = total + w @ tz.load(x[page, lane]).to(tz.f32)
        out[s] = total
    for s, j in tz.grid(seqs, n, step=(None, STEP)):
        page, lane = table[s, j // P], j % P
        w = tz.load(q) @ tz.load(y[page, :, lane]).to(tz.f32)
        all_scores[s, :, j] = w * tz.load(unit[page, lane]).to(tz.f32)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8"])
@pytest.mark.parametrize(("page", "step", "whole"),
                         [(16, 64, True), (16, 64, False), (16, 24, True), (7, 21, True),
                          (32, 64, True), (32, 48, True)])  # fmt: skip
@cases(spans=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), min_size=1, max_size=3),
       a=small_, width=extents, seed=seeds)  # fmt: skip
def test_products_with_pages(page: int, step: int, whole: bool, dtype: str,
                             spans: list[tuple[int, int]], a: int, width: int,
                             seed: int) -> None:  # fmt: skip
    """Loops that start anywhere, steps that end inside pages, blocks of a grid; units that are the
    same for all rows."""
    rng = np.random.default_rng(seed)
    most, stop = -(-90 // page), [b for _, b in spans]
    table = rng.permutation(len(spans) * most).astype(np.int32).reshape(-1, most)
    shape = (table.size, page, width)
    # exact in every type, without a zero's sign to lose
    few = lambda *shape: rng.choice([-2, -1, 1, 2], shape)  # noqa: E731
    twin.same(paged_products, q=few(a, width).astype(np.float32),
              x=few(*shape).astype(twin.NUMPY[dtype]),
              y=few(shape[0], width, page).astype(twin.NUMPY[dtype]),
              unit=few(*shape[:2]).astype(np.float16), table=table,
              start=np.array([min(s) for s in spans], np.int32), stop=np.array(stop, np.int32),
              P=page, STEP=step, WHOLE=whole,
              scores=twin.empty((len(spans), a, 90)), all_scores=twin.empty((len(spans), a, 90)),
              out=twin.empty((len(spans), a, width)))  # fmt: skip


@tz.kernel(aliases=[("out", "x"), ("out", "y")])
def in_place(x: tz.gm[T, rows, cols], y: tz.gm[T, rows, cols], out: tz.gm[T, rows, cols],
             R: tz.const = 2):  # fmt: skip
    for r in tz.grid(rows, step=R):
        out[r] = x[r] + y[r]
    for r in tz.grid(rows, step=R):
        t = tz.load(out[r])
        out[r] = t - tz.max(t, axis=cols)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
@cases(a=small_, b=extents, threads=st.integers(1, 4), seed=seeds)
def test_in_place(dtype: str, a: int, b: int, threads: int, seed: int) -> None:
    """Output and input are one array; a second phase reads what the first wrote."""
    rng = np.random.default_rng(seed)
    x, y = numbers(rng, (a, b), dtype), numbers(rng, (a, b), dtype)
    for args in (
        {"x": x, "y": y, "out": x},
        {"x": x, "y": y, "out": y},
        {"x": x, "y": x, "out": x},
    ):
        twin.same(in_place, threads, **args)


@tz.kernel
def swap_rows(x: tz.gm[tz.f32, rows, two, cols]):
    """Both halves are read before either is written."""
    for r in tz.grid(rows):
        a, b = tz.load(x[r, 0]), tz.load(x[r, 1])
        x[r, 0] = b
        x[r, 1] = a


@tz.kernel
def turn_in_place(x: tz.gm[tz.f32, rows, cols], s: tz.f32):
    """The value stored depends on every element of the row that is stored."""
    for r in tz.grid(rows, step=2):
        t = tz.load(x[r])
        x[r] = t * s + tz.sum(t, axis=cols)


@cases(a=small_, b=extents, seed=seeds)
def test_reads_come_before_writes(a: int, b: int, seed: int) -> None:
    """Statements take effect in order, whatever is fused."""
    rng = np.random.default_rng(seed)
    twin.same(swap_rows, x=numbers(rng, (a, 2, b)))
    twin.same(turn_in_place, x=numbers(rng, (a, b)), s=2.0)


@tz.kernel
def written_then_read(x: tz.gm[tz.f32, rows, cols], buf: tz.gm[tz.f32, rows, cols],
                      out: tz.gm[tz.f32, rows, cols], last: tz.gm[tz.f32, rows]):  # fmt: skip
    """A block reads back what it stored."""
    for r in tz.grid(rows, step=2):
        buf[r] = tz.load(x[r]) * 2.0
        out[r] = tz.load(buf[r]) + 1.0
        last[r] = tz.sum(buf[r], axis=cols)
        buf[r] = tz.load(buf[r]) * 3.0


@cases(a=small_, b=extents, seed=seeds)
def test_a_block_reads_what_it_stored(a: int, b: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    twin.same(written_then_read, x=numbers(rng, (a, b)), buf=twin.empty((a, b)),
              out=twin.empty((a, b)), last=twin.empty(a))  # fmt: skip


@tz.kernel
def old_and_new(x: tz.gm[tz.f32, rows, cols], y: tz.gm[tz.f32, rows, cols],
                turned: tz.gm[tz.f32, cols, rows], top: tz.gm[tz.f32, rows],
                total: tz.gm[tz.f32, cols]):  # fmt: skip
    """What was loaded keeps its value, whoever uses it after the store: another level, another
    nest, a reduction along the other axis."""
    for r in tz.grid(rows, step=64):
        t = tz.load(x[r])
        x[r] = t * 2.0
        y[r] = t - tz.max(t, axis=cols)
        top[r] = tz.sum(t, axis=cols)
        turned[:, r] = t
        total[:] = tz.sum(t, axis=r)


@tz.kernel
def mirror(x: tz.gm[tz.f32, rows, cols]):
    """Every element moves: the row is read as a whole before it is written."""
    for r in tz.grid(rows, step=4):
        t = tz.load(x[r, cols - 1 - tz.index(cols)])
        x[r] = t


@tz.kernel
def neighbours(x: tz.gm[tz.f32, rows, cols], s: tz.f32):
    """Rows of a block mix: row i takes row n - 1 - i."""
    for r in tz.grid(rows, step=64):
        x[r] = tz.load(x[rows - 1 - tz.index(r)]) * s + x[r]


@tz.kernel
def through_a_loop(x: tz.gm[tz.f32, rows, cols], y: tz.gm[tz.f32, rows, cols], s: tz.f32):
    """Loaded before a loop that stores to it, used after it and in it."""
    for r in tz.grid(rows, step=3):
        t, first = tz.load(x[r]), tz.load(x[r, 0])
        for j in tz.loop(cols, step=32):
            x[r, j] = tz.load(x[r, j]) + first * s
        y[r] = t


@tz.kernel
def twice(x: tz.gm[tz.f32, rows, cols], at: tz.gm[tz.i32, rows]):
    """The second store to an element is the one that stays."""
    for r in tz.grid(rows, step=2):
        t = tz.load(x[r])
        x[r] = t - tz.max(t, axis=cols)
        x[r, at[r]] = tz.full(-1.0, r)


@cases(a=small_, b=extents, seed=seeds)
def test_loaded_values_stay(a: int, b: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = numbers(rng, (a, b))
    twin.same(old_and_new, x=x, y=twin.empty((a, b)), turned=twin.empty((b, a)),
              top=twin.empty(a), total=twin.empty(b))  # fmt: skip
    twin.same(mirror, x=x)
    twin.same(neighbours, x=x, s=2.0)
    twin.same(through_a_loop, x=x, y=twin.empty((a, b)), s=2.0)
    twin.same(twice, x=x, at=rng.integers(0, b, a).astype(np.int32))


@tz.kernel
def product_in_place(x: tz.gm[tz.f32, rows, cols], w: tz.gm[tz.f32, cols, tall],
                     y: tz.gm[tz.f32, rows, tall]):  # fmt: skip
    """The left operand of a product is what was there before the store."""
    for r in tz.grid(rows, step=5):
        t = tz.load(x[r])
        x[r] = t + 1.0
        y[r] = t @ tz.load(w)
        x[r] = tz.load(x[r]) * 2.0


@cases(a=small_, b=extents, c=small_, seed=seeds)
def test_product_of_what_was_loaded(a: int, b: int, c: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    twin.same(product_in_place, x=numbers(rng, (a, b)), w=numbers(rng, (b, c)),
              y=twin.empty((a, c)))  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@cases(a=small_, b=extents, seed=seeds)
def test_add_rms_norm_in_place(dtype: str, a: int, b: int, seed: int) -> None:
    """The library's kernel, its sum written over either summand."""
    rng = np.random.default_rng(seed)
    x, y = numbers(rng, (a, b), dtype), numbers(rng, (a, b), dtype)
    for total in (x, y):
        twin.close(add_rms_norm, lambda z: np.abs(z) * (b + 8) * 2.0**-23, x=x, y=y, total=total,
                   weight=numbers(rng, (b,)), out=twin.empty((a, b), dtype), eps=1e-5)  # fmt: skip


@tz.kernel
def kept_across_a_grid(x: tz.gm[tz.f32, rows, cols], y: tz.gm[tz.f32, rows, cols]):
    t = tz.load(x)
    for r in tz.grid(rows):
        x[r] = tz.load(y[r])
    for r in tz.grid(rows):
        y[r] = tz.sum(t, axis=rows)


def test_a_tile_cannot_outlive_a_grid_that_stores_to_it() -> None:
    with pytest.raises(KernelError) as e:
        twin.on_cpu(kept_across_a_grid, x=twin.empty((2, 3)), y=twin.empty((2, 3)))
    text = str(e.value)
    assert "`x` is loaded before a grid that stores to it, and used after" in text
    assert "test_target_memory.py:" in text and "tz.load(x)" in text and "^^^" in text
    assert "load it inside the grid" in text
